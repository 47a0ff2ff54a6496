"""One writer at a time on a table in a directory: the kernel's lock, which a killed process cannot keep."""

from __future__ import annotations

import fcntl
import json
import os
import time
from typing import IO

from magnetar.pipeline.tables.errors import TableConflict
from magnetar.pipeline.tables.place import Place

_NAME = "_magnetar/writer.lock"


class WriterLock:
    """Held by a ``with`` block; raises `TableConflict` naming who holds it. Does nothing on object stores."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._file: IO[str] | None = None

    def __enter__(self) -> None:
        if not self._place.is_local:
            return
        path = self._place.directory / _NAME
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read() or "{}"
            file.close()
            raise TableConflict(
                f"{self._place}: another writer is at work ({_told(holder)}); one writer at a time"
            ) from None
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
