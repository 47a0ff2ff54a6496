"""Flushes of files, in addition to the journal: ledgers, now or with the next tick, and their checkpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from magnetar.ledger.files.disk import Disk
from magnetar.ledger.files.journal import Journal
from magnetar.ledger.files.ledger_file import as_storage_error
from magnetar.ledger.files.work import EngineWork
from magnetar.ledger.formats.sparse import SparseIndex


class Checkpoint(NamedTuple):
    """An index to store next to a ledger: ``key`` (ledger id, end, snapshot) shows whether it was stored already."""

    key: tuple[int, int, bytes]
    ledger: Path
    path: Path
    points: SparseIndex
    snapshot: bytes

    @property
    def mark(self) -> str:
        """The value of ``closed_at`` in the list's properties if it was the last one of a clean end."""
        return f"{self.key[0]}:{self.key[1]}"


class Flushing:
    """The flushes of one engine. After one failure it is unknown what the disk stored: durable appends end."""

    def __init__(
        self, disk: Disk, work: EngineWork, journal: Callable[[], Journal], boot: str, interval_ms: int
    ) -> None:
        self._disk = disk
        self._work = work
        self._journal = journal
        self._boot = boot
        self._interval_ms = interval_ms
        self._paths: set[Path] = set()
        self._timer: asyncio.TimerHandle | None = None

    def flush_soon(self, path: Path) -> None:
        """Schedule a ledger's file for the flush of the next tick."""
        self._paths.add(path)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._interval_ms / 1000, self._tick)

    def _tick(self) -> None:
        paths, self._paths, self._timer = sorted(self._paths), set(), None
        self._work.background(self.flush(paths))

    async def flush(self, paths: list[Path]) -> None:
        """Make files durable; raise ``LedgerError``."""
        journal = self._journal()
        if journal.failed is not None:
            raise journal.failed  # the next flush would not tell what the failed one has lost
        with self._failing_for_good():
            await self._work.in_thread(lambda: self._disk.sync(paths))

    def flush_now(self, paths: list[Path]) -> None:
        """Do what `flush` does, while the loop waits for it."""
        with self._failing_for_good():
            self._disk.sync(paths)

    @contextmanager
    def _failing_for_good(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._journal().fail(error)
            raise as_storage_error(error) from error

    async def keep(self, checkpoints: list[Checkpoint]) -> None:
        """Make ledgers durable, then write their checkpoints into their index files."""
        marks = [each.points.mark() for each in checkpoints]
        files = {each.path: each.points.encode(each.snapshot) for each in checkpoints}
        await self.flush([each.ledger for each in checkpoints])
        for each, mark in zip(checkpoints, marks, strict=True):
            each.points.flushed = mark
        await self._put(files)

    async def keep_for_this_boot(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint into a ledger's index file, and leave it to the system when to flush the ledger."""
        await self._put({checkpoint.path: checkpoint.points.encode(checkpoint.snapshot, boot=self._boot)})

    async def _put(self, files: dict[Path, bytes]) -> None:
        try:
            await self._work.in_thread(lambda: self._disk.replace(files))
        except OSError as error:
            raise as_storage_error(error) from error

    def end(self) -> None:
        """Flush now what waits for the next tick, in the background."""
        if self._timer is not None:
            self._timer.cancel()
            self._tick()
