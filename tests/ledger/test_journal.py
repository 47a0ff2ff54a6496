"""The journal's own file: what is found in it after any end, and when it refuses to guess."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from magnetar.ledger.errors import LedgerCorrupt, StorageFailed
from magnetar.ledger.files import journal as journal_module
from magnetar.ledger.files.disk import BLOCK_BYTES, JournalFile
from magnetar.ledger.files.journal import Journal
from magnetar.ledger.files.journal_rounds import journaled, records_of
from magnetar.ledger.memory import MemoryDisk

PATH = Path("/d/journal/0000.journal")


class KeptJournalFile(JournalFile):
    """Keeps what was written, as the memory engine need not."""

    def __init__(self, data: bytearray) -> None:
        self._data = data

    def write(self, data: memoryview, at: int) -> None:
        self._data[at : at + len(data)] = data

    def close(self) -> None: ...


class KeepingDisk(MemoryDisk):
    def __init__(self) -> None:
        super().__init__()
        self.journals: dict[Path, bytearray] = {}
        self.fails = False

    def open_journal(self, path: Path, size: int) -> JournalFile:
        return KeptJournalFile(self.journals.setdefault(path, bytearray(size)))

    def sync(self, paths: object) -> None:
        if self.fails:
            raise OSError(5, "I/O error")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", 8 * BLOCK_BYTES)
    monkeypatch.setattr(journal_module, "ROUND_BYTES", 4 * BLOCK_BYTES)


async def write(disk: KeepingDisk, sizes: list[int], *, first_use: int = 1) -> Journal:
    """Write rounds of one frame each, waiting for every one."""
    with ThreadPoolExecutor(1) as threads:
        return await written(Journal(Path("/d"), disk, threads.submit, first_use=first_use), sizes)


async def written(journal: Journal, sizes: list[int]) -> Journal:
    for number, size in enumerate(sizes):
        marks: list[int] = []
        await journal.append(7, number, size, [bytes([number]) * size], marks.append, number)
        assert marks == [number]
    await journal.close()
    return journal


def frames(disk: KeepingDisk, *, clean_use: int = 0) -> tuple[int, list[tuple[int, int]]]:
    use, rounds = journaled(memoryview(disk.journals[PATH]), PATH, clean_use=clean_use)
    return use, [(record.at, len(record.frames)) for record in records_of(rounds, PATH)]


async def test_frames_come_back_in_order() -> None:
    disk = KeepingDisk()
    await write(disk, [10, 5000, 1])
    assert frames(disk) == (1, [(0, 10), (1, 5000), (2, 1)])


async def test_a_torn_last_round_is_left_out() -> None:
    disk = KeepingDisk()
    await write(disk, [10, 5000])
    disk.journals[PATH][2 * BLOCK_BYTES + 4500] ^= 1
    assert frames(disk) == (1, [(0, 10)])


@pytest.mark.parametrize("spot", [0, 30, BLOCK_BYTES + 3, BLOCK_BYTES + 40])
async def test_damage_before_a_whole_round_is_refused(spot: int) -> None:
    disk = KeepingDisk()
    await write(disk, [3000, 5000])
    disk.journals[PATH][spot] ^= 1
    if spot == 30:  # behind the opening round's 28 bytes there is nothing
        assert len(frames(disk)[1]) == 2
        return
    with pytest.raises(LedgerCorrupt, match=r"0000\.journal: round") as caught:
        frames(disk)
    assert caught.value.at == spot // BLOCK_BYTES * BLOCK_BYTES
    assert frames(disk, clean_use=1)[1] in ([], [(0, 3000)])  # nobody needs this use any more


async def test_a_torn_first_round_is_told_from_the_use_before() -> None:
    disk = KeepingDisk()
    await write(disk, [3000] * 6)
    old = bytes(disk.journals[PATH])
    await write(disk, [5000], first_use=2)
    now = disk.journals[PATH]
    now[BLOCK_BYTES : 2 * BLOCK_BYTES] = old[BLOCK_BYTES : 2 * BLOCK_BYTES]  # half of its blocks never came
    assert frames(disk, clean_use=0) == (2, [])


async def test_segments_take_turns_behind_a_flush() -> None:
    disk = KeepingDisk()
    journal = await write(disk, [3000] * 40)
    assert journal.use == 6
    assert len(disk.journals) <= 3


async def test_what_is_larger_than_a_round_goes_around_the_journal() -> None:
    disk = KeepingDisk()
    await write(disk, [10, 100_000, 20])
    assert frames(disk) == (1, [(0, 10), (2, 20)])


async def test_a_failed_flush_ends_all_promises() -> None:
    disk = KeepingDisk()
    disk.fails = True
    with pytest.raises(StorageFailed, match="only a restart can tell"):
        await write(disk, [3000] * 40)


class GatedDisk(KeepingDisk):
    """Flushes ledgers only when it may; makes ``segments`` at most, then there is ``error``."""

    def __init__(self, segments: int = 99, error: int = errno.ENOSPC) -> None:
        super().__init__()
        self.error = error
        self.may_flush = threading.Event()
        self.left = segments
        self.asked = 0

    def open_journal(self, path: Path, size: int) -> JournalFile:
        self.asked += 1
        if not self.left:
            raise OSError(self.error, os.strerror(self.error))
        self.left -= 1
        return super().open_journal(path, size)

    def sync(self, paths: object) -> None:
        assert self.may_flush.wait(20)


async def test_while_ledgers_are_flushed_their_segments_are_not_written_again() -> None:
    """What a segment holds is all there is of it until then; each has a file of its own."""
    disk = GatedDisk()
    with ThreadPoolExecutor(8) as threads:
        journal = Journal(Path("/d"), disk, threads.submit)
        for number in range(20):
            await journal.append(number, 0, 3000, [bytes([number]) * 3000], lambda _: None, 0)
        assert len(disk.journals) == 3
        found = []
        for path in disk.journals:
            _, rounds = journaled(memoryview(disk.journals[path]), path, clean_use=0)
            found += [(record.ledger_id, bytes(record.frames)) for record in records_of(rounds, path)]
        assert sorted(found) == [(number, bytes([number]) * 3000) for number in range(20)]
        disk.may_flush.set()
        await journal.close()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE])
async def test_without_room_for_a_segment_ledgers_are_flushed_and_it_is_tried_again_after_a_second(
    monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    loop, moved = asyncio.get_running_loop(), [0.0]
    real = loop.time
    monkeypatch.setattr(loop, "time", lambda: real() + moved[0])
    disk = GatedDisk(segments=0, error=error)
    disk.may_flush.set()
    with ThreadPoolExecutor(8) as threads:
        journal = Journal(Path("/d"), disk, threads.submit)

        async def append() -> None:
            await journal.append(7, 0, 3000, [bytes(3000)], lambda _: None, 0)

        for _ in range(5):
            await append()
        assert (disk.asked, disk.journals) == (1, {})
        moved[0] = 60.0
        await append()
        assert disk.asked == 2
        moved[0], disk.left = 120.0, 1
        await append()
        await append()
        assert (disk.asked, len(disk.journals)) == (3, 1)
        await journal.close()
