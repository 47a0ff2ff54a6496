"""Partitions that nobody uses are closed, and go on where they were when somebody asks for them again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from magnetar.kafka.partitions.partition import Partition
from magnetar.kafka.partitions.registry import Partitions
from magnetar.ledger.errors import LedgerClosed
from magnetar.pulsar import topics as pulsar_topics
from magnetar.pulsar.topics import PulsarTopics
from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.records.check import check_batch
from tests.admin.house import House, wall_clock_ms


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with House(tmp_path / "data") as made:
        yield made


def registry(house: House) -> Partitions:
    return house.services.partitions


def batch(sequence: int, records: int = 3) -> bytes:
    rows = [PlainRecord(b"k", b"v", (), wall_clock_ms()) for _ in range(records)]
    return bytes(encode_batch(rows, producer_id=7, producer_epoch=0, base_sequence=sequence))


async def produce(house: House, partition: Partition, data: bytes) -> None:
    durable = house.begin_append(partition, data)
    if durable is not None:
        await durable


async def twice(house: House) -> None:
    """Nobody asks in between: what was used before the first time goes the second."""
    await registry(house).let_go()
    await registry(house).let_go()


async def test_a_log_is_not_told_to_a_partition_that_let_go_of_it(house: House) -> None:
    partition = await house.topic()
    log = partition.log
    before = len(log.on_taken_back)
    partition.let_go_of_log()
    assert len(log.on_taken_back) == before - 1
    assert log.on_moved is None
    partition.let_go_of_log()  # which may come twice


async def test_it_goes_on_where_it_was(house: House) -> None:
    """Offsets, records and producers' sequences: what is sent twice is stored once, across the closing too."""
    partition = await house.topic()
    log = partition.log
    for sequence in (0, 3, 6):
        await produce(house, partition, batch(sequence))
    await twice(house)
    assert registry(house).opened("t", partition.topic.topic_id, 0) is None
    assert registry(house).opened("", partition.topic.topic_id, 0) is None
    assert log not in house.services.broker.engine.opened()
    with pytest.raises(LedgerClosed):
        house.begin_append(partition, batch(9))
    again = await registry(house).get(partition.topic, 0)
    assert again is not partition
    assert (again.log.log_end_offset, again.log.high_watermark) == (9, 9)
    (repeated,) = [again.producers.check(check_batch(memoryview(batch(6))))]
    assert repeated is not None
    assert repeated.base_offset == 6
    await produce(house, again, batch(9))
    batches, _ = await again.read(0, 1 << 20)
    assert len(batches) == 4
    assert again.log.log_end_offset == 12


async def test_whoever_is_used_stays(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = {name: await house.topic(name) for name in ("asked", "parked", "watched", "gone")}
    compacted = await house.topic("compacted", cleanup_policy="compact")
    pulsar = PulsarTopics(house.services.broker, wall_clock_ms)
    await pulsar.open(topics["watched"].topic, 0)
    topics["parked"].wait(lambda: None)
    await registry(house).let_go()
    registry(house).opened("asked", topics["asked"].topic.topic_id, 0)
    await registry(house).let_go()
    left = {each.topic.kafka_name for each in registry(house).all_open()}
    assert {"asked", "parked", "watched", "compacted"} <= left
    assert "gone" not in left
    assert compacted in registry(house).all_open()
    monkeypatch.setattr(pulsar_topics, "_UNUSED_S", -1.0)
    await pulsar._sweep()  # Pulsar's side lets go of its own, and of no log that Kafka's has
    await pulsar._sweep()
    assert not pulsar.all_open()
    assert topics["watched"].log in house.services.broker.engine.opened()
    await twice(house)
    assert topics["watched"].log not in house.services.broker.engine.opened()
    await pulsar.close()


async def test_what_only_pulsars_clients_opened_is_closed(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = house.services.broker
    made = await broker.create_topic("p", 3)
    pulsar = PulsarTopics(broker, wall_clock_ms)
    logs = [(await pulsar.open(made, index)).log for index in range(3)]
    monkeypatch.setattr(pulsar_topics, "_UNUSED_S", -1.0)
    await pulsar._sweep()
    await pulsar._sweep()
    assert not {id(log) for log in logs} & {id(log) for log in broker.engine.opened()}
    await pulsar.close()


@pytest.mark.parametrize("ask", ["open", "delete"])
async def test_who_asks_for_one_while_it_is_closed_waits(
    house: House, monkeypatch: pytest.MonkeyPatch, ask: str
) -> None:
    partition = await house.topic()
    await produce(house, partition, batch(0))
    engine: Any = house.services.broker.engine
    held, close_some = asyncio.Event(), engine.close_some

    async def slowly(some: Any) -> bool:
        for each in some:
            each.stop()
        await held.wait()
        return bool(await close_some(some))

    monkeypatch.setattr(engine, "close_some", slowly)
    closing = asyncio.ensure_future(twice(house))
    while not engine._going:  # noqa: ASYNC110
        await asyncio.sleep(0)
    what: Callable[[], Any] = (
        (lambda: registry(house).get(partition.topic, 0))
        if ask == "open"
        else (lambda: engine.delete(partition.log.name))
    )
    asked = asyncio.ensure_future(what())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not asked.done()
    held.set()
    await closing
    found = await asked
    if ask == "open":
        await produce(house, found, batch(3))
        assert found.log.log_end_offset == 6
    else:
        assert await engine.summaries(partition.log.name) == []
