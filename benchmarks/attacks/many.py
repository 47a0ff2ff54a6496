"""Requests of Kafka's with as many rows as a frame takes."""

from __future__ import annotations

from typing import Any

from benchmarks.attacks.attack import Attack
from benchmarks.attacks.kafka import FETCH, ROWS, fetch, nothing, topic
from benchmarks.attacks.target import Target
from benchmarks.attacks.wires import KafkaWire, request
from magnetar.wire.kafka.message import Message
from magnetar.wire.kafka.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from magnetar.wire.kafka.messages.delete_topics_request import DeleteTopicsRequest
from magnetar.wire.kafka.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from magnetar.wire.kafka.messages.describe_groups_request import DescribeGroupsRequest
from magnetar.wire.kafka.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from magnetar.wire.kafka.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from magnetar.wire.kafka.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from magnetar.wire.kafka.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from magnetar.wire.kafka.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from magnetar.wire.kafka.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from magnetar.wire.kafka.messages.share_fetch_request import FetchPartition as SharedRow
from magnetar.wire.kafka.messages.share_fetch_request import FetchTopic as SharedTopic
from magnetar.wire.kafka.messages.share_fetch_request import ShareFetchRequest

_TOPIC = 2


def rows(made: Any, version: int, times: int = 1) -> Any:
    """Send a request, ``times`` one after the other, and wait for the answers."""

    def strike(target: Target, prepared: Any) -> str:
        said = request(made(), version)
        for _ in range(times):
            with KafkaWire(target) as client:
                client.send(said)
                try:
                    client.frame()
                except ConnectionError:
                    return "closed"
        return ""

    return strike


def produce() -> Message:
    data = [PartitionProduceData(index=index, records=b"") for index in range(ROWS)]
    return ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="prey", partition_data=data)]
    )


def produce_topics() -> Message:
    data = [PartitionProduceData(index=0, records=b"")]
    return ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=f"none{n}", partition_data=data) for n in range(ROWS // 2)],
    )


def validate_only() -> Message:
    topics = [CreatableTopic(name=f"new{n}", num_partitions=1, replication_factor=1) for n in range(100_000)]
    return CreateTopicsRequest(topics=topics, timeout_ms=1000, validate_only=True)


def assignments() -> Message:
    wanted = [CreatableReplicaAssignment(partition_index=n, broker_ids=[1]) for n in range(ROWS // 2)]
    topics = [CreatableTopic(name="new", num_partitions=-1, replication_factor=-1, assignments=wanted)]
    return CreateTopicsRequest(topics=topics, timeout_ms=1000, validate_only=True)


def delete() -> Message:
    return DeleteTopicsRequest(topic_names=[f"none{n}" for n in range(ROWS)], timeout_ms=1000)


def metadata(count: int = ROWS) -> Message:
    topics = [MetadataRequestTopic(name=f"none{n}") for n in range(count)]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def list_offsets() -> Message:
    places = [ListOffsetsPartition(timestamp=-1)] * ROWS
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name="prey", partitions=places)])


def configs() -> Message:
    wanted = [DescribeConfigsResource(resource_type=_TOPIC, resource_name="prey") for _ in range(10_000)]
    return DescribeConfigsRequest(resources=wanted)


def offset_fetch() -> Message:
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=f"g{n}", topics=None) for n in range(ROWS)]
    )


def groups() -> Message:
    return DescribeGroupsRequest(groups=[f"g{n}" for n in range(ROWS)])


def producers() -> Message:
    return DescribeProducersRequest(topics=[TopicRequest(name="prey", partition_indexes=[*range(ROWS)])])


def leaders() -> Message:
    return ElectLeadersRequest(
        topic_partitions=[TopicPartitions(topic="prey", partitions=[*range(ROWS)])], timeout_ms=1000
    )


def leave() -> Message:
    members = [MemberIdentity(member_id=f"m{n}") for n in range(100_000)]
    return LeaveGroupRequest(group_id="g", members=members)


def share_fetch() -> Message:
    asked = [SharedRow(partition_index=n) for n in range(200_000)]
    topics = [SharedTopic(topic_id=b"t" * 16, partitions=asked)]
    return ShareFetchRequest(group_id="g", member_id="m", max_wait_ms=9, max_bytes=9, topics=topics)


def commit() -> Message:
    places = [OffsetCommitRequestPartition(partition_index=n, committed_offset=0) for n in range(100_000)]
    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name="prey", partitions=places)],
    )


ATTACKS = (
    Attack("kafka: Metadata, 900,000 names", nothing, rows(lambda: metadata(900_000), 12)),
    Attack("kafka: Produce, 249,000 partitions", topic, rows(produce, 9)),
    Attack("kafka: Produce, 124,000 topics", topic, rows(produce_topics, 9)),
    Attack("kafka: Fetch, 249,000 rows", topic, rows(lambda: fetch("prey", rows=ROWS), FETCH)),
    Attack(
        "kafka: Fetch in a session of 9,900 rows",
        topic,
        rows(lambda: fetch("prey", rows=9900, session=True), FETCH, 5),
    ),
    Attack("kafka: CreateTopics, 100,000 only validated", nothing, rows(validate_only, 5)),
    Attack("kafka: CreateTopics, 124,000 assignments", nothing, rows(assignments, 5)),
    Attack("kafka: DeleteTopics, 249,000", nothing, rows(delete, 5)),
    Attack("kafka: Metadata, 249,000 names", nothing, rows(metadata, 12)),
    Attack("kafka: ListOffsets, 249,000 rows", topic, rows(list_offsets, 7)),
    Attack("kafka: DescribeConfigs, 10,000 topics", topic, rows(configs, 4)),
    Attack("kafka: OffsetFetch, 249,000 groups", topic, rows(offset_fetch, 8)),
    Attack("kafka: DescribeGroups, 249,000", nothing, rows(groups, 5)),
    Attack("kafka: DescribeProducers, 249,000 rows", topic, rows(producers, 0)),
    Attack("kafka: ElectLeaders, 249,000 rows", topic, rows(leaders, 2)),
    Attack("kafka: LeaveGroup, 100,000 members", topic, rows(leave, 5)),
    Attack("kafka: ShareFetch, 200,000 rows", nothing, rows(share_fetch, 1, 5)),
    Attack("kafka: OffsetCommit, 100,000 rows", topic, rows(commit, 8)),
)
