"""What must never be taken for durable: after a failed flush, in a damaged tail, in a lookup, in a checkpoint."""

from __future__ import annotations

import asyncio
import errno
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path

import pytest

from magnetar.ledger.cursors.cursor import Start
from magnetar.ledger.errors import LedgerCorrupt, StorageFailed
from magnetar.ledger.files import walk
from magnetar.ledger.files.disk import File, RealDisk, RealFile
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.formats.info import path_of
from magnetar.ledger.formats.layout import FRAME_BYTES, index_path, ledger_path
from magnetar.ledger.formats.sparse import SparseIndex
from magnetar.ledger.port import Flush, LedgerPolicy
from magnetar.metadata import MemoryStore, SqliteStore
from magnetar.records.compression import Buffer
from tests.admin.house import SickDisk
from tests.ledger.directory import with_engine
from tests.ledger.entries import NOW_MS, append, append_durably, payload, prepared

LOG = "public/default/persistent/t"
ALWAYS, OS = LedgerPolicy(flush=Flush.always), LedgerPolicy(flush=Flush.os)


class FailsOnce(RealDisk):
    """Its first flush fails; the system then says that all is well, though what it could not write is lost."""

    def __init__(self) -> None:
        self.flushes = 0

    def sync(self, paths: Iterable[Path]) -> None:
        self.flushes += 1
        if self.flushes == 1:
            raise OSError(errno.EIO, "Input/output error")
        super().sync(paths)


@pytest.fixture
async def slow(tmp_path: Path) -> AsyncIterator[tuple[FilesEngine, SickDisk]]:
    """An engine, and its disk, which can be made to wait."""
    disk = SickDisk()
    engine = FilesEngine(tmp_path, MemoryStore(), disk)
    await engine.start()
    yield engine, disk
    disk.flushes.set()
    await engine.close()


async def test_no_flush_succeeds_after_one_that_failed(tmp_path: Path) -> None:
    engine = FilesEngine(tmp_path, MemoryStore(), FailsOnce())
    await engine.start()
    log = await prepared(await engine.open(LOG, OS))
    append(log, b"value")
    path = ledger_path(tmp_path, log.ledgers()[-1].ledger_id)
    for _ in range(2):
        with pytest.raises(StorageFailed):
            await engine.shared.flushing.flush([path])
    assert engine.failed is not None
    await engine.close()


def test_a_tail_that_was_durable_once_is_refused_where_it_is_damaged(tmp_path: Path) -> None:
    async def fill(engine: FilesEngine) -> int:
        log = await prepared(await engine.open(LOG, ALWAYS))
        for number in range(5):
            await append_durably(log, b"%d" % number)
        return log.ledgers()[-1].ledger_id

    ledger = with_engine(tmp_path, fill)
    shutil.rmtree(tmp_path / "journal")  # closed in order: nothing of it is needed
    index_path(tmp_path, ledger).unlink()
    file = ledger_path(tmp_path, ledger)
    content = bytearray(file.read_bytes())
    content[-1] ^= 0xFF
    file.write_bytes(content)

    async def look(engine: FilesEngine) -> None:
        with pytest.raises(LedgerCorrupt):
            await engine.open(LOG, ALWAYS)

    with_engine(tmp_path, look)
    assert file.read_bytes() == content, "nothing was cut"


async def test_a_lookup_by_time_gives_nothing_that_is_not_durable(slow: tuple[FilesEngine, SickDisk]) -> None:
    engine, disk = slow
    log = await prepared(await engine.open(LOG, ALWAYS))
    await append_durably(log, b"old", timestamp_ms=NOW_MS)
    disk.flushes.clear()
    later = append(log, b"new", timestamp_ms=NOW_MS + 1000)
    await asyncio.sleep(0)
    assert await log.find_by_time(NOW_MS + 1000) is None
    disk.flushes.set()
    assert later.done is not None
    await later.done
    found = await log.find_by_time(NOW_MS + 1000)
    assert found is not None
    assert found.last_offset == 1


class NotingDisk(RealDisk):
    """Notes which files are flushed."""

    def __init__(self) -> None:
        self.flushed: list[Path] = []

    def open(self, path: Path, *, create: bool = False) -> File:
        return _NotingFile(self, path, create=create)

    def sync(self, paths: Iterable[Path]) -> None:
        found = list(paths)
        self.flushed += found
        super().sync(found)


class _NotingFile(RealFile):
    def __init__(self, disk: NotingDisk, path: Path, *, create: bool) -> None:
        super().__init__(path, create=create)
        self._disk, self._path = disk, path

    def sync(self) -> None:
        self._disk.flushed.append(self._path)
        super().sync()


async def until(is_so: Callable[[], bool]) -> None:
    """Give the engine's work in the background its time."""
    while not is_so():  # noqa: ASYNC110  (it rings no bell)
        await asyncio.sleep(0.005)


def test_what_a_checkpoint_says_and_nobody_flushed_is_flushed_before_it_is_shown_as_durable(
    tmp_path: Path,
) -> None:
    before, after = tmp_path / "before", tmp_path / "after"

    async def write() -> int:
        store = SqliteStore(before / "metadata.sqlite")
        engine = FilesEngine(before, store, RealDisk(), boot=lambda: "one boot")
        await engine.start()
        log = await prepared(await engine.open(LOG, OS))
        for number in range(5):
            append(log, b"%d" % number)
        log.checkpoint()
        ledger = log.ledgers()[-1].ledger_id
        await until(index_path(before, ledger).exists)
        shutil.copytree(before, after)  # killed
        await engine.close()
        store.blocking.close()
        return ledger

    async def look() -> tuple[list[Path], list[bytes]]:
        disk, store = NotingDisk(), SqliteStore(after / "metadata.sqlite")
        engine = FilesEngine(after, store, disk, boot=lambda: "one boot")
        await engine.start()
        log = await prepared(await engine.open(LOG, ALWAYS))
        flushed, found = list(disk.flushed), await log.read(0, max_bytes=1 << 20)
        await engine.close()
        store.blocking.close()
        return flushed, [payload(entry) for entry in found]

    ledger = asyncio.run(write())
    flushed, found = asyncio.run(look())
    assert len(found) == 5
    assert ledger_path(after, ledger) in flushed


class NoRoomForIndexes(RealDisk):
    """Refuses to put files in place while it is full."""

    full = False

    def replace(self, files: Mapping[Path, Buffer]) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().replace(files)


async def test_a_ledger_that_could_not_be_sealed_is_sealed_later_and_then_goes(tmp_path: Path) -> None:
    disk = NoRoomForIndexes()
    engine = FilesEngine(tmp_path, MemoryStore(), disk)
    await engine.start()
    log = await prepared(await engine.open(LOG, LedgerPolicy(flush=Flush.always, retention_bytes=0)))
    await append_durably(log, b"old")
    disk.full = True
    await log.roll()
    await append_durably(log, b"new")
    assert not log.ledgers()[0].sealed
    await log.retain(NOW_MS)
    await until(lambda: not engine.shared.work._tasks)
    assert log.log_start_offset == 0
    disk.full = False
    await log.retain(NOW_MS)
    await until(lambda: log.ledgers()[0].sealed)
    await log.retain(NOW_MS)
    assert log.log_start_offset == 1
    await engine.close()


@pytest.mark.parametrize("scanned", range(40, 130, 3))
def test_a_whole_entry_behind_a_damaged_one_is_found_wherever_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scanned: int
) -> None:
    """The file is looked through in parts, and where an entry begins may lie across two of them."""

    async def fill(engine: FilesEngine) -> int:
        log = await engine.open(LOG, ALWAYS)
        for number in range(4):
            await append_durably(log, b"%d" % number)
        return log.ledgers()[-1].ledger_id

    ledger = with_engine(tmp_path, fill)
    content = bytearray(ledger_path(tmp_path, ledger).read_bytes())
    frame = len(content) // 4
    content[frame + FRAME_BYTES + 12] ^= 0xFF  # of the second, which is followed by a third and a fourth
    del content[3 * frame + frame // 2 :]
    ledger_path(tmp_path, ledger).write_bytes(content)
    monkeypatch.setattr(walk, "SCAN_BYTES", scanned)
    with pytest.raises(
        LedgerCorrupt, match=r"entry 1 at byte \d+ is damaged, and entry 2 behind it is whole"
    ):
        file = RealDisk().open(ledger_path(tmp_path, ledger))
        walk.scan(file, SparseIndex(ledger, 0), Path("it"), whole_until=0, may_have_holes=False)


async def test_with_flush_interval_what_is_written_is_flushed_by_itself(tmp_path: Path) -> None:
    disk = NotingDisk()
    engine = FilesEngine(tmp_path, MemoryStore(), disk, flush_interval_ms=20)
    await engine.start()
    policy = LedgerPolicy(flush=Flush.interval)
    logs = [await prepared(await engine.open(f"{LOG}{number}", policy)) for number in range(2)]
    for _ in range(2):
        disk.flushed.clear()
        for log in logs:
            append(log, b"value")
        paths = {ledger_path(tmp_path, log.ledgers()[-1].ledger_id) for log in logs}
        assert not paths & set(disk.flushed)
        await until(lambda paths=paths: paths <= set(disk.flushed))  # type: ignore[misc]
    await engine.close()


async def test_what_retention_lets_go_of_leaves_the_disk(tmp_path: Path) -> None:
    engine = FilesEngine(tmp_path, MemoryStore(), RealDisk())
    await engine.start()
    log = await engine.open(LOG, LedgerPolicy(flush=Flush.always, max_ledger_entries=3))
    for number in range(10):
        await append_durably(log, b"%d" % number)
    paths = [ledger_path(tmp_path, each.ledger_id) for each in log.ledgers()]
    assert all(path.exists() for path in paths)
    await until(lambda: all(each.sealed for each in log.ledgers()[:-1]))
    await log.trim(6)
    await until(lambda: not any(path.exists() for path in paths[:2]))
    assert [path.exists() for path in paths] == [False, False, True, True]
    await engine.close()


@pytest.mark.parametrize("turns", range(12))
async def test_a_deletion_goes_on_when_whoever_asked_is_cancelled(tmp_path: Path, turns: int) -> None:
    engine = FilesEngine(tmp_path, MemoryStore(), RealDisk())
    await engine.start()
    log = await prepared(await engine.open(LOG, ALWAYS))
    await append_durably(log, b"value")
    deleting = asyncio.ensure_future(engine.delete(LOG))
    for _ in range(turns + 1):
        await asyncio.sleep(0)
    deleting.cancel()
    await asyncio.wait([deleting])
    await engine.close()
    assert not list(tmp_path.rglob("*.ledger"))
    assert await engine.metadata.get(path_of(LOG)) is None


async def test_positions_of_a_log_grow_whichever_engine_has_it(tmp_path: Path) -> None:
    """Engines take ids in blocks: one that gets a log back would go on with lower ones than the other gave it."""
    store, places = MemoryStore(), []
    engines = [FilesEngine(tmp_path, store, RealDisk()) for _ in range(2)]
    for engine in engines:
        await engine.start()
    for turn in range(5):
        engine = engines[turn % 2]
        log = await engine.open(LOG, OS)
        places.append((await append_durably(log, b"value %d" % turn)).position)
        await log.roll()
        places.append((await append_durably(log, b"next to %d" % turn)).position)
        await engine.release(LOG)
    assert places == sorted(places)
    assert len({place.ledger_id for place in places}) > 5
    cursor = await (await (await engines[1].open(LOG, OS)).cursors()).open("s", Start.earliest)
    cursor.mark_delete(places[6])
    assert cursor.backlog() == 3
    assert [cursor.is_done_with(place) for place in places] == [True] * 7 + [False] * 3
    for engine in engines:
        await engine.close()
