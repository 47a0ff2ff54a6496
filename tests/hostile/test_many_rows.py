"""Requests with as many rows as a frame takes: whoever sends them waits for the answer, and nobody else."""

from __future__ import annotations

import select

import pytest

from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.message import Message
from magnetar.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from magnetar.wire.kafka.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from magnetar.wire.kafka.messages.describe_groups_request import DescribeGroupsRequest
from magnetar.wire.kafka.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from magnetar.wire.kafka.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from magnetar.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from magnetar.wire.kafka.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.hostile.client import Wire, frame, request_bytes
from tests.process import BrokerProcess

ROWS = range(100_000)
_TOPIC = 2


def metadata(names: list[str]) -> MetadataRequest:
    """Ask for topics, and make none."""
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


REQUESTS: list[tuple[Message, int]] = [
    (metadata([f"none{i}" for i in ROWS]), 12),
    (
        ListOffsetsRequest(
            topics=[
                ListOffsetsTopic(name="prey", partitions=[ListOffsetsPartition(timestamp=-1)] * len(ROWS))
            ]
        ),
        7,
    ),
    (
        FetchRequest(
            topics=[FetchTopic(topic="prey", partitions=[FetchPartition(partition=i) for i in ROWS])],
            session_epoch=-1,
        ),
        12,
    ),
    (
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=_TOPIC, resource_name="prey") for _ in ROWS[:10_000]
            ]
        ),
        4,
    ),
    (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=f"g{i}", topics=None) for i in ROWS]), 8),
    (DescribeGroupsRequest(groups=[f"g{i}" for i in ROWS]), 5),
    (DescribeProducersRequest(topics=[TopicRequest(name="prey", partition_indexes=[*ROWS])]), 0),
    (
        ElectLeadersRequest(
            topic_partitions=[TopicPartitions(topic="prey", partitions=[*ROWS, *ROWS])],
        ),
        2,
    ),
]
MIN_BETWEEN = 5
MAX_BYTES = 256 << 20


@pytest.mark.parametrize(("message", "version"), REQUESTS, ids=lambda value: type(value).__name__)
def test_others_are_answered_meanwhile(
    wire: Wire, topic: str, target: BrokerProcess, message: Message, version: int
) -> None:
    target.forget_peak()
    before = target.resident_bytes
    with Wire(target.host_and_port) as other:
        wire.send(frame(request_bytes(message, version)))
        between = 0
        while not select.select([wire.socket], [], [], 0)[0]:
            assert other.ask(ApiVersionsRequest(), 0).error_code == 0
            between += 1
        wire.frame()
    assert between >= MIN_BETWEEN
    assert target.peak_bytes - before < MAX_BYTES


def test_an_answer_to_many_rows_is_whole_and_in_order(wire: Wire, topic: str) -> None:
    names = [f"none{i}" for i in ROWS] + [topic]
    told = wire.ask(metadata(names), 12).topics
    assert [row.name for row in told] == names
    assert {row.error_code for row in told[:-1]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert told[-1].error_code == 0
    assert len(told[-1].partitions) > 0


def test_a_client_that_leaves_amid_its_many_rows(topic: str, target: BrokerProcess, wire: Wire) -> None:
    for message, version in REQUESTS:
        with Wire(target.host_and_port) as leaver:
            leaver.send(frame(request_bytes(message, version)))
    assert wire.ask(ApiVersionsRequest(), 0).error_code == 0


def test_many_rows_that_end_too_early_close_the_connection(target: BrokerProcess) -> None:
    message, version = REQUESTS[0]
    with Wire(target.host_and_port) as liar:
        liar.send(frame(request_bytes(message, version)[:-100_000]))
        assert liar.is_closed()
