"""Elections and reassignments: on one broker nothing moves, and tools are told so as by a Kafka of one broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from magnetar.wire.kafka.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from magnetar.wire.kafka.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.handlers_admin.conversation import Client, client

E = ErrorCode
NEEDLESS = (E.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")


async def house(tmp_path: Path) -> Client:
    kafka = await client(tmp_path, broker_id="1")
    await kafka.broker.create_topic("t", 2)
    return kafka


@pytest.mark.parametrize("version", range(3))
async def test_no_partition_needs_an_election(tmp_path: Path, version: int) -> None:
    kafka = await house(tmp_path)
    asked = [
        TopicPartitions(topic="t", partitions=[1, 9, -1]),
        TopicPartitions(topic="nix", partitions=[0]),
        TopicPartitions(topic="a b", partitions=[0]),
    ]
    answer = await kafka.ask(ElectLeadersRequest(topic_partitions=asked), version)
    assert answer.error_code == 0
    assert {
        (topic.topic, row.partition_id): (E(row.error_code), row.error_message)
        for topic in answer.replica_election_results
        for row in topic.partition_result
    } == {
        ("t", 1): NEEDLESS,
        ("t", 9): (E.UNKNOWN_TOPIC_OR_PARTITION, "No such partition as t-9"),
        ("t", -1): (E.UNKNOWN_TOPIC_OR_PARTITION, "No such partition as t--1"),
        ("nix", 0): (E.UNKNOWN_TOPIC_OR_PARTITION, "No such topic as nix"),
        ("a b", 0): (E.UNKNOWN_TOPIC_OR_PARTITION, "No such topic as a b"),
    }


async def test_elections_of_all_partitions_and_of_each_kind(tmp_path: Path) -> None:
    kafka = await house(tmp_path)
    everything = await kafka.ask(ElectLeadersRequest(topic_partitions=None))
    assert (everything.error_code, everything.replica_election_results) == (0, [])
    for kind, code, message in ((1, *NEEDLESS), (7, E.INVALID_REQUEST, "Unknown election type 7")):
        one = [TopicPartitions(topic="t", partitions=[0])]
        answer = await kafka.ask(ElectLeadersRequest(election_type=kind, topic_partitions=one))
        (row,) = answer.replica_election_results[0].partition_result
        assert (row.error_code, row.error_message) == (code, message)
        assert answer.error_code == (code if kind == 7 else 0)


@pytest.mark.parametrize(
    ("name", "index", "replicas", "code", "message"),
    [
        ("t", 0, [1], E.NONE, None),
        ("t", 1, None, E.NO_REASSIGNMENT_IN_PROGRESS, None),
        (
            "t",
            0,
            [],
            E.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        ("t", 0, [1, 1], E.INVALID_REPLICA_ASSIGNMENT, "includes the broker 1 more than once."),
        (
            "t",
            0,
            [1, 5],
            E.INVALID_REPLICA_ASSIGNMENT,
            "includes broker 5, but no such broker is registered.",
        ),
        ("t", 9, [1], E.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find partition t:9."),
        ("t", -1, None, E.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find partition t:-1."),
        ("nix", 0, [1], E.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find a topic named nix."),
    ],
)
async def test_replicas_stay_where_they_are(
    tmp_path: Path, name: str, index: int, replicas: list[int] | None, code: ErrorCode, message: str | None
) -> None:
    kafka = await house(tmp_path)
    partition = ReassignablePartition(partition_index=index, replicas=replicas)
    topics = [ReassignableTopic(name=name, partitions=[partition])]
    for version in range(2):
        answer = await kafka.ask(AlterPartitionReassignmentsRequest(topics=topics), version)
        assert (answer.error_code, answer.error_message) == (0, None)
        (row,) = answer.responses[0].partitions
        assert (answer.responses[0].name, row.partition_index, row.error_code) == (name, index, code)
        assert row.error_message == message or (row.error_message or "").endswith(f" {message}")


async def test_no_reassignment_is_ever_under_way(tmp_path: Path) -> None:
    kafka = await house(tmp_path)
    for topics in (None, [ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 9])]):
        answer = await kafka.ask(ListPartitionReassignmentsRequest(topics=topics))
        assert (answer.error_code, answer.error_message, answer.topics) == (0, None, [])
