"""Requests that name one thing very often, or very many of what most name one of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.attacks.asked import of, part
from benchmarks.attacks.attack import Attack
from benchmarks.attacks.kafka import topic
from benchmarks.attacks.many import rows
from benchmarks.attacks.target import Target
from benchmarks.attacks.wires import KafkaWire, request
from magnetar.wire.kafka.messages import ApiKey, request_class
from magnetar.wire.kafka.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol

_MANY = 200_000
_MEMBERS = 200
K = ApiKey


def fetched_rows() -> Any:
    group, one = (
        part(K.OFFSET_FETCH, "OffsetFetchRequestGroup"),
        part(K.OFFSET_FETCH, "OffsetFetchRequestTopics"),
    )
    topics = [one(name="prey", partition_indexes=[*range(_MANY)])]
    return of(K.OFFSET_FETCH)(groups=[group(group_id="g", topics=topics)])


def fetched_topics() -> Any:
    group, one = (
        part(K.OFFSET_FETCH, "OffsetFetchRequestGroup"),
        part(K.OFFSET_FETCH, "OffsetFetchRequestTopics"),
    )
    topics = [one(name=f"n{n}", partition_indexes=[0]) for n in range(_MANY // 2)]
    return of(K.OFFSET_FETCH)(groups=[group(group_id="g", topics=topics)])


def fetched_old() -> Any:
    one = part(K.OFFSET_FETCH, "OffsetFetchRequestTopic")
    return of(K.OFFSET_FETCH)(group_id="g", topics=[one(name="prey", partition_indexes=[*range(_MANY)])])


def fetched_again() -> Any:
    group = part(K.OFFSET_FETCH, "OffsetFetchRequestGroup")
    return of(K.OFFSET_FETCH)(groups=[group(group_id="g", topics=None)] * _MANY)


def shared_rows() -> Any:
    group = part(K.DESCRIBE_SHARE_GROUP_OFFSETS, "DescribeShareGroupOffsetsRequestGroup")
    one = part(K.DESCRIBE_SHARE_GROUP_OFFSETS, "DescribeShareGroupOffsetsRequestTopic")
    topics = [one(topic_name="prey", partitions=[0] * _MANY)]
    return of(K.DESCRIBE_SHARE_GROUP_OFFSETS)(groups=[group(group_id="s", topics=topics)])


def shared_groups() -> Any:
    group = part(K.DESCRIBE_SHARE_GROUP_OFFSETS, "DescribeShareGroupOffsetsRequestGroup")
    one = part(K.DESCRIBE_SHARE_GROUP_OFFSETS, "DescribeShareGroupOffsetsRequestTopic")
    topics = [one(topic_name="prey", partitions=[0])]
    groups = [group(group_id=f"n{n}", topics=topics) for n in range(80_000)]
    return of(K.DESCRIBE_SHARE_GROUP_OFFSETS)(groups=groups)


def group_again() -> Any:
    return of(K.DESCRIBE_GROUPS)(groups=["j"] * _MANY)


def members(target: Target) -> None:
    """A group of 200 members, who wait for each other."""
    clients = []
    for _ in range(_MEMBERS):
        client = KafkaWire(target)
        made = JoinGroupRequest(
            group_id="j",
            session_timeout_ms=300_000,
            rebalance_timeout_ms=300_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(100))],
        )
        client.send(request(made, 3))
        clients.append(client)
    _kept.extend(clients)


_kept: list[Any] = []


def described_topics() -> Any:
    one = part(K.DESCRIBE_TOPIC_PARTITIONS, "TopicRequest")
    names = [one(name=f"n{n * 7919 % _MANY}") for n in range(_MANY)]
    return of(K.DESCRIBE_TOPIC_PARTITIONS)(topics=names)


def sizes() -> Any:
    one = part(K.DESCRIBE_LOG_DIRS, "DescribableLogDirTopic")
    return of(K.DESCRIBE_LOG_DIRS)(topics=[one(topic="prey", partitions=[0] * _MANY)])


def sizes_of_topics() -> Any:
    one = part(K.DESCRIBE_LOG_DIRS, "DescribableLogDirTopic")
    return of(K.DESCRIBE_LOG_DIRS)(topics=[one(topic="prey", partitions=[0])] * 100_000)


def users() -> Any:
    user = part(K.DESCRIBE_USER_SCRAM_CREDENTIALS, "UserName")
    return of(K.DESCRIBE_USER_SCRAM_CREDENTIALS)(users=[user(name=f"n{n}") for n in range(_MANY)])


def epochs() -> Any:
    topics, one = (
        part(K.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderTopic"),
        part(K.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderPartition"),
    )
    places = [one(partition=n) for n in range(_MANY)]
    return of(K.OFFSET_FOR_LEADER_EPOCH)(topics=[topics(topic="prey", partitions=places)])


def deleted_records() -> Any:
    topics, one = (
        part(K.DELETE_RECORDS, "DeleteRecordsTopic"),
        part(K.DELETE_RECORDS, "DeleteRecordsPartition"),
    )
    places = [one(partition_index=n) for n in range(_MANY)]
    return of(K.DELETE_RECORDS)(topics=[topics(name="prey", partitions=places)], timeout_ms=1000)


def grown() -> Any:
    one = part(K.CREATE_PARTITIONS, "CreatePartitionsTopic")
    topics = [one(name=f"n{n}", count=1, assignments=None) for n in range(_MANY)]
    return of(K.CREATE_PARTITIONS)(topics=topics, timeout_ms=1000, validate_only=True)


def moved_dirs() -> Any:
    directory, one = (
        part(K.ALTER_REPLICA_LOG_DIRS, "AlterReplicaLogDir"),
        part(K.ALTER_REPLICA_LOG_DIRS, "AlterReplicaLogDirTopic"),
    )
    topics = [one(name="prey", partitions=[*range(_MANY)])]
    return of(K.ALTER_REPLICA_LOG_DIRS)(dirs=[directory(path="/d", topics=topics)])


def resources() -> Any:
    resource = part(K.INCREMENTAL_ALTER_CONFIGS, "AlterConfigsResource")
    named = [resource(resource_type=2, resource_name=f"n{n}", configs=[]) for n in range(_MANY)]
    return of(K.INCREMENTAL_ALTER_CONFIGS)(resources=named, validate_only=True)


def replaced() -> Any:
    resource = part(K.ALTER_CONFIGS, "AlterConfigsResource")
    config = part(K.ALTER_CONFIGS, "AlterableConfig")
    configs = [config(name=f"c{n}", value="1") for n in range(_MANY)]
    named = [resource(resource_type=2, resource_name="prey", configs=configs)]
    return of(K.ALTER_CONFIGS)(resources=named, validate_only=True)


def kinds() -> Any:
    return of(K.LIST_CONFIG_RESOURCES)(resource_types=[n % 100 for n in range(_MANY)])


def filters(key: ApiKey, **given: Callable[[int], Any]) -> Callable[[], Any]:
    return lambda: of(key)(**{name: [made(n) for n in range(_MANY // 2)] for name, made in given.items()})


def _made(
    name: str, key: ApiKey, make: Callable[[], Any], version: int | None = None, before: Any = topic
) -> Attack:
    newest = request_class(key).MAX_VERSION if version is None else version
    return Attack(f"kafka: {name}", before, rows(make, newest, 3))


ATTACKS = (
    _made("OffsetFetch, 200,000 rows", K.OFFSET_FETCH, fetched_rows, 9),
    _made("OffsetFetch, 100,000 topics", K.OFFSET_FETCH, fetched_topics, 9),
    _made("OffsetFetch, 200,000 rows, old", K.OFFSET_FETCH, fetched_old, 7),
    _made("OffsetFetch, one group 200,000 times", K.OFFSET_FETCH, fetched_again, 9),
    _made("DescribeGroups, 200 members 200,000 times", K.DESCRIBE_GROUPS, group_again, before=members),
    _made("DescribeShareGroupOffsets, 200,000 rows", K.DESCRIBE_SHARE_GROUP_OFFSETS, shared_rows),
    _made("DescribeShareGroupOffsets, 80,000 named", K.DESCRIBE_SHARE_GROUP_OFFSETS, shared_groups),
    _made("DescribeTopicPartitions, 200,000 names", K.DESCRIBE_TOPIC_PARTITIONS, described_topics),
    _made("DescribeLogDirs, 200,000 rows", K.DESCRIBE_LOG_DIRS, sizes),
    _made("DescribeLogDirs, one topic 100,000 times", K.DESCRIBE_LOG_DIRS, sizes_of_topics),
    _made("DescribeUserScramCredentials, 200,000", K.DESCRIBE_USER_SCRAM_CREDENTIALS, users),
    _made("OffsetForLeaderEpoch, 200,000 rows", K.OFFSET_FOR_LEADER_EPOCH, epochs),
    _made("DeleteRecords, 200,000 rows", K.DELETE_RECORDS, deleted_records),
    _made("CreatePartitions, 200,000 only validated", K.CREATE_PARTITIONS, grown),
    _made("AlterReplicaLogDirs, 200,000 rows", K.ALTER_REPLICA_LOG_DIRS, moved_dirs),
    _made("IncrementalAlterConfigs, 200,000 resources", K.INCREMENTAL_ALTER_CONFIGS, resources),
    _made("AlterConfigs, 200,000 only validated", K.ALTER_CONFIGS, replaced),
    _made("ListConfigResources, 200,000 kinds", K.LIST_CONFIG_RESOURCES, kinds),
    _made(
        "ListGroups, 200,000 filters",
        K.LIST_GROUPS,
        filters(K.LIST_GROUPS, states_filter=lambda n: f"n{n}", types_filter=lambda n: f"n{n}"),
    ),
    _made(
        "ListTransactions, 200,000 filters",
        K.LIST_TRANSACTIONS,
        filters(K.LIST_TRANSACTIONS, state_filters=lambda n: f"n{n}", producer_id_filters=lambda n: n),
    ),
)
