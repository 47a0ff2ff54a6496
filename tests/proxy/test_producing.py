"""Batches to scripted brokers: they overlap, are sent once, wait for each other after a move, and their end is told."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from magnetar.client.errors import BrokerUnreachable
from magnetar.proxy.figures import RelayFigures
from magnetar.proxy.kafka import awaited_batches
from magnetar.proxy.kafka.producing import BatchRelay, with_few_rows
from magnetar.proxy.kafka.request import ProxiedRequest, framed
from magnetar.proxy.kafka.rewriting import Place
from magnetar.proxy.kafka.routes import Routes
from magnetar.records.batch import PlainRecord, encode_batch, read_header
from magnetar.serving import pace
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.header import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_response_header,
)
from magnetar.wire.kafka.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from magnetar.wire.kafka.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

VERSION = 9


class Broker:
    """Stands for a connection."""

    def __init__(self) -> None:
        self.asked: list[ProduceRequest] = []
        self.told: list[Any] = []

    def forward(self, frame: memoryview, told: Any, *, within_s: float) -> None:
        _, body = decode_request_header(frame)
        self.asked.append(ProduceRequest.decode(body, VERSION))
        self.told.append(told)

    def answer(self, code: int = 0) -> None:
        asked = self.asked[len(self.asked) - len(self.told)]
        rows = [
            TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    PartitionProduceResponse(index=each.index, error_code=code, base_offset=7)
                    for each in topic.partition_data
                ],
            )
            for topic in asked.topic_data
        ]
        body = encode_response_header(0, VERSION, 0) + ProduceResponse(responses=rows).encode(VERSION)
        self.told.pop(0)(memoryview(body), None)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have few rows be answered in the turn in which all is known, however busy the machine is."""
    monkeypatch.setattr(pace, "MAX_SECONDS", 60.0)


class World:
    """Partition n of topic t is led by broker n; it is what `BatchRelay` asks of a relay."""

    place = Place(9, "proxy", 1)
    within_s = 60.0

    def __init__(self) -> None:
        self.figures = RelayFigures()
        self.routes = Routes()
        self.leader = 0
        self.lead([0, 1])
        self.brokers = {0: Broker(), 1: Broker()}
        self.answers: list[Sequence[Any]] = []
        self.upstreams = self
        self.batches = BatchRelay(self, self._answered, self._failed)  # type: ignore[arg-type]

    def lead(self, leaders: list[int]) -> None:
        rows = [
            MetadataResponsePartition(partition_index=n, leader_id=each) for n, each in enumerate(leaders)
        ]
        self.routes.learn(
            MetadataResponse(
                brokers=[MetadataResponseBroker(node_id=n, host="h", port=n) for n in (0, 1)],
                topics=[MetadataResponseTopic(name="t", partitions=rows)],
            )
        )

    def ready(self, node: int) -> Broker:
        return self.brokers[node]

    def moved(self, topic: object, row: object, nodes: object) -> None:
        self.routes.forget("t")

    async def find_leaders(self, topics: set[str]) -> None:
        self.lead([self.leader, 1])

    async def reach(self, node: int | None) -> Broker:
        return self.brokers[node or 0]

    def produce(self, *partitions: int, acks: int = -1) -> tuple[bool, ProxiedRequest]:
        request, frame, body = self.framed({n: b"%d" % n for n in partitions}, acks)
        return self.batches.begin(request, frame, few_rows(request, body)), request

    async def send(self, batches: dict[int, bytes]) -> ProxiedRequest:
        """Have batches sent by partition, at once or not."""
        request, frame, body = self.framed(batches)
        produce = few_rows(request, body)
        if not self.batches.begin(request, frame, produce):
            await self.batches.run(request, frame, body, produce)
        return request

    @staticmethod
    def framed(batches: dict[int, bytes], acks: int = -1) -> tuple[ProxiedRequest, memoryview, memoryview]:
        header = RequestHeader(0, VERSION, 5, "me")
        rows = [PartitionProduceData(index=n, records=records) for n, records in batches.items()]
        frame = framed(
            header, ProduceRequest(acks=acks, topic_data=[TopicProduceData(name="t", partition_data=rows)])
        )
        _, body = decode_request_header(frame)
        return ProxiedRequest(header, len(frame), 0.0), frame, body

    def _answered(self, request: ProxiedRequest, parts: Sequence[Any]) -> None:
        request.parts = parts
        self.answers.append(parts)

    def _failed(self, request: ProxiedRequest, error: Exception) -> None:
        raise error


def few_rows(request: ProxiedRequest, body: memoryview) -> ProduceRequest:
    produce = with_few_rows(request.header, body)
    assert produce is not None
    return produce


def batch(sequence: int, *, producer_id: int = 7, epoch: int = 0, records: int = 2) -> bytes:
    """Return an idempotent producer's batch."""
    return encode_batch(
        [PlainRecord(None, b"%d" % sequence, timestamp=0)] * records,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def sequences(broker: Broker) -> list[int]:
    """Return what a broker was sent."""
    return [
        read_header(each.records or b"").base_sequence
        for asked in broker.asked
        for topic in asked.topic_data
        for each in topic.partition_data
    ]


def codes(request: ProxiedRequest) -> dict[int, int]:
    assert request.parts is not None
    frame = b"".join(request.parts)
    correlation, body = decode_response_header(frame, 0, VERSION)
    assert correlation == 5
    answer = ProduceResponse.decode(body, VERSION)
    return {row.index: row.error_code for topic in answer.responses for row in topic.partition_responses}


def test_batches_overlap() -> None:
    world = World()
    requests = [world.produce(0)[1] for _ in range(3)]
    assert all(each.placed and each.parts is None for each in requests)
    for _ in requests:
        world.brokers[0].answer()
    assert [codes(each) for each in requests] == [{0: 0}] * 3


def test_one_answer_for_two_leaders_once_both_have_answered() -> None:
    world = World()
    _, request = world.produce(0, 1)
    assert [len(each.asked[0].topic_data[0].partition_data) for each in world.brokers.values()] == [1, 1]
    world.brokers[1].answer()
    assert request.parts is None
    world.brokers[0].answer()
    assert codes(request) == {0: 0, 1: 0}


def test_of_a_broker_that_is_gone_nobody_knows_and_nothing_is_sent_again() -> None:
    world = World()
    _, request = world.produce(0, 1)
    world.brokers[0].told.pop(0)(None, BrokerUnreachable("it broke"))
    world.brokers[1].answer()
    assert codes(request) == {0: ErrorCode.REQUEST_TIMED_OUT, 1: 0}
    assert [len(each.asked) for each in world.brokers.values()] == [1, 1]
    assert world.figures.broken == 1


def test_what_the_leader_refuses_is_told_and_not_sent_again() -> None:
    world = World()
    _, request = world.produce(0)
    world.brokers[0].answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert codes(request) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert [len(each.asked) for each in world.brokers.values()] == [1, 0]
    assert not world.produce(0)[0], "who leads is asked first"


def test_after_a_move_the_next_batch_waits_for_those_under_way() -> None:
    world = World()
    world.produce(0)
    world.lead([1, 0])
    assert not world.produce(0)[0], "it might overtake what its producer has to send again"
    world.brokers[0].answer()
    assert world.produce(0)[0]
    assert [len(each.asked) for each in world.brokers.values()] == [1, 1]


def test_who_wants_no_answer_gets_none() -> None:
    world = World()
    begun, request = world.produce(0, acks=0)
    assert begun
    assert request.parts == ()
    assert world.brokers[0].told == [None]


async def test_a_batch_behind_one_that_nobody_knows_of_waits_until_that_comes_again() -> None:
    world = World()
    first = await world.send({0: batch(0)})
    world.brokers[0].told.pop(0)(None, BrokerUnreachable("it broke"))
    assert codes(first) == {0: ErrorCode.REQUEST_TIMED_OUT}
    world.lead([1, 1])
    second = await world.send({0: batch(2), 1: batch(0)})
    assert sequences(world.brokers[1]) == [0], "the partition that nothing is due in goes on"
    world.brokers[1].answer()
    assert codes(second) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER, 1: 0}
    for sequence in (4, 2):
        world.lead([1, 1])
        assert codes(await world.send({0: batch(sequence)})) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    world.lead([1, 1])
    for sequence in (0, 2, 4):
        await world.send({0: batch(sequence)})
    assert sequences(world.brokers[1]) == [0, 0, 2, 4]


@pytest.mark.parametrize(
    "other",
    [
        batch(2, epoch=1),
        batch(2, producer_id=8),
        batch(2, producer_id=-1, epoch=-1),
        b"no batch",
        # It was given up, and its producer knows that it was stored.
        batch((1 << 31) - 2),
    ],
)
async def test_others_do_not_wait_for_it(other: bytes) -> None:
    world = World()
    await world.send({0: batch(0)})
    world.brokers[0].answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    world.lead([1, 1])
    request = await world.send({0: other})
    world.brokers[1].answer()
    assert codes(request) == {0: 0}
    await world.send({0: batch(2)})
    assert len(world.brokers[1].asked) == 2, "nor does anything that comes after one of them"


async def test_sequences_begin_anew_behind_the_largest() -> None:
    world = World()
    await world.send({0: batch((1 << 31) - 2)})
    world.brokers[0].answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    world.lead([1, 1])
    assert codes(await world.send({0: batch(0)})) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert world.brokers[1].asked == []


async def test_it_is_not_waited_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(awaited_batches, "_KEPT_S", 0.0)
    world = World()
    await world.send({0: batch(0)})
    world.brokers[0].answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    world.lead([1, 1])
    await world.send({0: batch(2)})
    assert sequences(world.brokers[1]) == [2]


async def test_no_more_than_some_are_remembered_of_a_client_that_sends_what_it_likes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(awaited_batches, "_MAX_DUE", 1)
    world = World()
    world.lead([0, 0])
    for partition in (0, 1):
        await world.send({partition: batch(0)})
        world.brokers[0].answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        world.lead([0, 0])
    second = await world.send({0: batch(2), 1: batch(2)})
    world.brokers[0].answer()
    assert codes(second) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER, 1: 0}


class Log:
    """What the brokers agree on of a partition: a batch goes in if it is its producer's next one, or was there."""

    def __init__(self) -> None:
        self.stored: list[int] = []

    def take(self, sequence: int) -> ErrorCode:
        if sequence in self.stored:
            return ErrorCode.NONE
        if sequence != 2 * len(self.stored):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self.stored.append(sequence)
        return ErrorCode.NONE


class Producer:
    """Sends up to five batches ahead, and again what was refused, once it has heard of all that it sent, as
    librdkafka does. The proxy reads what it wrote later on.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.due = deque(range(0, 80, 2))
        self.has_failed = False
        self.written: deque[int] = deque()
        self.under_way: deque[tuple[int, ProxiedRequest, asyncio.Future[None]]] = deque()

    def write(self) -> None:
        ahead = len(self.written) + len(self.under_way)
        self.has_failed = self.has_failed and ahead > 0
        if self.due and ahead < 5 and not self.has_failed:
            self.written.append(self.due.popleft())

    def read(self) -> None:
        """The proxy takes a batch, if it knows where the one before it went."""
        if not self.written or (self.under_way and not self.under_way[-1][1].placed):
            return
        sequence = self.written.popleft()
        request, frame, body = self.world.framed({0: batch(sequence)})
        produce = few_rows(request, body)
        begun = self.world.batches.begin(request, frame, produce)
        work = asyncio.sleep(0) if begun else self.world.batches.run(request, frame, body, produce)
        self.under_way.append((sequence, request, asyncio.ensure_future(work)))

    async def answers(self) -> None:
        while self.under_way and self.under_way[0][1].parts is not None:
            sequence, request, work = self.under_way.popleft()
            await work
            code = codes(request)[0]
            assert code != ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            if code:
                self.has_failed = True
                self.due = deque(sorted([*self.due, sequence]))


@pytest.mark.parametrize("seed", range(100))
async def test_no_producer_is_told_that_it_is_out_of_order_because_its_leader_was_lost(seed: int) -> None:
    dice = Random(seed)
    world, log = World(), Log()
    producer = Producer(world)

    def take() -> ErrorCode:
        asked = leader.asked[len(leader.asked) - len(leader.told)]
        return log.take(read_header(asked.topic_data[0].partition_data[0].records or b"").base_sequence)

    while producer.due or producer.written or producer.under_way:
        leader, other = world.brokers[world.leader], world.brokers[1 - world.leader]
        deed = dice.randrange(12)
        if deed < 4:
            producer.write()
        elif deed < 7:
            producer.read()
        elif deed < 9 and leader.told:
            leader.answer(take())
        elif deed == 9:
            while other.told:
                other.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif deed == 10:
            world.leader = 1 - world.leader
            if dice.random() < 0.5:  # it was killed, having done a part of what it was asked
                for _ in range(dice.randint(0, len(leader.told))):
                    take()
                    leader.told.pop(0)(None, BrokerUnreachable("it broke"))
                while leader.told:
                    leader.told.pop(0)(None, BrokerUnreachable("it broke"))
        elif deed == 11:
            await world.find_leaders({"t"})  # another client has asked
        for _ in range(5):
            await asyncio.sleep(0)
        await producer.answers()
    assert log.stored == [*range(0, 80, 2)]
