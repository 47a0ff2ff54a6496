"""Metadata: the brokers to talk to, and the topics with their partitions; unknown topics may be created by it.

A topic that is made because a client asked for it is in the answer to that request, with its partitions. On Kafka it
is unknown there, and for as long as the controller takes to make it; a consumer that joined its group meanwhile has to
look again, which not every client does. Only where a topic of the name was just deleted is it unknown first here too,
because clients that have deleted it wait for that (`magnetar.topics.just_deleted`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING

from magnetar.base.collector import uncollected
from magnetar.base.errors import InvalidTopic
from magnetar.cluster.ownership import NO_EPOCH, Owned
from magnetar.kafka.errors import REFUSALS, code_for
from magnetar.kafka.handlers.leaders import brokers, endpoint_of
from magnetar.kafka.operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from magnetar.node.broker import Broker
from magnetar.serving.pace import MANY_ROWS, paced
from magnetar.topics.names import INTERNAL_TOPICS
from magnetar.topics.topic import MAX_NEW_PARTITIONS, Topic
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from magnetar.wire.kafka.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from magnetar.wire.kafka.primitives import ZERO_UUID

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

_FIRST_WITH_IDS = 12
_MAX_SIZES = 64
_alike: dict[tuple[int, Owned], Sequence[MetadataResponsePartition]] = {}
"""The rows of topics of so many partitions with one owner: topics of one size share them, and nobody changes them."""
_Rows = Callable[[Topic], Awaitable[Sequence[MetadataResponsePartition]]]


async def metadata(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    """Tell what is asked for; None asks for all topics, as no topics did in version 0."""
    broker = context.kafka.broker
    asked, rows = request.topics, _rows_of(context)
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    if asked is None or (context.api_version == 0 and not asked):
        found = [
            _told(await rows(topic), topic, topic.kafka_name, operations)
            async for topic in paced(list(broker.topics()))
            if _is_shown(broker, topic) and context.shows(topic.name)
        ]
    elif context.api_version < _FIRST_WITH_IDS and any(topic.topic_id != ZERO_UUID for topic in asked):
        found = [
            _refused(ErrorCode.INVALID_REQUEST, topic.name or "", topic.topic_id)
            async for topic in paced(asked)
        ]
    else:
        found = await _found(broker, rows, asked, operations, create=request.allow_auto_topic_creation)
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=each.node_id, host=endpoint.host, port=endpoint.port, rack=each.rack
            )
            for each, endpoint in brokers(context)
        ],
        cluster_id=broker.identity.cluster_id,
        controller_id=broker.cluster.ownership.leader(),
        topics=found,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


async def _found(
    broker: Broker, rows: _Rows, asked: list[MetadataRequestTopic], operations: int, *, create: bool
) -> list[MetadataResponseTopic]:
    by_name: dict[str, None] = {}
    by_id: dict[bytes, None] = {}
    async for topic in paced(asked):
        if topic.name is None or topic.topic_id != ZERO_UUID:
            by_id[topic.topic_id] = None
        else:
            by_name[topic.name] = None
    create = create and not await _are_too_many(broker, by_name)
    named = [await _by_name(broker, rows, name, operations, create=create) async for name in paced(by_name)]
    return named + [await _by_id(broker, rows, topic_id, operations) async for topic_id in paced(by_id)]


async def _are_too_many(broker: Broker, names: Collection[str]) -> bool:
    """Whether those that are not there are more than one request may make; then Kafka makes none of them either."""
    most = MAX_NEW_PARTITIONS // broker.settings.topics.num_partitions
    if len(names) <= most:
        return False
    missing = 0
    async for name in paced(names):
        missing += _is_missing(broker, name)
    return missing > most


def _is_missing(broker: Broker, name: str) -> bool:
    try:
        return broker.get(name) is None
    except InvalidTopic:
        return False


async def _by_name(
    broker: Broker, rows: _Rows, name: str, operations: int, *, create: bool
) -> MetadataResponseTopic:
    try:
        topic = broker.get(name)
        if topic is None:
            allowed = broker.naming.parse(name)
            if create and broker.allows(allowed):
                topic = await broker.auto_create(name)
                broker.just_deleted.made_again(allowed)
    except REFUSALS as error:
        return _refused(code_for(error), name)
    if topic is None or not _is_shown(broker, topic):
        return _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
    return _told(await rows(topic), topic, name, operations)


async def _by_id(broker: Broker, rows: _Rows, topic_id: bytes, operations: int) -> MetadataResponseTopic:
    topic = broker.get_by_id(topic_id)
    if topic is None or not _is_shown(broker, topic):
        return _refused(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
    return _told(await rows(topic), topic, topic.kafka_name, operations)


def _is_shown(broker: Broker, topic: Topic) -> bool:
    return broker.visible(topic) and not broker.just_deleted.withholds(topic.name)


def _told(
    rows: Sequence[MetadataResponsePartition], topic: Topic, name: str, operations: int
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=rows,  # type: ignore[arg-type]
        topic_authorized_operations=operations,
    )


def _refused(code: ErrorCode, name: str | None, topic_id: bytes = ZERO_UUID) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code, name=name, topic_id=topic_id, is_internal=name in INTERNAL_TOPICS
    )


def _rows_of(context: RequestContext) -> _Rows:
    """Return what gives a topic's rows."""
    sole = context.kafka.broker.cluster.ownership.sole_owner

    async def rows(topic: Topic) -> Sequence[MetadataResponsePartition]:
        if topic.partitions <= MANY_ROWS:
            return await made(topic)
        context.has_many_rows = True
        with uncollected():
            return await made(topic)

    async def made(topic: Topic) -> Sequence[MetadataResponsePartition]:
        if sole is None:
            return await _each(context, topic)
        key = topic.partitions, sole
        found = _alike.get(key)
        if found is None:
            found = tuple([_led(index, sole) async for index in paced(range(topic.partitions))])
            if len(_alike) >= _MAX_SIZES:
                del _alike[next(iter(_alike))]
            _alike[key] = found
        return found

    return rows


async def _each(context: RequestContext, topic: Topic) -> list[MetadataResponsePartition]:
    owner_of = context.kafka.broker.cluster.ownership.owner
    owners = [owner_of(topic.name, index) async for index in paced(range(topic.partitions))]
    unreached = {each.node_id for each in set(owners) if each and endpoint_of(context, each.node_id) is None}
    return [
        _led(index, owner)
        if owner is None or owner.node_id not in unreached
        else _leaderless(index, ErrorCode.LISTENER_NOT_FOUND)
        async for index, owner in paced(enumerate(owners))
    ]


def _led(index: int, owner: Owned | None) -> MetadataResponsePartition:
    if owner is None:
        return _leaderless(index, ErrorCode.LEADER_NOT_AVAILABLE)
    return MetadataResponsePartition(
        partition_index=index,
        leader_id=owner.node_id,
        leader_epoch=owner.epoch,
        replica_nodes=[owner.node_id],
        isr_nodes=[owner.node_id],
    )


def _leaderless(index: int, code: ErrorCode) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=code,
        partition_index=index,
        leader_id=-1,
        leader_epoch=NO_EPOCH,
        replica_nodes=[],
        isr_nodes=[],
    )
