"""Kafka's APIs, as clients ask: each that names a topic by its short name, by its full one, and by its id."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from magnetar.kafka.handlers import ROUTES, Route
from magnetar.records.batch import PlainRecord as KafkaRecord
from magnetar.records.batch import encode_batch
from magnetar.topics.names import TopicName
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.header import RequestHeader, decode_response_header, encode_request_header
from magnetar.wire.kafka.message import Message, Record
from magnetar.wire.kafka.messages import response_class
from magnetar.wire.kafka.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from magnetar.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from magnetar.wire.kafka.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from magnetar.wire.kafka.primitives import ZERO_UUID
from tests.security.matrix.asking import Ask, Outcome
from tests.security.matrix.house import IDS_OF_RED, PULSARS_TRANSACTION, Asker, Client, House
from tests.wire.values import OUTLINE

RUBY, RUBIES, SHARED = TopicName("red", "default", "ruby"), "rubies", "shared-rubies"
_REFUSALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_ID,
}
_BATCH = encode_batch([KafkaRecord(None, b"pearl", [], 0, 0)])
_GARNET = encode_batch([KafkaRecord(None, b"garnet", [], 0, 0)])
_IN_TRANSACTION = encode_batch(
    [KafkaRecord(None, b"pearl", [], 0, 0)],
    producer_id=0,
    producer_epoch=0,
    base_sequence=0,
    attributes=1 << 4,
)
_MEMBER = "nobody-here"
OPEN_TRANSACTION, IDLE_TRANSACTION = IDS_OF_RED
_TOPIC, _BROKER, _GROUP = 2, 4, 32


def asked(route: Route) -> Iterator[tuple[str, Ask]]:
    """Yield all ways to ask for one API, each with a word for it."""
    cls, _ = route.load()
    types = SimpleNamespace(**vars(import_module(cls.__module__)))
    make = _MAKERS.get(route.handler) or partial(_by_definition, route)
    for way in _WAYS.get(
        route.handler, ("",) if route.handler in _MAKERS or not route.names.asked else _BY_NAME
    ):
        version = _VERSIONS.get((route.handler, way), route.last)
        yield way, partial(_ask, route, types, make, way, version)


async def _ask(
    route: Route, types: Any, make: Any, way: str, version: int, house: House, asker: Asker
) -> tuple[Outcome, bytes]:
    client = Client(house.kafka, house.listener)
    try:
        if asker.proof and not await log_in(client, asker) and asker.shows == "token":
            return Outcome.not_let_in, b""
        topic = house.broker.get(str(RUBY))
        assert topic is not None
        short = "ruby" if house.tenants or way == "full" else "red/default/ruby"
        name, topic_id = {
            "full": (str(RUBY), ZERO_UUID),
            "id": ("", topic.topic_id),
            "own name, id": ("ruby", topic.topic_id),
        }.get(way, (short, ZERO_UUID))
        answer = b""
        request = make(types, way, name, topic_id)
        for _ in range(200):
            send(client, request, version)
            frame = await client.frame()
            if frame is None:
                return Outcome.not_let_in, answer
            response = _decoded(request, version, frame)
            answer += bytes(frame)
            request = _next_page(types, way, response)
            if request is None:
                break
        codes = set(_codes(response))
        refused = bool(codes & _REFUSALS)
        return Outcome.refused if refused else Outcome.answered, answer
    finally:
        client.close()


async def log_in(client: Client, asker: Asker) -> bool:
    """Say who somebody is by SASL PLAIN; return whether it was let in."""
    from magnetar.wire.kafka.messages.sasl_authenticate_request import SaslAuthenticateRequest
    from magnetar.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest

    said = f"\0{asker.home}\0token:{asker.proof}".encode()
    for request, version in (
        (SaslHandshakeRequest(mechanism="PLAIN"), 1),
        (SaslAuthenticateRequest(auth_bytes=said), 2),
    ):
        send(client, request, version)
        frame = await client.frame()
        if frame is None or _decoded(request, version, frame).error_code:
            return False
    return True


async def furnish(house: House) -> None:
    """Have a record, a group and what it committed in red's topic."""
    client = Client(house.kafka, house.listener)
    assert await log_in(client, Asker("", "root", "red"))
    types = SimpleNamespace()
    for handler in ("produce", "offset_commit"):
        route = next(each for each in ROUTES if each.handler == handler)
        types = SimpleNamespace(**vars(import_module(route.load()[0].__module__)))
        name = "red/default/ruby"
        request = _MAKERS[handler](types, "", name, ZERO_UUID)
        if handler == "produce":
            request.topic_data[0].partition_data[0].records = _GARNET
        else:
            request.topics[0].partitions[0].committed_metadata = "garnet"
            request.topics[0].partitions[0].committed_offset = 0
        for group in (RUBIES, "garnets") if handler == "offset_commit" else ("",):
            if group:
                request.group_id = group
            send(client, request, _VERSIONS[handler, "short"])
            frame = await client.frame()
            assert frame is not None
            assert set(_codes(_decoded(request, _VERSIONS[handler, "short"], frame))) == {0}
    await _open_transaction(client)
    await _share_group(client)
    client.close()


async def _open_transaction(client: Client) -> None:
    """Have a transaction open over red's topic, and an id with none."""

    async def answer(request: Message, version: int) -> Any:
        send(client, request, version)
        frame = await client.frame()
        assert frame is not None
        answered = _decoded(request, version, frame)
        assert set(_codes(answered)) == {0}
        return answered

    await answer(InitProducerIdRequest(transactional_id=IDLE_TRANSACTION, transaction_timeout_ms=900_000), 5)
    begun = await answer(
        InitProducerIdRequest(transactional_id=OPEN_TRANSACTION, transaction_timeout_ms=900_000), 5
    )
    await answer(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=OPEN_TRANSACTION,
            v3_and_below_producer_id=begun.producer_id,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="red/default/ruby", partitions=[0])],
        ),
        3,
    )


async def _share_group(client: Client) -> None:
    """Have a member of a share group read red's topic."""
    for epoch in (0, -1):  # it has left again, so that offsets may be changed
        request = ShareGroupHeartbeatRequest(
            group_id=SHARED,
            member_id="garnet",
            member_epoch=epoch,
            subscribed_topic_names=["red/default/ruby"] if epoch == 0 else None,
        )
        send(client, request, 1)
        frame = await client.frame()
        assert frame is not None
        assert set(_codes(_decoded(request, 1, frame))) == {0}


def send(client: Client, request: Message, version: int) -> None:
    header = RequestHeader(request.API_KEY, version, 1, "matrix")
    content = encode_request_header(header) + request.encode(version)
    client.send(struct.pack(">i", len(content)) + content)


def _decoded(request: Message, version: int, frame: bytes) -> Any:
    _, body = decode_response_header(frame, request.API_KEY, version)
    return response_class(request.API_KEY).decode(body, version)


def _codes(node: Any) -> Iterator[int]:
    """Yield all error codes of an answer."""
    if isinstance(node, list | tuple):
        for each in node:
            yield from _codes(each)
    elif isinstance(node, Message | Record):
        for kind in type(node).__mro__:
            for field in getattr(kind, "__slots__", ()):
                value = getattr(node, field, None)
                if field in ("error_code", "partition_error_code"):
                    yield value
                else:
                    yield from _codes(value)


def _next_page(types: Any, way: str, response: Any) -> Message | None:
    cursor = getattr(response, "next_cursor", None)
    if way != "all, by pages" or cursor is None:
        return None
    at = types.Cursor(topic_name=cursor.topic_name, partition_index=cursor.partition_index)
    found: Message = types.DescribeTopicPartitionsRequest(topics=[], response_partition_limit=1, cursor=at)
    return found


# -- how each API is asked ------------------------------------------------------------------------------------------

_BY_NAME = ("short", "full")
_BY_ALL = ("short", "full", "id")
_OWNED = ("hers", "hers, idle", "Pulsar's")
"""Transactional ids that are somebody else's: with a transaction open, with none, and one of Pulsar's by its name."""
_WAYS = {
    "produce": (*_BY_ALL, "hers"),
    "fetch": _BY_ALL,
    "list_offsets": _BY_NAME,
    "metadata": (*_BY_ALL, "own name, id", "all"),
    "offset_commit": _BY_ALL,
    "offset_fetch": (*_BY_ALL, "all", "all, old"),
    "find_coordinator": ("group", "group, old", "transaction"),
    "create_topics": _BY_NAME,
    "delete_topics": (*_BY_ALL, "short, old"),
    "delete_records": _BY_NAME,
    "describe_producers": _BY_NAME,
    "offset_for_leader_epoch": _BY_NAME,
    "describe_configs": (*_BY_NAME, "group", "broker"),
    "alter_configs": (*_BY_NAME, "group", "broker"),
    "incremental_alter_configs": (*_BY_NAME, "group", "broker"),
    "describe_log_dirs": (*_BY_NAME, "all"),
    "create_partitions": _BY_NAME,
    "elect_leaders": _BY_NAME,
    "alter_partition_reassignments": _BY_NAME,
    "list_partition_reassignments": (*_BY_NAME, "all"),
    "offset_delete": _BY_NAME,
    "describe_topic_partitions": (*_BY_NAME, "all", "all, by pages"),
    "init_producer_id": ("idempotent", "transaction", *_OWNED),
    "add_partitions_to_txn": (*_BY_NAME, "brokers", *_OWNED),
    "add_offsets_to_txn": ("anybody's", *_OWNED),
    "txn_offset_commit": (*_BY_ALL, *_OWNED),
    "write_txn_markers": _BY_NAME,
    "end_txn": ("anybody's", *_OWNED),
    "describe_transactions": ("anybody's", *_OWNED),
    "share_group_heartbeat": _BY_NAME,
    "share_fetch": ("id",),
    "share_acknowledge": ("id",),
    "initialize_share_group_state": ("id",),
    "read_share_group_state": ("id",),
    "write_share_group_state": ("id",),
    "delete_share_group_state": ("id",),
    "read_share_group_state_summary": ("id",),
    "describe_share_group_offsets": (*_BY_NAME, "all"),
    "alter_share_group_offsets": _BY_NAME,
    "delete_share_group_offsets": _BY_NAME,
}
_VERSIONS = {
    ("produce", "short"): 12,
    ("produce", "full"): 12,
    ("fetch", "short"): 12,
    ("fetch", "full"): 12,
    ("offset_commit", "short"): 9,
    ("offset_commit", "full"): 9,
    ("offset_fetch", "short"): 9,
    ("offset_fetch", "full"): 9,
    ("offset_fetch", "all, old"): 7,
    ("find_coordinator", "group, old"): 3,
    ("delete_topics", "short, old"): 5,
    ("add_partitions_to_txn", "short"): 3,
    ("add_partitions_to_txn", "full"): 3,
    ("txn_offset_commit", "short"): 5,
    **{("txn_offset_commit", way): 5 for way in _OWNED},
    **{("add_partitions_to_txn", way): 3 for way in _OWNED},
    ("produce", "hers"): 11,
    ("txn_offset_commit", "full"): 5,
}
"""Where it is not the last one."""


def _produce(t: Any, way: str, name: str, topic_id: bytes) -> Message:
    rows = [t.PartitionProduceData(index=0, records=_BATCH)]
    topic = t.TopicProduceData(name=name, topic_id=topic_id, partition_data=rows)
    asked = t.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
    if way == "hers":
        asked.transactional_id, rows[0].records = OPEN_TRANSACTION, _IN_TRANSACTION
    return asked


def _fetch(t: Any, way: str, name: str, topic_id: bytes) -> Message:
    rows = [t.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10_000)]
    topic = t.FetchTopic(topic=name, topic_id=topic_id, partitions=rows)
    return t.FetchRequest(max_wait_ms=0, max_bytes=10_000, session_epoch=-1, topics=[topic])


def _list_offsets(t: Any, way: str, name: str, topic_id: bytes) -> Message:
    rows = [t.ListOffsetsPartition(partition_index=0, timestamp=-1)]
    return t.ListOffsetsRequest(topics=[t.ListOffsetsTopic(name=name, partitions=rows)])


def _metadata(t: Any, way: str, name: str, topic_id: bytes) -> Message:
    topics = [t.MetadataRequestTopic(name=name or None, topic_id=topic_id)]
    return t.MetadataRequest(topics=None if way == "all" else topics, allow_auto_topic_creation=True)


def _offset_commit(t: Any, way: str, name: str, topic_id: bytes) -> Message:
    rows = [t.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    topic = t.OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=rows)
    return t.OffsetCommitRequest(group_id=RUBIES, generation_id_or_member_epoch=-1, topics=[topic])


def _offset_fetch(t: Any, way: str, name: str, topic_id: bytes) -> Message:
    if way == "all, old":
        return t.OffsetFetchRequest(group_id=RUBIES, topics=None)
    rows = [t.OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=[0])]
    group = t.OffsetFetchRequestGroup(group_id=RUBIES, topics=None if way == "all" else rows)
    return t.OffsetFetchRequest(groups=[group])


def _find_coordinator(t: Any, way: str, name: str, topic_id: bytes) -> Message:
    if way == "group, old":
        return t.FindCoordinatorRequest(key=RUBIES, key_type=0)
    return t.FindCoordinatorRequest(key_type=1 if way == "transaction" else 0, coordinator_keys=[RUBIES])


def _create_topics(t: Any, way: str, name: str, topic_id: bytes) -> Message:
    topic = t.CreatableTopic(name=f"{name}-made", num_partitions=1, replication_factor=1)
    return t.CreateTopicsRequest(topics=[topic])


def _delete_topics(t: Any, way: str, name: str, topic_id: bytes) -> Message:
    topics = [t.DeleteTopicState(name=name or None, topic_id=topic_id)]
    if way == "short, old":
        return t.DeleteTopicsRequest(topic_names=[name])
    return t.DeleteTopicsRequest(topics=topics)


def _delete_records(t: Any, way: str, name: str, topic_id: bytes) -> Message:
    rows = [t.DeleteRecordsPartition(partition_index=0, offset=1)]
    return t.DeleteRecordsRequest(topics=[t.DeleteRecordsTopic(name=name, partitions=rows)])


def _configs(request: str, t: Any, way: str, name: str, topic_id: bytes) -> Message:
    kind, named = {"group": (_GROUP, RUBIES), "broker": (_BROKER, "0")}.get(way, (_TOPIC, name))
    if request == "DescribeConfigsRequest":
        return t.DescribeConfigsRequest(
            resources=[t.DescribeConfigsResource(resource_type=kind, resource_name=named)]
        )
    key = {"group": "consumer.session.timeout.ms", "broker": "log.retention.ms"}.get(way, "retention.ms")
    rows = [t.AlterableConfig(name=key, value="60000")]
    resource = t.AlterConfigsResource(resource_type=kind, resource_name=named, configs=rows)
    return getattr(t, request)(resources=[resource])  # type: ignore[no-any-return]


def _of_topics(request: str, topic: str, t: Any, way: str, name: str, topic_id: bytes) -> Message:
    """Make a request that names topics, and partitions by their numbers alone."""
    kind = getattr(t, topic)
    fields = {field for each in kind.__mro__ for field in getattr(each, "__slots__", ())}
    given: dict[str, Any] = {"name" if "name" in fields else "topic": name}
    given |= {field: [0] for field in ("partitions", "partition_indexes") if field in fields}
    given |= {"count": 3, "assignments": None} if "count" in fields else {}
    rows = None if way == "all" else [kind(**given)]
    field = "topic_partitions" if request == "ElectLeadersRequest" else "topics"
    return getattr(t, request)(**{field: rows})  # type: ignore[no-any-return]


def _epochs(t: Any, way: str, name: str, topic_id: bytes) -> Message:
    rows = [t.OffsetForLeaderPartition(partition=0, leader_epoch=0)]
    return t.OffsetForLeaderEpochRequest(topics=[t.OffsetForLeaderTopic(topic=name, partitions=rows)])


def _reassign(t: Any, way: str, name: str, topic_id: bytes) -> Message:
    rows = [t.ReassignablePartition(partition_index=0, replicas=[0])]
    return t.AlterPartitionReassignmentsRequest(topics=[t.ReassignableTopic(name=name, partitions=rows)])


def _offset_delete(t: Any, way: str, name: str, topic_id: bytes) -> Message:
    rows = [t.OffsetDeleteRequestPartition(partition_index=0)]
    topic = t.OffsetDeleteRequestTopic(name=name, partitions=rows)
    return t.OffsetDeleteRequest(group_id=RUBIES, topics=[topic])


def _pages(t: Any, way: str, name: str, topic_id: bytes) -> Message:
    topics = [] if way.startswith("all") else [t.TopicRequest(name=name)]
    limit = 1 if way == "all, by pages" else 2000
    return t.DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit)


def _join(t: Any, *_: Any) -> Message:
    protocols = [t.JoinGroupRequestProtocol(name="range", metadata=b"")]
    return t.JoinGroupRequest(
        group_id=RUBIES,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        group_instance_id="static",
        protocol_type="consumer",
        protocols=protocols,
    )


def _init_producer_id(t: Any, way: str, *_: Any) -> Message:
    return t.InitProducerIdRequest(
        transactional_id=None if way == "idempotent" else _id_of(way), transaction_timeout_ms=60_000
    )


def _id_of(way: str) -> str:
    owned = (OPEN_TRANSACTION, IDLE_TRANSACTION, PULSARS_TRANSACTION)
    return dict(zip(_OWNED, owned, strict=True)).get(way, "garnish")


def _alter_dirs(t: Any, way: str, name: str, topic_id: bytes) -> Any:
    topic = t.AlterReplicaLogDirTopic(name=name, partitions=[0])
    return t.AlterReplicaLogDirsRequest(dirs=[t.AlterReplicaLogDir(path="/nowhere", topics=[topic])])


def _alter_quotas(t: Any, *_: Any) -> Any:
    entity = t.EntityData(entity_type="user", entity_name="somebody")
    return t.AlterClientQuotasRequest(
        entries=[t.EntryData(entity=[entity], ops=[t.OpData(key="producer_byte_rate", value=1e9)])]
    )


def _alter_users(t: Any, *_: Any) -> Message:
    new = t.ScramCredentialUpsertion(
        name="red-user", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p"
    )
    return t.AlterUserScramCredentialsRequest(upsertions=[new])


def _add_partitions(t: Any, way: str, name: str, topic_id: bytes) -> Message:
    topics = [t.AddPartitionsToTxnTopic(name=name, partitions=[0])]
    if way == "brokers":
        one = t.AddPartitionsToTxnTransaction(transactional_id="garnish", topics=topics)
        return t.AddPartitionsToTxnRequest(transactions=[one])
    return t.AddPartitionsToTxnRequest(v3_and_below_transactional_id=_id_of(way), v3_and_below_topics=topics)


def _txn_offset_commit(t: Any, way: str, name: str, topic_id: bytes) -> Message:
    rows = [t.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    topic = t.TxnOffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=rows)
    return t.TxnOffsetCommitRequest(transactional_id=_id_of(way), group_id=RUBIES, topics=[topic])


def _markers(t: Any, way: str, name: str, topic_id: bytes) -> Message:
    topic = t.WritableTxnMarkerTopic(name=name, partition_indexes=[0])
    marker = t.WritableTxnMarker(producer_id=77, topics=[topic])
    return t.WriteTxnMarkersRequest(markers=[marker])


def _share_fetch(t: Any, way: str, name: str, topic_id: bytes) -> Message:
    topic = t.FetchTopic(topic_id=topic_id, partitions=[t.FetchPartition(partition_index=0)])
    return t.ShareFetchRequest(
        group_id=SHARED, member_id=_MEMBER, max_wait_ms=0, max_records=10, batch_size=10, topics=[topic]
    )


def _share_acknowledge(t: Any, way: str, name: str, topic_id: bytes) -> Message:
    batch = t.AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[1])
    rows = [t.AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])]
    topic = t.AcknowledgeTopic(topic_id=topic_id, partitions=rows)
    return t.ShareAcknowledgeRequest(
        group_id=SHARED, member_id=_MEMBER, share_session_epoch=1, topics=[topic]
    )


def _share_state(request: str, topic: str, t: Any, way: str, name: str, topic_id: bytes) -> Message:
    rows = [getattr(t, topic)(topic_id=topic_id, partitions=[t.PartitionData(partition=0)])]
    return getattr(t, request)(group_id=SHARED, topics=rows)  # type: ignore[no-any-return]


def _share_offsets(t: Any, way: str, name: str, topic_id: bytes) -> Message:
    topic = t.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=[0])
    topics = None if way == "all" else [topic]
    group = t.DescribeShareGroupOffsetsRequestGroup(group_id=SHARED, topics=topics)
    return t.DescribeShareGroupOffsetsRequest(groups=[group])


def _alter_share_offsets(t: Any, way: str, name: str, topic_id: bytes) -> Message:
    rows = [t.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)]
    topic = t.AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=rows)
    return t.AlterShareGroupOffsetsRequest(group_id=SHARED, topics=[topic])


def _simple(request: str, t: Any, *_: Any, **given: Any) -> Message:
    return getattr(t, request)(**given)  # type: ignore[no-any-return]


def _by_definition(route: Route, t: Any, way: str, name: str, topic_id: bytes) -> Message:
    """Make a request of an API that nobody has thought about yet: all defaults, and a topic wherever it names one."""
    structs = OUTLINE[f"{route.handler}_request"]["structs"]

    def made(kind: str, paths: list[tuple[str, ...]]) -> Any:
        given: dict[str, Any] = {}
        for field in {path[0] for path in paths}:
            rest = [path[1:] for path in paths if path[0] == field and len(path) > 1]
            declared = structs[kind][field][0]
            value = made(declared.removeprefix("[]"), rest) if rest else name
            given[field] = [value] if declared.startswith("[]") else value
        return getattr(t, kind)(**given)

    return made(f"{route.name}Request", list(route.names.asked))  # type: ignore[no-any-return]


_EVERYTHING = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
_NEW_ACL = {
    "resource_type": 2,
    "resource_name": "red/default/ruby",
    "resource_pattern_type": 3,
    "principal": "User:anybody",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
_MAKERS: dict[str, Any] = {
    "produce": _produce,
    "fetch": _fetch,
    "list_offsets": _list_offsets,
    "metadata": _metadata,
    "offset_commit": _offset_commit,
    "offset_fetch": _offset_fetch,
    "find_coordinator": _find_coordinator,
    "join_group": _join,
    "heartbeat": partial(_simple, "HeartbeatRequest", group_id=RUBIES, generation_id=1, member_id=_MEMBER),
    "leave_group": lambda t, *_: t.LeaveGroupRequest(
        group_id=RUBIES, members=[t.MemberIdentity(member_id=_MEMBER)]
    ),
    "sync_group": partial(_simple, "SyncGroupRequest", group_id=RUBIES, generation_id=1, member_id=_MEMBER),
    "describe_groups": partial(_simple, "DescribeGroupsRequest", groups=[RUBIES]),
    "streams_group_describe": partial(_simple, "StreamsGroupDescribeRequest", group_ids=[RUBIES]),
    "list_groups": partial(_simple, "ListGroupsRequest"),
    "sasl_handshake": partial(_simple, "SaslHandshakeRequest", mechanism="PLAIN"),
    "api_versions": partial(
        _simple, "ApiVersionsRequest", client_software_name="matrix", client_software_version="1"
    ),
    "create_topics": _create_topics,
    "delete_topics": _delete_topics,
    "delete_records": _delete_records,
    "init_producer_id": _init_producer_id,
    "offset_for_leader_epoch": _epochs,
    "describe_acls": partial(_simple, "DescribeAclsRequest", **_EVERYTHING),
    "create_acls": lambda t, *_: t.CreateAclsRequest(creations=[t.AclCreation(**_NEW_ACL)]),
    "delete_acls": lambda t, *_: t.DeleteAclsRequest(filters=[t.DeleteAclsFilter(**_EVERYTHING)]),
    "describe_configs": partial(_configs, "DescribeConfigsRequest"),
    "alter_configs": partial(_configs, "AlterConfigsRequest"),
    "describe_log_dirs": partial(_of_topics, "DescribeLogDirsRequest", "DescribableLogDirTopic"),
    "sasl_authenticate": partial(_simple, "SaslAuthenticateRequest", auth_bytes=b"\0red\0token:x"),
    "create_partitions": partial(_of_topics, "CreatePartitionsRequest", "CreatePartitionsTopic"),
    "delete_groups": partial(_simple, "DeleteGroupsRequest", groups_names=[RUBIES]),
    "elect_leaders": partial(_of_topics, "ElectLeadersRequest", "TopicPartitions"),
    "incremental_alter_configs": partial(_configs, "IncrementalAlterConfigsRequest"),
    "alter_partition_reassignments": _reassign,
    "list_partition_reassignments": partial(
        _of_topics, "ListPartitionReassignmentsRequest", "ListPartitionReassignmentsTopics"
    ),
    "offset_delete": _offset_delete,
    "create_delegation_token": partial(_simple, "CreateDelegationTokenRequest", max_lifetime_ms=-1),
    "renew_delegation_token": partial(_simple, "RenewDelegationTokenRequest", hmac=b"x", renew_period_ms=-1),
    "expire_delegation_token": partial(
        _simple, "ExpireDelegationTokenRequest", hmac=b"x", expiry_time_period_ms=-1
    ),
    "describe_delegation_token": partial(_simple, "DescribeDelegationTokenRequest", owners=None),
    "alter_client_quotas": _alter_quotas,
    "alter_replica_log_dirs": _alter_dirs,
    "describe_user_scram_credentials": partial(_simple, "DescribeUserScramCredentialsRequest", users=None),
    "alter_user_scram_credentials": _alter_users,
    "describe_cluster": partial(_simple, "DescribeClusterRequest"),
    "describe_producers": partial(_of_topics, "DescribeProducersRequest", "TopicRequest"),
    "list_config_resources": partial(_simple, "ListConfigResourcesRequest"),
    "describe_topic_partitions": _pages,
    "add_partitions_to_txn": _add_partitions,
    "add_offsets_to_txn": lambda t, way, *_: t.AddOffsetsToTxnRequest(
        transactional_id=_id_of(way), group_id=RUBIES
    ),
    "end_txn": lambda t, way, *_: t.EndTxnRequest(transactional_id=_id_of(way), producer_id=-1),
    "write_txn_markers": _markers,
    "txn_offset_commit": _txn_offset_commit,
    "describe_transactions": lambda t, way, *_: t.DescribeTransactionsRequest(
        transactional_ids=[_id_of(way)]
    ),
    "list_transactions": partial(_simple, "ListTransactionsRequest"),
    "share_group_heartbeat": lambda t, way, name, topic_id: t.ShareGroupHeartbeatRequest(
        group_id=SHARED, member_id=_MEMBER, subscribed_topic_names=[name]
    ),
    "share_group_describe": partial(_simple, "ShareGroupDescribeRequest", group_ids=[SHARED]),
    "share_fetch": _share_fetch,
    "share_acknowledge": _share_acknowledge,
    "initialize_share_group_state": partial(
        _share_state, "InitializeShareGroupStateRequest", "InitializeStateData"
    ),
    "read_share_group_state": partial(_share_state, "ReadShareGroupStateRequest", "ReadStateData"),
    "write_share_group_state": partial(_share_state, "WriteShareGroupStateRequest", "WriteStateData"),
    "delete_share_group_state": partial(_share_state, "DeleteShareGroupStateRequest", "DeleteStateData"),
    "read_share_group_state_summary": partial(
        _share_state, "ReadShareGroupStateSummaryRequest", "ReadStateSummaryData"
    ),
    "describe_share_group_offsets": _share_offsets,
    "alter_share_group_offsets": _alter_share_offsets,
    "delete_share_group_offsets": lambda t, way, name, topic_id: t.DeleteShareGroupOffsetsRequest(
        group_id=SHARED, topics=[t.DeleteShareGroupOffsetsRequestTopic(topic_name=name)]
    ),
}
