"""A disk on which the journal's writes wait until they are let through: what they hold is written, and not durable."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from magnetar.ledger.files.disk import JournalFile, RealDisk
from magnetar.ledger.files.kernel_writes import KernelWrites


class SlowDisk(RealDisk):
    """Holds every write of the journal from ``hold`` to ``let_go``."""

    def __init__(self) -> None:
        self._may_write = threading.Event()
        self._may_write.set()

    def hold(self) -> None:
        self._may_write.clear()

    def let_go(self) -> None:
        self._may_write.set()

    def open_journal(self, path: Path, size: int) -> JournalFile:
        return _Held(super().open_journal(path, size), self._may_write)

    def kernel_writes(self, loop: asyncio.AbstractEventLoop) -> KernelWrites | None:
        return None  # it would write past us


class _Held(JournalFile):
    def __init__(self, file: JournalFile, may_write: threading.Event) -> None:
        self._file = file
        self._may_write = may_write

    def write(self, data: memoryview, at: int) -> None:
        self._may_write.wait()
        self._file.write(data, at)

    def close(self) -> None:
        self._file.close()
