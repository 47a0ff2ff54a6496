"""Where a broker listens for its operators: ``DATA/admin.sock``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

SOCKET = "admin.sock"


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Return a name of ``path`` that fits a socket's address (108 bytes), however deep the directory lies."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
