"""What a topic knows of producers outlives a crash, though compaction or retention took the entries that told it."""

from __future__ import annotations

import pytest

from magnetar.broker.names import TopicName
from magnetar.broker.topic import Topic
from magnetar.ledger.errors import StorageFailed
from magnetar.ledger.memory import MemoryEngine
from magnetar.ledger.port import CompactionRules, Flush, LedgerPolicy
from magnetar.metadata import MemoryStore
from magnetar.pulsar.deduplication import Deduplication
from magnetar.pulsar.dispatch.deliveries import Conversions
from magnetar.pulsar.dispatch.reading import Limits
from magnetar.pulsar.topic import PulsarTopic
from tests.pulsar.raw import entry

KAFKA = CompactionRules(replaces=True, tombstones_ms=1000)


class House:
    """A partition that deduplicates, in memory; what is kept of it is what a crash leaves."""

    async def open(self) -> None:
        self.store = MemoryStore()
        engine = MemoryEngine(self.store, clock=lambda: 1000)
        await engine.start()
        policy = LedgerPolicy(flush=Flush.os, max_ledger_entries=2)
        self.log = await engine.open("public/default/persistent/t", policy)
        self.topic = PulsarTopic(
            Topic(TopicName("public", "default", "t"), "t", bytes(16), 1), 0, self.log, self.store,
            Conversions(1 << 20), Limits(0, 0), lambda: 1000, deduplicates=True,
        )  # fmt: skip
        await self.topic.load()

    def send(self, producer: str, first: int, last: int) -> None:
        dedup = self.topic.dedup
        assert dedup is not None
        for number in range(first, last):
            message = entry(b"v", producer_name=producer, sequence_id=number, partition_key="k")
            appended = self.log.append((message,), messages=1, timestamp_ms=1000)
            dedup.note(producer, number)
            dedup.stored(appended.position, producer, number)

    async def after_a_crash(self) -> dict[str, int]:
        found = Deduplication(self.log, self.store, lambda: 1000)
        await found.load()
        return {name: found.last_sequence_id(name) for name in ("a", "b")}


@pytest.fixture
async def house() -> House:
    made = House()
    await made.open()
    return made


async def test_it_is_kept_before_compaction_takes_entries_away(house: House) -> None:
    house.send("a", 0, 5)
    house.send("b", 0, 6)  # of the same key: nothing of a's is left
    await house.log.roll()
    assert await house.log.compact(KAFKA)
    left = await house.log.read(house.log.first_offset, max_bytes=1 << 20)
    assert len(left) == 1
    assert await house.after_a_crash() == {"a": 4, "b": 5}


async def test_it_is_kept_too_before_history_that_was_compacted_goes(house: House) -> None:
    house.send("a", 0, 5)
    house.send("b", 0, 6)
    await house.log.roll()
    await house.log.compact(CompactionRules())
    assert await house.log.compact(KAFKA)
    assert await house.after_a_crash() == {"a": 4, "b": 5}


async def test_where_it_cannot_be_kept_nothing_is_taken_away(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.send("a", 0, 5)
    house.send("b", 0, 6)
    await house.log.roll()

    def fail() -> None:
        raise StorageFailed("no room")

    assert house.topic.dedup is not None
    monkeypatch.setattr(house.topic.dedup, "save", fail)
    with pytest.raises(StorageFailed):
        await house.log.compact(KAFKA)
    assert not any(each.compacted for each in house.log.ledgers())
    monkeypatch.undo()
    assert await house.log.compact(KAFKA), "the next time it can be"
    assert await house.after_a_crash() == {"a": 4, "b": 5}


async def test_retention_may_take_the_place_away(house: House) -> None:
    """Retention takes sealed ledgers; what was kept of those that are gone still counts."""
    house.send("a", 0, 5)
    house.topic.save()
    place = house.topic.places.last()
    for _ in range(4):
        house.log.append((entry(b"v", producer_name="z"),), messages=1, timestamp_ms=1000)
    await house.log.roll()
    house.log.trim(9)
    assert all(place.ledger_id < each.ledger_id for each in house.log.ledgers() if each.entries)
    assert await house.after_a_crash() == {"a": 4, "b": -1}
