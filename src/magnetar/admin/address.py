"""Where a broker listens for its operators: ``DATA/admin.sock``."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

from magnetar.base.unix_sockets import bind, short_path

__all__ = ["SOCKET", "bind", "listening", "short_path"]
SOCKET = "admin.sock"
_BACKLOG = 128


@contextlib.contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """Return a socket that listens there within the block; what a crash left behind makes way."""
    path.unlink(missing_ok=True)
    with bind(path) as bound:
        bound.listen(_BACKLOG)
        bound.setblocking(False)
        try:
            yield bound
        finally:
            path.unlink(missing_ok=True)
