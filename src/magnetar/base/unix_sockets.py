"""Sockets of this machine alone, by paths that only their owner may use."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Return a name of ``path`` that fits a socket's address (108 bytes), however deep the directory lies."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def bind(path: Path) -> socket.socket:
    """Return a socket bound to ``path`` for its owner alone; nobody can connect before somebody listens."""
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with short_path(path) as name:
            bound.bind(name)
        os.chmod(path, 0o600)
    except BaseException:
        bound.close()
        raise
    return bound
