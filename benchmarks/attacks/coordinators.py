"""Requests with very many rows to coordinators of groups, transactions and share states; and of ACLs and quotas."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.attacks.asked import of, part
from benchmarks.attacks.attack import Attack
from benchmarks.attacks.kafka import topic
from benchmarks.attacks.many import rows
from magnetar.wire.kafka.messages import ApiKey, request_class

_MANY = 200_000
_TIMES = 3


def _names() -> list[str]:
    return [f"n{n}" for n in range(_MANY)]


def consumer_heartbeat() -> Any:
    return of(ApiKey.CONSUMER_GROUP_HEARTBEAT)(
        group_id="g",
        member_id="m",
        rebalance_timeout_ms=9000,
        subscribed_topic_names=_names(),
        topic_partitions=[],
    )


def consumer_heartbeat_owned() -> Any:
    owned = part(ApiKey.CONSUMER_GROUP_HEARTBEAT, "TopicPartitions")
    rows = [owned(topic_id=b"t" * 16, partitions=[*range(_MANY)])]
    return of(ApiKey.CONSUMER_GROUP_HEARTBEAT)(
        group_id="g", member_id="m", member_epoch=1, topic_partitions=rows
    )


def share_heartbeat() -> Any:
    return of(ApiKey.SHARE_GROUP_HEARTBEAT)(group_id="s", member_id="m", subscribed_topic_names=_names())


def streams_heartbeat() -> Any:
    subtopology = part(ApiKey.STREAMS_GROUP_HEARTBEAT, "Subtopology")
    topology = part(ApiKey.STREAMS_GROUP_HEARTBEAT, "Topology")
    parts = [subtopology(subtopology_id=str(n), source_topics=["prey"]) for n in range(50_000)]
    return of(ApiKey.STREAMS_GROUP_HEARTBEAT)(
        group_id="t",
        member_id="m",
        rebalance_timeout_ms=9000,
        process_id="p",
        topology=topology(epoch=1, subtopologies=parts),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )


def join() -> Any:
    protocol = part(ApiKey.JOIN_GROUP, "JoinGroupRequestProtocol")
    return of(ApiKey.JOIN_GROUP)(
        group_id="j",
        session_timeout_ms=9000,
        rebalance_timeout_ms=9000,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol(name=f"p{n}", metadata=b"") for n in range(_MANY)],
    )


def sync() -> Any:
    given = part(ApiKey.SYNC_GROUP, "SyncGroupRequestAssignment")
    return of(ApiKey.SYNC_GROUP)(
        group_id="j", generation_id=1, member_id="m",
        assignments=[given(member_id=f"m{n}", assignment=b"") for n in range(_MANY)],
    )  # fmt: skip


def add_partitions() -> Any:
    one = part(ApiKey.ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxnTopic")
    return of(ApiKey.ADD_PARTITIONS_TO_TXN)(
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=1,
        v3_and_below_topics=[one(name="prey", partitions=[*range(_MANY)])],
    )


def add_to_transactions() -> Any:
    one = part(ApiKey.ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxnTransaction")
    return of(ApiKey.ADD_PARTITIONS_TO_TXN)(
        transactions=[one(transactional_id=f"t{n}", producer_id=1) for n in range(100_000)]
    )


def txn_commit() -> Any:
    topics = part(ApiKey.TXN_OFFSET_COMMIT, "TxnOffsetCommitRequestTopic")
    row = part(ApiKey.TXN_OFFSET_COMMIT, "TxnOffsetCommitRequestPartition")
    return of(ApiKey.TXN_OFFSET_COMMIT)(
        transactional_id="t", group_id="g", producer_id=1,
        topics=[topics(name="prey", partitions=[row(partition_index=n) for n in range(100_000)])],
    )  # fmt: skip


def markers() -> Any:
    marker = part(ApiKey.WRITE_TXN_MARKERS, "WritableTxnMarker")
    topics = part(ApiKey.WRITE_TXN_MARKERS, "WritableTxnMarkerTopic")
    rows = [topics(name="prey", partition_indexes=[*range(_MANY)])]
    return of(ApiKey.WRITE_TXN_MARKERS)(markers=[marker(producer_id=1, topics=rows)])


def keys(key: ApiKey, field: str, **given: Any) -> Any:
    return of(key)(**{field: _names()}, **given)


def states(key: ApiKey, data: str, **given: Any) -> Any:
    row, topics = part(key, "PartitionData"), part(key, data)
    return of(key)(
        group_id="s",
        topics=[topics(topic_id=b"t" * 16, partitions=[row(partition=n, **given) for n in range(_MANY)])],
    )


def share_acknowledge() -> Any:
    topics = part(ApiKey.SHARE_ACKNOWLEDGE, "AcknowledgeTopic")
    row = part(ApiKey.SHARE_ACKNOWLEDGE, "AcknowledgePartition")
    batch = part(ApiKey.SHARE_ACKNOWLEDGE, "AcknowledgementBatch")
    batches = [batch(first_offset=n, last_offset=n, acknowledge_types=[1]) for n in range(_MANY)]
    return of(ApiKey.SHARE_ACKNOWLEDGE)(
        group_id="s", member_id="m", share_session_epoch=1,
        topics=[topics(topic_id=b"t" * 16, partitions=[row(partition_index=0, acknowledgement_batches=batches)])],
    )  # fmt: skip


def share_offsets() -> Any:
    groups = part(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, "DescribeShareGroupOffsetsRequestGroup")
    return of(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS)(groups=[groups(group_id=n, topics=None) for n in _names()])


def alter_share_offsets() -> Any:
    topics = part(ApiKey.ALTER_SHARE_GROUP_OFFSETS, "AlterShareGroupOffsetsRequestTopic")
    row = part(ApiKey.ALTER_SHARE_GROUP_OFFSETS, "AlterShareGroupOffsetsRequestPartition")
    places = [row(partition_index=n, start_offset=0) for n in range(_MANY)]
    return of(ApiKey.ALTER_SHARE_GROUP_OFFSETS)(
        group_id="s", topics=[topics(topic_name="prey", partitions=places)]
    )


def delete_share_offsets() -> Any:
    topics = part(ApiKey.DELETE_SHARE_GROUP_OFFSETS, "DeleteShareGroupOffsetsRequestTopic")
    return of(ApiKey.DELETE_SHARE_GROUP_OFFSETS)(
        group_id="s", topics=[topics(topic_name=name) for name in _names()]
    )


def offset_delete() -> Any:
    topics = part(ApiKey.OFFSET_DELETE, "OffsetDeleteRequestTopic")
    row = part(ApiKey.OFFSET_DELETE, "OffsetDeleteRequestPartition")
    places = [row(partition_index=n) for n in range(_MANY)]
    return of(ApiKey.OFFSET_DELETE)(group_id="g", topics=[topics(name="prey", partitions=places)])


def create_acls() -> Any:
    acl = part(ApiKey.CREATE_ACLS, "AclCreation")
    return of(ApiKey.CREATE_ACLS)(
        creations=[
            acl(
                resource_type=2,
                resource_name=f"n{n}",
                resource_pattern_type=3,
                principal="User:a",
                host="*",
                operation=3,
                permission_type=3,
            )
            for n in range(50_000)
        ]
    )


def delete_acls() -> Any:
    one = part(ApiKey.DELETE_ACLS, "DeleteAclsFilter")
    return of(ApiKey.DELETE_ACLS)(
        filters=[
            one(
                resource_type_filter=2,
                resource_name_filter=f"n{n}",
                pattern_type_filter=3,
                principal_filter=None,
                host_filter=None,
                operation=1,
                permission_type=1,
            )
            for n in range(50_000)
        ]
    )


def alter_quotas() -> Any:
    entry, entity, op = (
        part(ApiKey.ALTER_CLIENT_QUOTAS, name) for name in ("EntryData", "EntityData", "OpData")
    )
    return of(ApiKey.ALTER_CLIENT_QUOTAS)(
        validate_only=True,
        entries=[
            entry(
                entity=[entity(entity_type="user", entity_name=f"u{n}")],
                ops=[op(key="producer_byte_rate", value=1.0, remove=False)],
            )
            for n in range(50_000)
        ],
    )


def describe_quotas() -> Any:
    component = part(ApiKey.DESCRIBE_CLIENT_QUOTAS, "ComponentData")
    return of(ApiKey.DESCRIBE_CLIENT_QUOTAS)(
        components=[component(entity_type=f"user{n}", match_type=0, match="a") for n in range(_MANY)]
    )


def alter_configs() -> Any:
    resource = part(ApiKey.INCREMENTAL_ALTER_CONFIGS, "AlterConfigsResource")
    config = part(ApiKey.INCREMENTAL_ALTER_CONFIGS, "AlterableConfig")
    configs = [config(name=f"c{n}", config_operation=0, value="1") for n in range(_MANY)]
    return of(ApiKey.INCREMENTAL_ALTER_CONFIGS)(
        resources=[resource(resource_type=2, resource_name="prey", configs=configs)], validate_only=True
    )


def _made(name: str, key: ApiKey, make: Callable[[], Any], version: int | None = None) -> Attack:
    newest = request_class(key).MAX_VERSION if version is None else version
    return Attack(f"kafka: {name}", topic, rows(make, newest, _TIMES))


def _keys(name: str, key: ApiKey, field: str) -> Attack:
    return _made(name, key, partial(keys, key, field))


def _states(name: str, key: ApiKey, row: str) -> Attack:
    return _made(name, key, partial(states, key, row))


K = ApiKey
ATTACKS = (
    _made("ConsumerGroupHeartbeat, 200,000 names", K.CONSUMER_GROUP_HEARTBEAT, consumer_heartbeat),
    _made("ConsumerGroupHeartbeat, 200,000 owned", K.CONSUMER_GROUP_HEARTBEAT, consumer_heartbeat_owned),
    _made("ShareGroupHeartbeat, 200,000 names", K.SHARE_GROUP_HEARTBEAT, share_heartbeat),
    _made("StreamsGroupHeartbeat, 50,000 subtopologies", K.STREAMS_GROUP_HEARTBEAT, streams_heartbeat),
    _made("JoinGroup, 200,000 protocols", K.JOIN_GROUP, join),
    _made("SyncGroup, 200,000 assignments", K.SYNC_GROUP, sync),
    _made("AddPartitionsToTxn, 200,000 partitions", K.ADD_PARTITIONS_TO_TXN, add_partitions, 3),
    _made("AddPartitionsToTxn, 100,000 transactions", K.ADD_PARTITIONS_TO_TXN, add_to_transactions),
    _made("TxnOffsetCommit, 100,000 rows", K.TXN_OFFSET_COMMIT, txn_commit, 5),
    _made("WriteTxnMarkers, 200,000 partitions", K.WRITE_TXN_MARKERS, markers),
    _keys("DescribeTransactions, 200,000 ids", K.DESCRIBE_TRANSACTIONS, "transactional_ids"),
    _keys("FindCoordinator, 200,000 keys", K.FIND_COORDINATOR, "coordinator_keys"),
    _keys("ConsumerGroupDescribe, 200,000", K.CONSUMER_GROUP_DESCRIBE, "group_ids"),
    _keys("ShareGroupDescribe, 200,000", K.SHARE_GROUP_DESCRIBE, "group_ids"),
    _keys("StreamsGroupDescribe, 200,000", K.STREAMS_GROUP_DESCRIBE, "group_ids"),
    _keys("DeleteGroups, 200,000", K.DELETE_GROUPS, "groups_names"),
    _made("OffsetDelete, 200,000 rows", K.OFFSET_DELETE, offset_delete),
    _states("ReadShareGroupState, 200,000 rows", K.READ_SHARE_GROUP_STATE, "ReadStateData"),
    _states("WriteShareGroupState, 200,000 rows", K.WRITE_SHARE_GROUP_STATE, "WriteStateData"),
    _states("InitializeShareGroupState, 200,000 rows", K.INITIALIZE_SHARE_GROUP_STATE, "InitializeStateData"),
    _states("DeleteShareGroupState, 200,000 rows", K.DELETE_SHARE_GROUP_STATE, "DeleteStateData"),
    _states(
        "ReadShareGroupStateSummary, 200,000 rows", K.READ_SHARE_GROUP_STATE_SUMMARY, "ReadStateSummaryData"
    ),
    _made("ShareAcknowledge, 200,000 batches", K.SHARE_ACKNOWLEDGE, share_acknowledge),
    _made("DescribeShareGroupOffsets, 200,000 groups", K.DESCRIBE_SHARE_GROUP_OFFSETS, share_offsets),
    _made("AlterShareGroupOffsets, 200,000 rows", K.ALTER_SHARE_GROUP_OFFSETS, alter_share_offsets),
    _made("DeleteShareGroupOffsets, 200,000 topics", K.DELETE_SHARE_GROUP_OFFSETS, delete_share_offsets),
    _made("CreateAcls, 50,000", K.CREATE_ACLS, create_acls),
    _made("DeleteAcls, 50,000 filters", K.DELETE_ACLS, delete_acls),
    _made("AlterClientQuotas, 50,000 only validated", K.ALTER_CLIENT_QUOTAS, alter_quotas),
    _made("DescribeClientQuotas, 200,000 components", K.DESCRIBE_CLIENT_QUOTAS, describe_quotas),
    _made("IncrementalAlterConfigs, 200,000 only validated", K.INCREMENTAL_ALTER_CONFIGS, alter_configs),
)
