"""One process at a time at some work: the kernel's lock on a file, which a killed process cannot keep."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import IO


class FileHeld(Exception):
    """Another process holds the file; the message says which, and since when."""


class HeldFile:
    """Held by a ``with`` block; raises `FileHeld`. The file stays: otherwise two processes could hold one each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None

    def __enter__(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = self._path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read()
            file.close()
            raise FileHeld(_told(holder)) from None
        file.truncate(0)
        file.write(
            json.dumps({"pid": os.getpid(), "since": time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime())})
        )
        file.flush()
        self._file = file

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.truncate(0)
            self._file.close()
            self._file = None


def _told(holder: str) -> str:
    try:
        said = json.loads(holder)
        return f"process {said['pid']} since {said['since']}"
    except (ValueError, KeyError, TypeError):
        return "it is just beginning"
