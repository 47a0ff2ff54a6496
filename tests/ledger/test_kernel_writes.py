"""Writes that the kernel carries out by itself: they arrive, fail aloud, and give way to threads where they must."""

from __future__ import annotations

import asyncio
import errno
import mmap
import os
import resource
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from magnetar.ledger.errors import StorageFailed
from magnetar.ledger.files import kernel_writes
from magnetar.ledger.files.disk import BLOCK_BYTES, RealDisk
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.files.journal_rounds import journaled, records_of
from magnetar.ledger.files.kernel_writes import KernelWrites
from magnetar.ledger.port import Flush, LedgerPolicy
from magnetar.metadata import MemoryStore
from tests.ledger.entries import prepared

FRAMES = [bytes([number]) * (number * 700 + 1) for number in range(60)]


@pytest.fixture
async def writes(tmp_path: Path) -> AsyncIterator[KernelWrites]:
    found = KernelWrites.open_for(asyncio.get_running_loop())
    if found is None:
        pytest.skip("this system has no AIO")
    try:
        with direct_file(tmp_path / "probe"):
            pass
    except OSError as error:
        found.close()
        pytest.skip(f"no direct writes here: {error}")
    yield found
    found.close()


def blocks(*fill: int) -> memoryview:
    room = memoryview(mmap.mmap(-1, BLOCK_BYTES * len(fill)))
    room[:] = b"".join(bytes([each]) * BLOCK_BYTES for each in fill)
    return room


async def end_of(
    writes: KernelWrites, file: int, data: memoryview, at: int, then: Callable[[], object] = lambda: None
) -> OSError | None:
    ended: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
    assert writes.begin(file, data, at, ended.set_result)
    then()
    return await asyncio.wait_for(ended, 30)


@contextmanager
def direct_file(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT | os.O_DSYNC, 0o644)
    try:
        yield file
    finally:
        os.close(file)


async def test_what_is_written_is_there(writes: KernelWrites, tmp_path: Path) -> None:
    with direct_file(tmp_path / "f") as file:
        assert await end_of(writes, file, blocks(1, 2), BLOCK_BYTES) is None
        assert await end_of(writes, file, blocks(3), 0) is None
    assert (tmp_path / "f").read_bytes() == bytes(blocks(3, 1, 2))


async def test_only_one_is_under_way(writes: KernelWrites, tmp_path: Path) -> None:
    with direct_file(tmp_path / "f") as file:
        refused: list[bool] = []

        def another() -> None:
            refused.append(writes.begin(file, blocks(2), 0, lambda error: None))

        assert await end_of(writes, file, blocks(1), 0, another) is None
        assert refused == [False]
    assert (tmp_path / "f").read_bytes() == bytes(blocks(1))


async def test_a_file_that_takes_no_writes_is_refused_at_once(writes: KernelWrites, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"")
    file = os.open(tmp_path / "f", os.O_RDONLY)
    assert not writes.begin(file, blocks(1), 0, lambda error: None)
    os.close(file)
    assert not writes.begin(file, blocks(1), 0, lambda error: None)


@pytest.mark.parametrize("whole", [0, 2])
async def test_a_write_that_ends_half_way_goes_on_and_says_why_it_cannot(
    writes: KernelWrites, tmp_path: Path, whole: int
) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with direct_file(tmp_path / "f") as file:
        resource.setrlimit(resource.RLIMIT_FSIZE, (whole * BLOCK_BYTES, before[1]))
        try:
            error = await end_of(writes, file, blocks(1, 2, 3), 0)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert error is not None
    assert error.errno == errno.EFBIG
    assert (tmp_path / "f").read_bytes() == bytes(blocks(1, 2, 3)[: whole * BLOCK_BYTES])


async def test_a_file_system_that_makes_the_loop_wait_gets_no_more(
    writes: KernelWrites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kernel_writes, "_SLOW_S", -1.0)
    with direct_file(tmp_path / "f") as file:
        for _ in range(kernel_writes._MAX_SLOW):
            assert await end_of(writes, file, blocks(1), 0) is None
        assert not writes.begin(file, blocks(1), 0, lambda error: None)
    assert "makes AIO wait" in caplog.text


async def test_a_machine_without_it_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_writes, "_CALLS", {})
    assert KernelWrites.open_for(asyncio.get_running_loop()) is None


class ThreadsOnly(RealDisk):
    def kernel_writes(self, loop: asyncio.AbstractEventLoop) -> None: ...


class Refusing(KernelWrites):
    def begin(self, file: int, data: memoryview, at: int, ended: Callable[[OSError | None], None]) -> bool:
        return False


class Failing(KernelWrites):
    def begin(self, file: int, data: memoryview, at: int, ended: Callable[[OSError | None], None]) -> bool:
        self._loop.call_soon(ended, OSError(errno.EIO, os.strerror(errno.EIO)))
        return True


class RefusingDisk(RealDisk):
    def kernel_writes(self, loop: asyncio.AbstractEventLoop) -> KernelWrites | None:
        return Refusing.open_for(loop)


class FailingDisk(RealDisk):
    def kernel_writes(self, loop: asyncio.AbstractEventLoop) -> KernelWrites | None:
        return Failing.open_for(loop)


@pytest.mark.parametrize("disk", [RealDisk, ThreadsOnly, RefusingDisk])
async def test_the_journal_holds_all_that_was_acknowledged(disk: type[RealDisk], tmp_path: Path) -> None:
    engine = FilesEngine(tmp_path, MemoryStore(), disk())
    await engine.start()
    log = await prepared(await engine.open("t", LedgerPolicy(flush=Flush.always)))
    for some in range(0, len(FRAMES), 6):
        appended = [log.append([frame], messages=1, timestamp_ms=0).done for frame in FRAMES[some : some + 6]]
        for durable in appended:
            assert durable is not None
            await durable
        assert log.high_watermark == some + 6
    rounds = [
        records
        for path in sorted((tmp_path / "journal").iterdir())
        for records in journaled(memoryview(path.read_bytes()), path, clean_use=0)[1]
    ]
    kept = [bytes(record.frames) for record in records_of(rounds, tmp_path)]
    assert len(kept) == len(FRAMES)
    assert all(frame in record for frame, record in zip(FRAMES, kept, strict=True))
    await engine.close()


async def test_closing_waits_for_what_the_kernel_writes(tmp_path: Path) -> None:
    engine = FilesEngine(tmp_path, MemoryStore(), RealDisk())
    await engine.start()
    log = await prepared(await engine.open("t", LedgerPolicy(flush=Flush.always)))
    await log.append([b"first"], messages=1, timestamp_ms=0).done  # type: ignore[misc]
    durable = [log.append([frame], messages=1, timestamp_ms=0).done for frame in FRAMES]
    await engine.close()
    assert all(each is not None and each.done() and each.exception() is None for each in durable)


@pytest.mark.usefixtures("writes")
async def test_a_write_that_the_kernel_could_not_do_ends_all_promises(tmp_path: Path) -> None:
    engine = FilesEngine(tmp_path, MemoryStore(), FailingDisk())
    await engine.start()
    log = await prepared(await engine.open("t", LedgerPolicy(flush=Flush.always)))
    with pytest.raises(StorageFailed, match="only a restart can tell"):
        for _ in range(3):  # the first of a segment is written by a thread
            durable = log.append([b"x"], messages=1, timestamp_ms=0).done
            assert durable is not None
            await durable
    with pytest.raises(StorageFailed, match="only a restart can tell"):
        log.append([b"x"], messages=1, timestamp_ms=0)
    await engine.close()
