"""What a topic knows of producers outlives a crash, though compaction or retention took the entries that told it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from magnetar.ledger.errors import LedgerFenced, StorageFailed, StorageFull
from magnetar.ledger.memory import MemoryEngine
from magnetar.ledger.port import CompactionRules, Done, Flush, LedgerPolicy, Pending, Position
from magnetar.metadata import MemoryStore
from magnetar.metadata.errors import MetadataUnavailable
from magnetar.pulsar import topic as topic_module
from magnetar.pulsar.deduplication import Deduplication
from magnetar.pulsar.dispatch.deliveries import Deliveries
from magnetar.pulsar.dispatch.reading import UnackedLimits
from magnetar.pulsar.errors import ProducerFenced
from magnetar.pulsar.producers import Producer
from magnetar.pulsar.topic import PulsarTopic
from magnetar.topics.names import TopicName
from magnetar.topics.topic import Topic
from magnetar.wire.pulsar.pulsar_pb2 import ProducerAccessMode
from tests.ledger.cursors import kept
from tests.ledger.entries import prepared
from tests.pulsar.raw import entry

KAFKA = CompactionRules(replaces=True, tombstones_ms=1000)


class House:
    """A partition that deduplicates, in memory; what is kept of it is what a crash leaves."""

    async def open(self) -> None:
        self.store = MemoryStore()
        engine = MemoryEngine(self.store, clock=lambda: 1000)
        await engine.start()
        policy = LedgerPolicy(flush=Flush.os, max_ledger_entries=2)
        self.log = await prepared(await engine.open("public/default/persistent/t", policy))
        self.topic = await self.another_topic()
        await self.topic.load()

    async def another_topic(self) -> PulsarTopic:
        """Return what a broker makes of the partition that starts with what is kept."""
        return PulsarTopic(
            Topic(TopicName("public", "default", "t"), "t", bytes(16), 1), 0,
            self.log, await kept(self.log, self.store), self.store,
            Deliveries(1 << 20), UnackedLimits(0, 0), lambda: 1000, deduplicates=True,
        )  # fmt: skip

    async def send(self, producer: str, first: int, last: int) -> None:
        dedup = self.topic.dedup
        assert dedup is not None
        for number in range(first, last):
            message = entry(b"v", producer_name=producer, sequence_id=number, partition_key="k")
            appended = self.log.append((message,), messages=1, timestamp_ms=1000)
            dedup.note(appended, producer, number)
            await appended.settled()
        await asyncio.sleep(0)

    async def after_a_crash(self) -> dict[str, int]:
        found = Deduplication(self.log, await kept(self.log, self.store))
        await found.load()
        return {name: found.last_sequence_id(name) for name in ("a", "b")}


@pytest.fixture
async def house() -> House:
    made = House()
    await made.open()
    return made


async def test_it_is_kept_before_compaction_takes_entries_away(house: House) -> None:
    await house.send("a", 0, 5)
    await house.send("b", 0, 6)  # of the same key: nothing of a's is left
    await house.log.roll()
    assert await house.log.compact(KAFKA)
    left = await house.log.read(house.log.log_start_offset, max_bytes=1 << 20)
    assert len(left) == 1
    assert await house.after_a_crash() == {"a": 4, "b": 5}


async def test_it_is_kept_too_before_history_that_was_compacted_goes(house: House) -> None:
    await house.send("a", 0, 5)
    await house.send("b", 0, 6)
    await house.log.roll()
    await house.log.compact(CompactionRules())
    assert await house.log.compact(KAFKA)
    assert await house.after_a_crash() == {"a": 4, "b": 5}


async def test_where_it_cannot_be_kept_nothing_is_taken_away(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.send("a", 0, 5)
    await house.send("b", 0, 6)
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
    await house.send("a", 0, 5)
    await house.topic.save()
    place = await house.topic.places.last()
    for _ in range(4):
        house.log.append((entry(b"v", producer_name="z"),), messages=1, timestamp_ms=1000)
    await house.log.roll()
    await house.log.trim(9)
    assert all(place.ledger_id < each.ledger_id for each in house.log.ledgers() if each.entries)
    assert await house.after_a_crash() == {"a": 4, "b": -1}


async def test_what_failed_may_be_sent_again(house: House) -> None:
    await house.send("a", 0, 5)
    dedup = house.topic.dedup
    assert dedup is not None
    kept, lost = Done(), Done()
    dedup.note(Pending(5, kept, Position(0, 5)), "a", 5)
    dedup.note(Pending(6, lost), "b", 0)
    dedup.note(Pending(7, lost), "a", 6)
    dedup.note(Pending(8, lost), "a", 7)
    assert dedup.is_repeated("a", 7)
    dedup.take_back(6)
    lost.settle(StorageFull("no room"))
    assert [dedup.is_repeated("a", number) for number in (5, 6)] == [True, False], "5 is still on its way"
    assert not dedup.is_repeated("b", 0)
    kept.settle()
    await asyncio.sleep(0)
    assert [dedup.is_repeated("a", number) for number in (5, 6)] == [True, False]


async def test_what_failed_is_taken_back_in_any_case(house: House) -> None:
    await house.send("a", 0, 5)
    dedup, lost = house.topic.dedup, Done()
    assert dedup is not None
    dedup.note(Pending(5, lost), "a", 5)
    lost.settle(StorageFull("no room"))
    await asyncio.sleep(0)
    assert [dedup.is_repeated("a", number) for number in (4, 5)] == [True, False]


async def test_while_it_is_switched_on_what_comes_in_counts(house: House) -> None:
    """A number that came meanwhile, whether or not it could be read by then, is known afterwards."""
    await house.send("a", 0, 5)
    topic = house.topic
    await topic.switch_deduplication(lambda: False)
    assert topic.dedup is None
    under_way = topic.last_done = Done()
    switching = asyncio.ensure_future(topic.switch_deduplication(lambda: True))
    await asyncio.sleep(0)
    assert topic.dedup is None, "it cannot know yet what is stored"
    noting = topic.noting
    assert noting is not None
    noting.note(Pending(5, None, Position(0, 5)), "c", 1)
    noting.note(Pending(6, on_its_way := Done(), Position(0, 6)), "b", 3)
    house.log.append((entry(b"v", producer_name="a", sequence_id=7),), messages=1, timestamp_ms=1000)
    assert not noting.unsaved, "what is known of the past would be kept without the past"
    under_way.settle()
    await switching
    assert topic.dedup is noting
    assert [noting.last_sequence_id(each) for each in "abc"] == [7, 3, 1]
    on_its_way.settle()
    await asyncio.sleep(0)
    assert noting.unsaved


async def test_it_is_switched_on_once_it_can_be(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await house.send("a", 0, 5)
    await house.topic.switch_deduplication(lambda: False)
    load, failures = Deduplication.load, [StorageFailed("no bookie"), MetadataUnavailable("no server")]

    async def fails(self: Deduplication) -> None:
        if failures:
            raise failures.pop()
        await load(self)

    monkeypatch.setattr(Deduplication, "load", fails)
    monkeypatch.setattr(topic_module, "_SWITCH_AGAIN_S", (0.001,))
    await house.topic.switch_deduplication(lambda: True)
    dedup = house.topic.dedup
    assert dedup is not None
    assert dedup.last_sequence_id("a") == 4
    assert caplog.text.count("does not work yet") == 2


async def test_a_change_of_mind_while_it_is_switched_counts(house: House) -> None:
    wanted = True
    await house.topic.switch_deduplication(lambda: False)
    house.topic.last_done = under_way = Done()
    switching = asyncio.ensure_future(house.topic.switch_deduplication(lambda: wanted))
    await asyncio.sleep(0)
    wanted = False
    await house.topic.switch_deduplication(lambda: wanted)  # the first one is at it
    under_way.settle()
    await switching
    assert (house.topic.dedup, house.topic.noting) == (None, None)


async def test_of_another_brokers_topic_it_is_switched_no_more(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.topic.switch_deduplication(lambda: False)

    async def fenced(self: Deduplication) -> None:
        raise LedgerFenced("another broker has it")

    monkeypatch.setattr(Deduplication, "load", fenced)
    await house.topic.switch_deduplication(lambda: True)
    assert (house.topic.dedup, house.topic.noting) == (None, None)


async def test_sequence_ids_are_kept_in_the_order_of_the_log(house: House) -> None:
    """Otherwise what is kept would tell that entries were counted whose numbers it lacks."""
    await house.send("a", 0, 5)
    dedup, first, second = house.topic.dedup, Done(), Done()
    assert dedup is not None
    dedup.note(Pending(5, first, Position(9, 0)), "a", 5)
    dedup.note(Pending(6, second, Position(9, 1)), "b", 0)
    second.settle()
    await asyncio.sleep(0)
    await house.topic.save()
    assert await house.after_a_crash() == {"a": 4, "b": -1}


async def test_only_what_is_durable_is_kept(house: House) -> None:
    """A number that is kept and whose message is not would make the broker drop the message when it comes again."""
    await house.send("a", 0, 5)
    dedup = house.topic.dedup
    assert dedup is not None
    dedup.note(Pending(5, Done()), "a", 9)
    dedup.note(Pending(6, Done()), "b", 3)
    await house.topic.save()
    assert await house.after_a_crash() == {"a": 4, "b": -1}


async def test_entries_that_were_counted_and_are_lost_count_no_more(house: House) -> None:
    """A power loss may take a ledger's end, and what was kept of it: what is there is counted anew."""
    await house.send("a", 0, 5)
    dedup, last = house.topic.dedup, house.log.ledgers()[-1].ledger_id
    assert dedup is not None
    dedup.note(Pending(40, None, Position(last, 40)), "a", 40)
    dedup.note(Pending(41, None, Position(last, 41)), "b", 7)
    await house.topic.save()
    assert await house.after_a_crash() == {"a": 4, "b": -1}


async def test_a_message_in_chunks_counts_when_its_last_chunk_is_there(house: House) -> None:
    await house.send("a", 0, 5)

    async def chunk(number: int) -> None:
        said = {"uuid": "u", "num_chunks_from_msg": 3, "total_chunk_msg_size": 3, "chunk_id": number}
        message = entry(b"v", producer_name="a", sequence_id=5, **said)
        await house.log.append((message,), messages=1, timestamp_ms=1000).settled()

    await chunk(0)
    await chunk(1)
    assert (await house.after_a_crash())["a"] == 4
    await chunk(2)
    assert (await house.after_a_crash())["a"] == 5


async def test_the_epoch_of_an_exclusive_producer_fences_across_a_restart(house: House) -> None:
    def exclusive(name: str, epoch: int | None = None) -> Producer:
        mode = ProducerAccessMode.Exclusive
        return Producer(cast(Any, None), 1, name, 0, True, mode, epoch)

    async def add(topic: PulsarTopic, producer: Producer) -> None:
        topic.producers.add(producer)
        await topic.keep_epoch(producer)

    first = exclusive("first")
    await add(house.topic, first)
    house.topic.producers.remove(first)
    second = exclusive("second")
    await add(house.topic, second)
    assert (first.topic_epoch, second.topic_epoch) == (0, 1)
    again = await house.another_topic()
    await again.load()
    with pytest.raises(ProducerFenced, match="it had the topic in epoch 0, which is 1 now"):
        await add(again, exclusive("first", 0))
    back = exclusive("second", 1)
    await add(again, back)
    assert back.topic_epoch == 1


async def test_lost_entries_of_the_oldest_ledger_count_no_more_either(house: House) -> None:
    await house.send("a", 0, 1)
    dedup, (only,) = house.topic.dedup, house.log.ledgers()
    assert dedup is not None
    dedup.note(Pending(40, None, Position(only.ledger_id, 40)), "a", 40)
    await house.topic.save()
    assert await house.after_a_crash() == {"a": 0, "b": -1}
