"""Every engine keeps the contract."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from magnetar.ledger.files.disk import File, JournalFile, RealDisk, RealFile
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.memory import MemoryDisk, MemoryEngine
from magnetar.metadata import MemoryStore, SqliteStore
from magnetar.metadata.memory import MemoryTree
from magnetar.records.compression import Buffer
from tests.contracts.managed_ledger import House, ManagedLedgerContract
from tests.engines.late import LateEngine, LateStore, Weather


class BoundedFile(RealFile):
    """A file on a disk that may be full."""

    def __init__(self, path: Path, disk: BoundedDisk, *, create: bool) -> None:
        super().__init__(path, create=create)
        self._disk = disk

    def write(self, parts: Sequence[Buffer], at: int) -> None:
        room = b"".join(parts)
        if self._disk.full and at + len(room) > self.size():
            super().write([room[: len(room) // 2]], at)  # as a real disk does: it takes what still fits
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(parts, at)


class BoundedDisk(RealDisk):
    full = False

    def open(self, path: Path, *, create: bool = False) -> File:
        return BoundedFile(path, self, create=create)

    def open_journal(self, path: Path, size: int) -> JournalFile:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().open_journal(path, size)


class FilesHouse(House):
    def __init__(self, root: Path) -> None:
        self.root = root
        self.disk = BoundedDisk()

    async def begin(self) -> None:
        self.metadata = SqliteStore(self.root / "metadata.sqlite")
        self.engine = FilesEngine(self.root, self.metadata, self.disk, clock=lambda: self.now_ms)
        await self.engine.start()

    async def end(self) -> None:
        await self.engine.close()
        self.metadata.blocking.close()

    async def reopen(self) -> None:
        await self.end()
        await self.begin()

    def fill_disk(self) -> Callable[[], None]:
        self.disk.full = True
        return lambda: setattr(self.disk, "full", False)

    def ledger_files(self) -> int:
        return len(list(self.root.glob("ledgers/*/*")))


class MemoryHouse(House):
    def __init__(self) -> None:
        # As in ZooKeeper: a cursor that comes before its log leaves a node there.
        self.metadata = MemoryStore(MemoryTree(makes_parents=True))
        self.disk = MemoryDisk()

    async def begin(self) -> None:
        self.engine = MemoryEngine(self.metadata, self.disk, clock=lambda: self.now_ms)
        await self.engine.start()

    def fill_disk(self) -> Callable[[], None]:
        self.disk.capacity = self.disk.used()
        return lambda: setattr(self.disk, "capacity", None)

    def ledger_files(self) -> int:
        return len(self.disk.list(Path("/memory/ledgers"), "*"))


class TestFilesEngine(ManagedLedgerContract):
    @pytest.fixture
    async def house(self, tmp_path: Path) -> AsyncIterator[House]:
        house = FilesHouse(tmp_path)
        await house.begin()
        yield house
        await house.end()


class TestMemoryEngine(ManagedLedgerContract):
    @pytest.fixture
    async def house(self) -> AsyncIterator[House]:
        house = MemoryHouse()
        await house.begin()
        yield house
        await house.engine.close()


class LateHouse(House):
    def __init__(self, seed: int) -> None:
        self.metadata = MemoryStore()
        self.store = LateStore(Weather(seed))

    async def begin(self) -> None:
        self.engine = LateEngine(self.store, self.metadata, clock=lambda: self.now_ms)
        await self.engine.start()

    def fill_disk(self) -> Callable[[], None]:
        self.store.is_full = True
        return lambda: setattr(self.store, "is_full", False)

    def ledger_files(self) -> int:
        return len(self.store.ledgers)


class TestLateEngine(ManagedLedgerContract):
    @pytest.fixture(params=range(5), ids="seed-{}".format)
    async def house(self, request: pytest.FixtureRequest) -> AsyncIterator[House]:
        house = LateHouse(request.param)
        await house.begin()
        yield house
        await house.engine.close()
