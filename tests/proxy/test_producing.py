"""Batches to scripted brokers: they overlap, are sent once, wait for each other after a move, and their end is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from magnetar.client.errors import BrokerUnreachable
from magnetar.proxy.figures import RelayFigures
from magnetar.proxy.kafka.fetching import framed
from magnetar.proxy.kafka.producing import BatchRelay
from magnetar.proxy.kafka.request import ProxiedRequest
from magnetar.proxy.kafka.rewriting import Place
from magnetar.proxy.kafka.routes import Routes
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


class World:
    """Partition n of topic t is led by broker n; it is what `BatchRelay` asks of a relay."""

    place = Place(9, "proxy", 1)
    within_s = 60.0

    def __init__(self) -> None:
        self.figures = RelayFigures()
        self.routes = Routes()
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

    def produce(self, *partitions: int, acks: int = -1) -> tuple[bool, ProxiedRequest]:
        header = RequestHeader(0, VERSION, 5, "me")
        rows = [PartitionProduceData(index=n, records=b"%d" % n) for n in partitions]
        frame = framed(
            header, ProduceRequest(acks=acks, topic_data=[TopicProduceData(name="t", partition_data=rows)])
        )
        request = ProxiedRequest(header, len(frame), 0.0)
        _, body = decode_request_header(frame)
        return self.batches.begin(request, frame, body), request

    def _answered(self, request: ProxiedRequest, parts: Sequence[Any]) -> None:
        request.parts = parts
        self.answers.append(parts)

    def _failed(self, request: ProxiedRequest, error: Exception) -> None:
        raise error


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
