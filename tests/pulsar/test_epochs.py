"""The epoch of exclusive producers: of two brokers on one store only one has it, and it is kept before it counts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from magnetar.metadata import ANY, MemoryStore, MemoryTree, MetadataUnavailable, MetadataUncertain, Op, Put
from magnetar.pulsar.epochs import TopicEpoch
from magnetar.pulsar.errors import ProducerFenced
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand, ProducerAccessMode, ServerError
from tests.pulsar.inside import Inside, inside

LEDGER = "public/default/persistent/t-partition-0"
PATH = f"/pulsar/topic-epochs/{LEDGER}"


async def test_two_brokers_never_give_the_same_epoch() -> None:
    tree = MemoryTree()
    one, other = (TopicEpoch(MemoryStore(tree), LEDGER) for _ in range(2))
    assert (await one.load(), await other.load()) == (None, None)
    outcomes = await asyncio.gather(one.keep(0), other.keep(0), return_exceptions=True)
    assert sorted(type(each).__name__ for each in outcomes) == ["NoneType", "ProducerFenced"]
    await other.keep(4)
    with pytest.raises(ProducerFenced):
        await one.keep(1)
    assert one.kept == 4, "the next one it gives is the fifth"
    await one.keep(5)
    assert tree.get(PATH) == (b"5", 2)


async def test_who_was_fenced_meanwhile_in_the_same_broker_takes_nothing_back() -> None:
    store = MemoryStore()
    epoch = TopicEpoch(store, LEDGER)
    await asyncio.gather(epoch.keep(1), epoch.keep(0), epoch.keep(2))
    assert await store.get(PATH) == (b"2", 1)


class Lost(MemoryStore):
    """Keeps a commit, but its answer is lost."""

    lost = False

    async def commit(self, ops: Sequence[Op]) -> list[int]:
        versions = await super().commit(ops)
        if self.lost:
            raise MetadataUncertain("the answer was lost")
        return versions


async def test_after_an_answer_was_lost_the_next_epoch_is_another() -> None:
    store = Lost()
    epoch = TopicEpoch(store, LEDGER)
    store.lost = True
    with pytest.raises(MetadataUncertain):
        await epoch.keep(0)
    store.lost = False
    await epoch.keep(1)
    assert await store.get(PATH) == (b"1", 1)


def producer(producer_id: int, mode: int, request_id: int) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.PRODUCER)
    made = command.producer
    made.topic, made.producer_id, made.request_id = "persistent://public/default/t", producer_id, request_id
    made.producer_access_mode = mode  # type: ignore[assignment]
    return command


async def asked(broker: Inside, number: int) -> BaseCommand:
    return await broker.client().ask(producer(number, ProducerAccessMode.ExclusiveWithFencing, 7))


async def test_a_producer_of_a_broker_that_lost_the_topic_is_fenced() -> None:
    async with inside() as broker:
        await broker.broker.create_topic("t", 1)
        first = (await asked(broker, 1)).producer_success
        assert first.topic_epoch == 0
        await broker.broker.store.commit([Put(PATH, b"7", ANY)])  # another broker has it by now
        refused = await asked(broker, 2)
        assert refused.error.error == ServerError.ProducerFenced
        assert (await asked(broker, 3)).producer_success.topic_epoch == 8


async def test_a_producer_whose_epoch_cannot_be_kept_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    async with inside() as broker:
        await broker.broker.create_topic("t", 1)

        async def refuse(ops: Sequence[Op]) -> list[int]:
            raise MetadataUnavailable("the disk is full")

        with monkeypatch.context() as patched:
            patched.setattr(broker.broker.store, "commit", refuse)
            assert (await asked(broker, 1)).type == BaseCommand.ERROR
        (topic,) = broker.services.topics.all_open()
        assert not topic.producers.by_name
        assert (await asked(broker, 2)).type == BaseCommand.PRODUCER_SUCCESS
