"""Where a proxy sends requests, as routes have it: their rows and keys are fields of the messages."""

from __future__ import annotations

import pytest

from magnetar.kafka.handlers import ROUTE_BY_KEY
from magnetar.kafka.rows import KeyRows, PartitionRows, Way
from magnetar.proxy.kafka.passed import versions_of
from magnetar.proxy.kafka.rewriting import REWRITTEN, Place
from magnetar.wire.kafka.messages import API_KEYS, ApiKey, request_class, response_class
from magnetar.wire.kafka.messages.describe_topic_partitions_response import (
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

PASSED = [route for route in ROUTE_BY_KEY.values() if route.way is not Way.NOT_PASSED]


@pytest.mark.parametrize("key", sorted(route.api_key for route in PASSED), ids=lambda key: API_KEYS[key][0])
def test_versions_are_those_of_brokers(key: int) -> None:
    served = ROUTE_BY_KEY[key].versions
    assert versions_of(key)[-1] == served[-1]
    assert versions_of(key)[0] == (1 if key == ApiKey.SASL_HANDSHAKE else served[0])


def test_an_unknown_api_has_no_versions() -> None:
    assert not versions_of(999)
    assert not versions_of(ApiKey.READ_SHARE_GROUP_STATE)


@pytest.mark.parametrize("key", sorted(route.api_key for route in PASSED), ids=lambda key: API_KEYS[key][0])
def test_rows_and_keys_are_fields_of_the_messages(key: int) -> None:
    route = ROUTE_BY_KEY[key]
    for message, rows in ((request_class(key), route.asked), (response_class(key), route.answered)):
        if isinstance(rows, KeyRows):
            assert rows.rows in message.__slots__
        if isinstance(rows, PartitionRows):
            assert rows.topics.partition(".")[0] in message.__slots__
    if route.key:
        assert route.key in request_class(key).__slots__
    if route.way is Way.COORDINATOR:
        assert route.key
    if route.way in (Way.COORDINATORS, Way.EVERY):
        assert isinstance(route.answered, KeyRows)
    if route.way is Way.LEADERS:
        assert isinstance(route.asked, PartitionRows)


def test_answers_that_name_brokers_are_told_in_other_words() -> None:
    """What has a field for a broker's place or number is rewritten, or is known to need none."""
    told = {"node_id", "leader_id", "controller_id", "broker_id", "host", "node_endpoints"}
    naming = {
        route.api_key
        for route in PASSED
        if told & {name for row in _classes_of(response_class(route.api_key)) for name in row.__slots__}
    }
    assert naming - REWRITTEN.keys() <= set(_NAME_OTHERS)


_NAME_OTHERS = {ApiKey.DESCRIBE_ACLS: "of clients", ApiKey.DELETE_ACLS: "of clients"}
_NAME_OTHERS |= dict.fromkeys((ApiKey.STREAMS_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_DESCRIBE), "of members")
_NAME_OTHERS |= dict.fromkeys(
    (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE), "left out where answers are joined"
)
"""Answers with such a field that is no broker's, and whose it is."""


def _classes_of(message: type) -> list[type]:
    import sys

    from magnetar.wire.kafka.message import Record

    module = sys.modules[message.__module__]
    return [each for each in vars(module).values() if isinstance(each, type) and issubclass(each, Record)]


def test_partitions_are_described_as_javas_client_can_read_it() -> None:
    row = DescribeTopicPartitionsResponsePartition(
        leader_id=3, replica_nodes=[3, 4], isr_nodes=[3], eligible_leader_replicas=[3], offline_replicas=[4]
    )
    answer = DescribeTopicPartitionsResponse(
        topics=[DescribeTopicPartitionsResponseTopic(name="t", partitions=[row])]
    )
    REWRITTEN[ApiKey.DESCRIBE_TOPIC_PARTITIONS](answer, Place(7, "proxy", 9092))
    assert (row.leader_id, row.replica_nodes, row.isr_nodes) == (7, [7], [7])
    assert (row.eligible_leader_replicas, row.last_known_elr, row.offline_replicas) == ([], [], [])
