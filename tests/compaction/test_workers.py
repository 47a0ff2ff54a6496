"""The process that compacts does what a thread does, and its end is a compaction that failed, not a broker."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from magnetar.ledger.compaction import workers as compaction_workers
from magnetar.ledger.compaction.job import Copies, Job
from magnetar.ledger.compaction.workers import CompactionWorkers
from magnetar.ledger.errors import LedgerCorrupt, LedgerError
from magnetar.ledger.files.disk import RealDisk
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.port import CompactionRules, StoredEntry
from magnetar.metadata import MemoryStore
from magnetar.records.compression import Codec
from tests.compaction.test_promises import POLICY, append, compacted_records
from tests.compaction.test_properties import KAFKA, NAME, NOW_MS, PULSAR, World

JOB = Job(CompactionRules(tombstones_ms=1000), 1000, 0, NOW_MS)


async def entries(pulsar: bool) -> list[StoredEntry]:
    """Sixty entries of twelve keys, some of them deleted."""
    world = World()
    await world.open()
    for number in range(60):
        value = b"%d" % number if number % 7 else None
        await world.append([(b"k%d" % (number % 12), value), (b"x", b"1")], Codec.lz4, pulsar=pulsar)
    found = list(await world.log.read(0, max_bytes=1 << 20))
    while len(found) < 60:
        found += await world.log.read(found[-1].last_offset + 1, max_bytes=1 << 20)
    return found


def plain(copies: Copies) -> tuple[object, ...]:
    rows = [(bytes(data), last, latest) for data, last, latest in copies.entries]
    return rows, copies.origins, copies.removed, copies.complaints


@pytest.fixture
async def workers() -> CompactionWorkers:
    made = FilesEngine(Path("/nowhere"), MemoryStore(), RealDisk()).shared.workers
    yield made
    made.close()


@pytest.mark.parametrize("pulsar", [True, False])
async def test_the_process_copies_what_the_thread_does(workers: CompactionWorkers, pulsar: bool) -> None:
    given, done = await entries(pulsar), []
    for worker in (workers.thread, workers.process):
        await worker.begin(JOB)
        noted = [await worker.note(given[:40]), await worker.note(given[40:])]
        first = await worker.copy(given, are_copies=False)
        again = [
            StoredEntry(9, n, entry.last_offset, memoryview(entry.data))
            for n, entry in enumerate(first.entries)
        ]
        second = await worker.copy(again, are_copies=True)
        done.append((noted, plain(first), plain(second)))
        await worker.end()
    assert done[0] == done[1]
    assert done[0][0] == [40, 20]
    assert 12 <= len(first.entries) < 60


async def test_a_full_map_is_told_of(workers: CompactionWorkers) -> None:
    given = await entries(pulsar=False)
    for worker in (workers.thread, workers.process):
        await worker.begin(Job(CompactionRules(buffer_bytes=24 * 10), 1000, 0, NOW_MS))
        assert 0 < await worker.note(given) < 60


async def test_damage_is_said_as_it_is(workers: CompactionWorkers) -> None:
    (entry, *_) = await entries(pulsar=False)
    for worker in (workers.thread, workers.process):
        await worker.begin(JOB)
        with pytest.raises(LedgerCorrupt, match="does not say whence it came"):
            await worker.copy([entry], are_copies=True)


async def test_a_killed_process_is_a_failed_compaction_and_the_next_one_has_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction_workers, "LARGE_BYTES", 0)
    engine = FilesEngine(tmp_path, MemoryStore(), RealDisk())
    await engine.start()
    log = await engine.open(NAME, POLICY)
    for number in range(9):
        await append(log, b"k", b"%d" % number).done  # what is not durable yet is not compacted
    await log.roll()
    worker = engine.shared.workers.process
    note = worker.note

    async def killed(given: list[StoredEntry]) -> int:
        assert worker._process is not None
        os.kill(worker._process.pid, signal.SIGKILL)
        return await note(given)

    worker.note = killed  # type: ignore[method-assign, assignment]
    with pytest.raises(LedgerError, match="the process that compacts is gone"):
        await log.compact(KAFKA)
    assert log.compacted is None
    worker.note = note  # type: ignore[method-assign]
    assert await log.compact(KAFKA)
    assert await compacted_records(log) == [(8, b"k", b"8")]
    assert await log.compact(PULSAR) is False
    process = worker._process
    assert process is not None
    assert process.poll() is None, "it waits for the next one"
    await engine.close()
    assert process.poll() is not None, "no process is left behind"
