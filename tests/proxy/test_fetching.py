"""Fetch over several brokers, which are scripted here: what is asked of whom, what stays asked, what clients get."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from magnetar.client.errors import BrokerUnreachable, NoConnection
from magnetar.proxy.kafka.apart import Apart
from magnetar.proxy.kafka.fetching import MOST_BYTES, Fetching, within_bounds
from magnetar.proxy.kafka.request import framed
from magnetar.proxy.kafka.routes import Routes, TopicKey
from magnetar.serving.fetch_sessions import FetchSessions
from magnetar.serving.memory import MemoryBudget
from magnetar.wire.kafka.header import RequestHeader, decode_request_header, encode_response_header
from magnetar.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from magnetar.wire.kafka.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

VERSION = 12
HEADER = RequestHeader(1, VERSION, 5, "me")


class Broker:
    """Stands for a connection: keeps what it is asked, and answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[FetchRequest] = []
        self.closed = False
        self._told: list[Any] = []

    def forward(self, frame: memoryview, told: Any, *, within_s: float) -> None:
        _, body = decode_request_header(frame)
        self.asked.append(FetchRequest.decode(body, VERSION))
        self._told.append(told)

    def answer(self, records: dict[int, bytes], code: int = 0) -> None:
        topics = [
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    PartitionData(
                        partition_index=each.partition,
                        error_code=code,
                        high_watermark=100,
                        records=records.get(each.partition, b""),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in self.asked[-1].topics
        ]
        body = encode_response_header(1, VERSION, 0) + FetchResponse(responses=topics).encode(VERSION)
        self._told.pop(0)(memoryview(body), None)

    def breaks(self) -> None:
        self.closed = True
        for told in self._told:
            told(None, BrokerUnreachable("it broke"))

    def close(self) -> None:
        self.closed = True


class World:
    """Partition n of topic t is led by broker n."""

    def __init__(self, partitions: int = 2) -> None:
        self.routes = Routes()
        self.routes.learn(
            MetadataResponse(
                brokers=[MetadataResponseBroker(node_id=n, host="h", port=n) for n in range(partitions)],
                topics=[
                    MetadataResponseTopic(
                        name="t",
                        partitions=[
                            MetadataResponsePartition(partition_index=n, leader_id=n)
                            for n in range(partitions)
                        ],
                    )
                ],
            )
        )
        self.brokers: dict[int | None, list[Broker]] = {}
        self.unreachable: set[int | None] = set()
        account = MemoryBudget(1 << 20, 1 << 20, later=lambda f: None).account(lambda: None, known=True)
        self.fetching = Fetching(
            FetchSessions(10, 1000, account),
            account,
            self._connect,
            lambda connection: None,
            60.0,  # type: ignore[arg-type]
        )

    async def _connect(self, node: int | None) -> Broker:
        if node in self.unreachable:
            raise NoConnection("nobody is there")
        made = Broker()
        self.brokers.setdefault(node, []).append(made)
        return made

    async def _find(self, topics: Iterable[TopicKey]) -> None:
        raise AssertionError("all is known")

    def fetch(self, offsets: dict[int, int], **more: Any) -> asyncio.Task[FetchResponse]:
        rows = [FetchPartition(partition=n, fetch_offset=at) for n, at in offsets.items()]
        request = FetchRequest(
            **{"max_wait_ms": 500, "min_bytes": 1, "session_epoch": -1} | more,
            topics=[FetchTopic(topic="t", partitions=rows)],
        )
        return asyncio.ensure_future(self.fetching.fetch(Apart(), request, HEADER, self.routes, self._find))

    async def known(self, count: int = 2) -> None:
        """Have each partition be known, as by a first fetch."""
        first = self.fetch(dict.fromkeys(range(count), 0))
        await turns()
        for node in range(count):
            self.brokers[node][0].answer({})
        await first


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def told(answer: FetchResponse) -> dict[int, tuple[int, bytes]]:
    return {
        row.partition_index: (row.error_code, bytes(row.records or b""))
        for topic in answer.responses
        for row in topic.partitions
    }


async def test_a_first_fetch_waits_for_all_and_asks_them_not_to_wait() -> None:
    world = World()
    task = world.fetch({0: 0, 1: 0})
    await turns()
    assert [world.brokers[n][0].asked[0].max_wait_ms for n in (0, 1)] == [0, 0]
    world.brokers[0][0].answer({0: b"some"})
    await turns()
    assert not task.done()
    world.brokers[1][0].answer({})
    assert told(await task) == {0: (0, b"some"), 1: (0, b"")}


async def test_what_has_no_news_stays_asked_and_is_not_asked_again() -> None:
    world = World()
    await world.known()
    for number in range(5):
        task = world.fetch({0: number, 1: 0})
        await turns()
        world.brokers[0][0].answer({0: b"x" * (number + 1)})
        answer = await task
        assert told(answer) == {0: (0, b"x" * (number + 1)), 1: (0, b"")}
        assert [row.high_watermark for t in answer.responses for row in t.partitions] == [100, 100]
    assert len(world.brokers[1]) == 1
    assert len(world.brokers[1][0].asked) == 2, "the first one, and one that is still open"
    task = world.fetch({0: 5, 1: 0})
    await turns()
    world.brokers[1][0].answer({1: b"at last"})
    assert told(await task)[1] == (0, b"at last")


async def test_an_answer_that_came_between_two_fetches_is_taken_by_the_next() -> None:
    world = World()
    await world.known()
    task = world.fetch({0: 0, 1: 0})
    await turns()
    world.brokers[0][0].answer({0: b"a"})
    await task
    world.brokers[1][0].answer({1: b"b"})
    assert world.fetching.held_bytes > 0
    assert told(await world.fetch({0: 1, 1: 0}))[1] == (0, b"b")
    assert world.fetching.held_bytes == 0


async def test_who_seeks_is_not_given_what_it_asked_for_before() -> None:
    world = World()
    await world.known()
    task = world.fetch({0: 0, 1: 0})
    await turns()
    world.brokers[0][0].answer({0: b"a"})
    await task
    old = world.brokers[1][0]
    task = world.fetch({0: 1, 1: 50})
    await turns()
    assert old.closed
    new = world.brokers[1][1]
    assert new.asked[0].topics[0].partitions[0].fetch_offset == 50
    new.answer({1: b"there"})
    assert told(await task)[1] == (0, b"there")


@pytest.mark.parametrize("how", ["breaks", "unreachable"])
async def test_a_broker_that_is_gone_is_not_the_leader_any_more(how: str) -> None:
    world = World()
    await world.known()
    if how == "unreachable":
        world.brokers[1][0].close()
        world.unreachable.add(1)
        task = world.fetch({0: 0, 1: 0})
    else:
        task = world.fetch({0: 0, 1: 0})
        await turns()
        world.brokers[1][0].breaks()
    answer = await task
    assert told(answer)[1] == (6, b"")
    assert not world.routes.knows("t", 1), "it is to be asked who leads now"


async def test_a_session_tells_news_alone() -> None:
    world = World()
    task = world.fetch({0: 0, 1: 0}, session_epoch=0)
    await turns()
    for node in (0, 1):
        world.brokers[node][0].answer({})
    first = await task
    assert first.session_id
    assert told(first).keys() == {0, 1}
    task = world.fetch({0: 3}, session_id=first.session_id, session_epoch=1)
    await turns()
    world.brokers[0][0].answer({0: b"news"})
    assert told(await task) == {0: (0, b"news")}
    wrong = await world.fetch({}, session_id=first.session_id, session_epoch=1)
    assert wrong.error_code == 71
    assert (await world.fetch({}, session_id=12345, session_epoch=1)).error_code == 70


@pytest.mark.parametrize("version", range(4, 19))
def test_an_answer_is_asked_to_be_no_larger_than_is_good(version: int) -> None:
    request = FetchRequest(max_wait_ms=7, min_bytes=8, max_bytes=50 << 20, topics=[])
    frame = framed(RequestHeader(1, version, 5, "me"), request)
    _, body = decode_request_header(frame)
    _, changed = decode_request_header(within_bounds(frame, body, version, request.max_bytes))
    request.max_bytes = MOST_BYTES
    assert FetchRequest.decode(changed, version) == FetchRequest.decode(request.encode(version), version)
    assert within_bounds(frame, body, version, 1000) is frame


async def test_bytes_are_shared_out() -> None:
    world = World(4)
    task = world.fetch(dict.fromkeys(range(4), 0), max_bytes=1000)
    await turns()
    assert [world.brokers[n][0].asked[0].max_bytes for n in range(4)] == [250] * 4
    task.cancel()
