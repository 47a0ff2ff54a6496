"""What tools ask of a Kafka before they go on: its ACLs, and who produces."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.describe_acls_request import DescribeAclsRequest
from magnetar.wire.kafka.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from magnetar.wire.kafka.messages.describe_producers_response import PartitionResponse
from tests.hostile.client import Wire
from tests.process import BrokerProcess

EVERYTHING = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)
ONE = AclBinding(
    ResourceType.TOPIC,
    "t",
    ResourcePatternType.LITERAL,
    "User:somebody",
    "*",
    AclOperation.READ,
    AclPermissionType.ALLOW,
)
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def refusal(answer: Future[object]) -> KafkaError:
    with pytest.raises(KafkaException) as raised:
        answer.result(30)
    error: KafkaError = raised.value.args[0]
    return error


@pytest.mark.parametrize(
    "ask",
    [
        lambda admin: admin.create_acls([ONE])[ONE],
        lambda admin: admin.delete_acls([EVERYTHING])[EVERYTHING],
    ],
)
def test_acls_are_disabled_as_without_an_authorizer(
    broker: BrokerProcess, ask: Callable[[AdminClient], Future[object]]
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    error = refusal(ask(admin))
    assert error.code() == KafkaError.SECURITY_DISABLED
    assert "No Authorizer is configured" in error.str()
    assert "authorization.enabled" in error.str(), "what to do next"


def test_looking_for_acls_is_told_the_same(broker: BrokerProcess) -> None:
    asked = DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
    with Wire(broker.host_and_port) as wire:  # librdkafka does not tell this code on
        answer = wire.ask(asked)
    assert (answer.error_code, answer.resources) == (ErrorCode.SECURITY_DISABLED, [])


def described(broker: BrokerProcess, *topics: TopicRequest) -> dict[str, list[PartitionResponse]]:
    with Wire(broker.host_and_port) as wire:
        answer = wire.ask(DescribeProducersRequest(topics=list(topics)))
    return {topic.name: topic.partitions for topic in answer.topics}


@pytest.mark.slow
def test_a_partition_tells_its_idempotent_producers_before_and_after_kill_9(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        for last in (4, 2):
            producer = Producer({"bootstrap.servers": broker.address, "enable.idempotence": True})
            for at in range(last + 1):
                producer.produce("told", b"x", timestamp=1_700_000_000_000 + at)
            assert producer.flush(30) == 0
        plain = Producer({"bootstrap.servers": broker.address})
        plain.produce("told", b"x")
        assert plain.flush(30) == 0
        before = told_producers(broker)
        broker.kill()
    assert before == [(0, 4, 1_700_000_000_004, -1, -1), (0, 2, 1_700_000_000_002, -1, -1)]
    with BrokerProcess(tmp_path / "data") as broker:
        assert told_producers(broker) == before


def told_producers(broker: BrokerProcess) -> list[tuple[int, ...]]:
    """Epoch, last sequence, last timestamp, coordinator epoch and start of a transaction, by producer id."""
    (row,) = described(broker, TopicRequest(name="told", partition_indexes=[0]))["told"]
    assert row.error_code == 0
    assert len({each.producer_id for each in row.active_producers}) == len(row.active_producers)
    return [
        (
            each.producer_epoch,
            each.last_sequence,
            each.last_timestamp,
            each.coordinator_epoch,
            each.current_txn_start_offset,
        )
        for each in sorted(row.active_producers, key=lambda each: each.producer_id)
    ]


def test_producers_of_what_is_not_there_and_of_the_same_again(broker: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": broker.address})
    producer.produce("asked-twice", b"x")
    assert producer.flush(30) == 0
    answer = described(
        broker,
        TopicRequest(name="asked-twice", partition_indexes=[0, 99, -1, 0]),
        TopicRequest(name="nowhere", partition_indexes=[0]),
        TopicRequest(name="a b", partition_indexes=[0]),
        TopicRequest(name="asked-twice", partition_indexes=[0]),
    )
    assert {
        name: [(row.partition_index, row.error_code) for row in rows] for name, rows in answer.items()
    } == {
        "asked-twice": [(0, 0), (99, UNKNOWN), (-1, UNKNOWN)],
        "nowhere": [(0, UNKNOWN)],
        "a b": [(0, ErrorCode.INVALID_TOPIC_EXCEPTION)],
    }
