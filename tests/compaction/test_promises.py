"""What compaction leaves alone: what is past the horizon, too young, not durable, or leased; and what it keeps once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from magnetar.ledger.cursors.cursor import Start
from magnetar.ledger.files.disk import File, RealDisk
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.files.leases import HeldLease
from magnetar.ledger.files.streams import LedgerFileWriter
from magnetar.ledger.formats.layout import ledger_path
from magnetar.ledger.port import CompactionRules, Flush, LedgerPolicy, LedgerSummary, ManagedLedger
from magnetar.metadata import MemoryStore
from magnetar.pulsar.dispatch.acknowledgements import Acknowledgements
from magnetar.pulsar.dispatch.deliveries import Deliveries
from magnetar.pulsar.dispatch.reading import Readings, SubscriptionReader, UnackedLimits
from magnetar.records.batch import PlainRecord, decode_records, encode_batch
from magnetar.records.compression import Codec
from magnetar.records.conversion import kafka_batch
from magnetar.records.entry import kafka_message_head
from tests.admin.house import House, SickDisk
from tests.compaction.test_properties import KAFKA, NAME, NOW_MS, PULSAR, World
from tests.ledger.entries import prepared

POLICY = LedgerPolicy(flush=Flush.always, max_ledger_entries=3)


async def compacted_records(log: ManagedLedger) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return (offset, key, value) of what who reads the compacted form gets."""
    offset, found = 0, []
    while entries := await log.read_compacted(offset, max_bytes=1 << 20):
        for entry in entries:
            found += [(each.offset, each.key, each.value) for each in decode_records(kafka_batch(entry.data))]
        offset = entries[-1].last_offset + 1
    return found


@pytest.mark.parametrize("rules", [PULSAR, KAFKA], ids=["pulsar", "kafka"])
async def test_each_key_is_copied_once_though_the_map_holds_few(rules: CompactionRules) -> None:
    world = World()
    await world.open()
    for number in range(200):
        await world.append([(b"key %d" % (number % 100), b"%d" % number)], Codec.none, pulsar=False)
    await world.log.roll()
    await world.log.compact(rules)
    compacted: Any = world.log.ledger_list.info.compacted  # type: ignore[attr-defined]
    assert compacted.ledger.last_offset <= compacted.horizon_offset
    assert compacted.ledger.entries == 100
    offsets = [offset for offset, _, _ in await compacted_records(world.log)]
    assert offsets == list(range(100, 200))
    assert world.engine is not None
    await world.engine.close()


async def test_a_tombstone_is_kept_by_the_first_compaction_even_where_it_need_not_stay() -> None:
    world = World()
    await world.open()
    rules = CompactionRules(replaces=True, tombstones_ms=0, buffer_bytes=1 << 16)
    await world.append([(b"k", b"value")], Codec.none, pulsar=False)
    await world.append([(b"k", None)], Codec.none, pulsar=False)
    await world.log.roll()
    await world.log.compact(rules)
    assert await compacted_records(world.log) == [(1, b"k", None)]
    world.now_ms += 10
    await world.append([(b"other", b"value")], Codec.none, pulsar=False)
    await world.log.roll()
    await world.log.compact(rules)
    assert await compacted_records(world.log) == [(2, b"other", b"value")]
    assert world.engine is not None
    await world.engine.close()


async def test_the_least_age_is_that_of_the_newest_record_of_a_ledger() -> None:
    world = World()
    await world.open()
    rules = CompactionRules(replaces=True, min_age_ms=1000, buffer_bytes=1 << 16)
    await world.append([(b"k", b"1")], Codec.none, pulsar=False)
    world.now_ms += 900
    await world.append([(b"k", b"2")], Codec.none, pulsar=False)
    await world.log.roll()
    world.now_ms += 600
    assert world.log.dirty_bytes(rules)[1] == 0
    assert not await world.log.compact(rules)
    world.now_ms += 401
    assert await world.log.compact(rules)
    assert world.engine is not None
    await world.engine.close()


async def test_a_time_is_found_among_copies_too() -> None:
    world = World()
    await world.open()
    for number in range(40):
        await world.append([(b"%d" % (number % 20), b"%d" % number)], Codec.none, pulsar=False)
    await world.log.roll()
    assert await world.log.compact(KAFKA)
    for wanted in range(40):
        found = await world.log.find_first(lambda entry: entry.last_offset >= wanted)  # noqa: B023
        assert found is not None
        assert found.last_offset == max(wanted, 20)
    assert world.engine is not None
    await world.engine.close()


async def test_who_reads_from_the_start_gets_copies_that_are_older_than_the_history() -> None:
    world = World()
    await world.open()
    for number in range(21):
        await world.append([(b"%d" % (number and 1 + number % 5), b"%d" % number)], Codec.none, pulsar=False)
    await world.log.roll()
    assert await world.log.compact(PULSAR)
    await world.append([(b"new", b"21")], Codec.none, pulsar=False)
    world.log.policy = replace(POLICY, retention_bytes=0)
    await world.log.retain(world.now_ms)
    assert world.log.log_start_offset > 16
    cursor = await (await world.log.cursors()).open("c", Start.earliest)
    readings = Readings(world.log, Deliveries(1 << 20), lambda: world.now_ms, UnackedLimits(0, 0))
    acks = Acknowledgements(world.log, cursor, "c", readings.turns, within_batches=True)
    reader = SubscriptionReader(readings, cursor, acks)
    while await reader.fetch(compacted=True):
        pass
    assert [each.last_offset for each in reader.ahead] == [0, 16, 17, 18, 19, 20, 21]
    assert world.engine is not None
    await world.engine.close()


class NotingDisk(RealDisk):
    """Notes, in order, which files are made and which are flushed."""

    def __init__(self) -> None:
        self.noted: list[tuple[str, Path]] = []

    def open(self, path: Path, *, create: bool = False) -> File:
        if create and not path.exists():
            self.noted.append(("made", path))
        return super().open(path, create=create)

    def sync(self, paths: Iterable[Path]) -> None:
        found = list(paths)
        self.noted += [("flushed", path) for path in found]
        super().sync(found)


def append(log: ManagedLedger, key: bytes, value: bytes) -> Any:
    batch = encode_batch([PlainRecord(key, value, (), NOW_MS)], base_offset=log.log_end_offset)
    return log.append([kafka_message_head(NOW_MS, 1), batch], messages=1, timestamp_ms=NOW_MS)


async def test_originals_are_flushed_before_they_are_copied(tmp_path: Path) -> None:
    disk = NotingDisk()
    engine = FilesEngine(tmp_path, MemoryStore(), disk)
    await engine.start()
    log = await prepared(await engine.open(NAME, LedgerPolicy(flush=Flush.os)))
    append(log, b"k", b"1")
    append(log, b"k", b"2")
    original = ledger_path(tmp_path, log.ledgers()[0].ledger_id)
    disk.noted.clear()
    assert await log.compact(PULSAR)
    flushed = disk.noted.index(("flushed", original))
    made = next(at for at, (what, path) in enumerate(disk.noted) if what == "made" and path != original)
    assert flushed < made, "a copy could outlive the loss of its original"
    await engine.close()


async def test_what_is_not_durable_is_not_compacted(tmp_path: Path) -> None:
    disk = SickDisk()
    engine = FilesEngine(tmp_path, MemoryStore(), disk)
    await engine.start()
    log = await prepared(await engine.open(NAME, LedgerPolicy(flush=Flush.always)))
    await append(log, b"k", b"durable").done
    disk.flushes.clear()
    later = append(log, b"k", b"not yet")
    await asyncio.sleep(0)
    await log.compact(PULSAR)
    compacted: Any = log.ledger_list.info.compacted
    assert compacted.horizon_offset == 0
    disk.flushes.set()
    await later.done
    await engine.close()


async def test_a_lease_taken_while_it_runs_keeps_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = FilesEngine(tmp_path, MemoryStore(), RealDisk())
    await engine.start()
    log = await prepared(await engine.open(NAME, POLICY))
    for number in range(6):
        await append(log, b"k", b"%d" % number).done
    await log.roll()
    seal, leases = LedgerFileWriter.seal, []

    async def leased_meanwhile(writer: LedgerFileWriter) -> LedgerSummary:
        leases.append(HeldLease(tmp_path, {NAME: 0}))
        return await seal(writer)

    monkeypatch.setattr(LedgerFileWriter, "seal", leased_meanwhile)
    await log.compact(KAFKA)
    assert leases
    assert log.ledger_list.info.compacted is None
    assert len(await log.read(0, max_bytes=1 << 20)) == 3
    leases[0].release()
    monkeypatch.undo()
    await log.compact(KAFKA)
    assert log.ledger_list.info.compacted is not None
    await engine.close()


async def test_a_log_that_is_only_compacted_loses_nothing_to_retention(tmp_path: Path) -> None:
    async with House(tmp_path / "data", log_cleaner_enable="false") as house:
        partitions = [
            await house.topic(name, cleanup_policy=policy, retention_bytes="0", retention_ms="0")
            for name, policy in (("a", "compact"), ("b", "delete"), ("c", "compact,delete"))
        ]
        for partition in partitions:
            await house.produce(partition)
            await partition.log.roll()
            await house.produce(partition)
        await house.duties.retention.retain()
        assert [partition.log.log_start_offset > 0 for partition in partitions] == [False, True, True]


async def test_others_have_their_turn_after_each_log_that_retention_looks_at(tmp_path: Path) -> None:
    async with House(tmp_path / "data") as house:
        for number in range(20):
            await house.topic(f"t{number}")
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count_turns())
        await house.duties.retention.retain()
        counting.cancel()
        assert turns >= 40, "20 topics are looked at, and 20 logs"


async def test_records_age_in_partitions_that_nobody_has_opened(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with House(data) as house:
        for name, retention_ms in (("old", "1"), ("young", "3600000")):
            partition = await house.topic(name, retention_ms=retention_ms)
            await house.produce(partition)
            await partition.log.roll()
            await house.produce(partition)
    await asyncio.sleep(0.01)
    async with House(data) as house:
        await house.duties.retention.retain()
        found = {
            each.topic.kafka_name: each.log.log_start_offset for each in house.services.partitions.all_open()
        }
        assert set(found) == {"old"}
        assert found["old"] >= 10
