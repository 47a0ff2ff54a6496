"""A client that begins to write to many topics has their logs opened side by side, and its records keep their order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from magnetar.auth import Access
from magnetar.kafka.partitions import opening_ahead
from magnetar.ledger.memory import MemoryEngine
from magnetar.ledger.port import LedgerPolicy, ManagedLedger
from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.broker.both import FETCH, PRODUCE, Both, both
from tests.ledger.entries import NOW_MS

TOPICS = 5


class SlowEngine(MemoryEngine):
    """Opens a log of a user's topic once it may."""

    opens_slowly = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.begun: list[str] = []
        self.may_open = asyncio.Event()

    async def left_open(self, names: Any) -> list[str]:
        return []

    async def open(self, name: str, policy: LedgerPolicy, epoch: int = 0) -> ManagedLedger:
        self.begun.append(name.rpartition("/")[2])
        await self.may_open.wait()
        return await super().open(name, policy, epoch)


@pytest.fixture
async def house() -> AsyncIterator[Both]:
    async with both(("kafka",), engine_on=SlowEngine) as house:
        for number in range(TOPICS):
            await house.broker.create_topic(f"t{number}", 2)
        yield house


def engine_of(house: Both) -> SlowEngine:
    assert isinstance(house.broker.engine, SlowEngine)
    return house.broker.engine


def to(*partitions: tuple[str, int], value: bytes = b"v") -> ProduceRequest:
    """Return a request with one record for each partition, named in order."""
    data = bytes(encode_batch([PlainRecord(b"k", value, (), NOW_MS)]))
    return ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(name=name, partition_data=[PartitionProduceData(index=index, records=data)])
            for name, index in partitions
        ],
    )


async def turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def opened(house: Both) -> list[str]:
    return sorted(each.removesuffix("-partition-0") for each in engine_of(house).begun)


async def test_requests_that_have_come_are_opened_together(house: Both) -> None:
    asked = [house.kafka.begin(to((f"t{number}", 0)), PRODUCE) for number in range(TOPICS)]
    await turns()
    assert opened(house) == [f"t{number}" for number in range(TOPICS)]
    engine_of(house).may_open.set()
    for answer in asked:
        assert (await answer).responses[0].partition_responses[0].error_code == 0
    assert len(engine_of(house).begun) == TOPICS  # each once


async def test_the_partitions_of_one_request_are_opened_together(house: Both) -> None:
    asked = house.kafka.begin(to(*((f"t{number}", 0) for number in range(TOPICS))), PRODUCE)
    await turns()
    assert opened(house) == [f"t{number}" for number in range(TOPICS)]
    engine_of(house).may_open.set()
    assert [each.partition_responses[0].error_code for each in (await asked).responses] == [0] * TOPICS


async def test_partitions_that_are_read_are_opened_together(house: Both) -> None:
    wanted = [FetchTopic(topic=f"t{n}", partitions=[FetchPartition(partition=0)]) for n in range(TOPICS)]
    fetch = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1000, session_epoch=-1, topics=wanted)
    asked = house.kafka.begin(fetch, FETCH)
    await turns()
    assert opened(house) == [f"t{number}" for number in range(TOPICS)]
    engine_of(house).may_open.set()
    assert [each.partitions[0].error_code for each in (await asked).responses] == [0] * TOPICS


async def test_partitions_whose_offsets_are_asked_for_are_opened_together(house: Both) -> None:
    wanted = [
        ListOffsetsTopic(name=f"t{n}", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
        for n in range(TOPICS)
    ]
    asked = house.kafka.begin(ListOffsetsRequest(topics=wanted), 7)
    await turns()
    assert opened(house) == [f"t{number}" for number in range(TOPICS)]
    engine_of(house).may_open.set()
    assert [each.partitions[0].offset for each in (await asked).topics] == [0] * TOPICS


async def test_records_keep_their_order(house: Both) -> None:
    values = [b"%d" % number for number in range(30)]
    asked = []
    for number, value in enumerate(values):
        # Each but the first is opened ahead of its request, while others of it wait.
        wanted = [("t0", 0), (f"t{number % TOPICS}", 1), ("t1", 0)]
        asked.append(house.kafka.begin(to(*wanted, value=value), PRODUCE))
        if number == 20:
            engine_of(house).may_open.set()
        await asyncio.sleep(0)
    offsets = [(await each).responses for each in asked]
    for at in (0, 2):
        assert [each[at].partition_responses[0].base_offset for each in offsets] == list(range(len(values)))


async def test_no_more_than_some_are_wanted_or_opened_at_once(
    house: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = house.kafka_services.partitions.ahead
    assert ahead is not None
    ahead._places = asyncio.Semaphore(2)
    monkeypatch.setattr(opening_ahead, "WANTED_AT_MOST", 3)
    asked = [house.kafka.begin(to((f"t{number}", 0)), PRODUCE) for number in range(TOPICS)]
    await turns()
    assert opened(house) == ["t0", "t1", "t2"]  # the first is its request's own
    engine_of(house).may_open.set()
    for answer in asked:
        assert (await answer).responses[0].partition_responses[0].error_code == 0


async def test_nothing_is_opened_for_who_may_not_write_to_it(house: Both) -> None:
    ahead = house.kafka_services.partitions.ahead
    assert ahead is not None

    class Nothing(Access):
        def may(self, *_: object) -> bool:
            return False

    for name in ("t0", "no such topic", "a/b/c/d"):
        assert ahead.want(name, b"", 0, Nothing.__new__(Nothing))
    assert ahead.want("no such topic", b"", 0, None)
    await turns()
    assert engine_of(house).begun == []
