"""Metadata: the broker to talk to, and the topics with their partitions; unknown topics may be created by it.

A topic that is made because a client asked for it is unknown in the answer to that request, whatever its version, and
shown by the next one: that is what Kafka says, whose brokers ask the controller for it and do not wait. Clients expect
it; after a deletion some wait for just that.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from magnetar.broker.core import Broker
from magnetar.broker.names import INTERNAL_TOPICS
from magnetar.broker.topic import Topic
from magnetar.kafka.errors import REFUSALS, code_for
from magnetar.kafka.handlers.operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from magnetar.kafka.pace import paced
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

LEADER_EPOCH = 0
"""One broker holds every partition for good, so leadership never passes on."""
_FIRST_WITH_IDS = 12


async def metadata(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    """Tell what is asked for; None asks for all topics, as no topics did in version 0."""
    broker = context.kafka.broker
    asked = request.topics
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    if asked is None or (context.api_version == 0 and not asked):
        found = [
            _told(broker, topic, topic.kafka_name, operations)
            async for topic in paced(list(broker.topics()))
            if broker.visible(topic) and context.shows(topic.name)
        ]
    elif context.api_version < _FIRST_WITH_IDS and any(topic.topic_id != ZERO_UUID for topic in asked):
        found = [_refused(ErrorCode.INVALID_REQUEST, topic.name or "", topic.topic_id) for topic in asked]
    else:
        found = await _found(broker, asked, operations, create=request.allow_auto_topic_creation)
    return MetadataResponse(
        brokers=[_this_broker(context)],
        cluster_id=broker.identity.cluster_id,
        controller_id=broker.identity.node_id,
        topics=found,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


async def _found(
    broker: Broker, asked: list[MetadataRequestTopic], operations: int, *, create: bool
) -> list[MetadataResponseTopic]:
    by_name = dict.fromkeys(
        topic.name for topic in asked if topic.name is not None and topic.topic_id == ZERO_UUID
    )
    by_id = dict.fromkeys(
        topic.topic_id for topic in asked if topic.name is None or topic.topic_id != ZERO_UUID
    )
    named = [await _by_name(broker, name, operations, create=create) async for name in paced(by_name)]
    return named + [_by_id(broker, topic_id, operations) async for topic_id in paced(by_id)]


async def _by_name(broker: Broker, name: str, operations: int, *, create: bool) -> MetadataResponseTopic:
    try:
        topic = broker.get(name)
        if topic is None:
            allowed = broker.naming.parse(name)
            if create and broker.allows(allowed):
                await broker.auto_create(name)
    except REFUSALS as error:
        return _refused(code_for(error), name)
    if topic is None or not broker.visible(topic):
        return _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
    return _told(broker, topic, name, operations)


def _by_id(broker: Broker, topic_id: bytes, operations: int) -> MetadataResponseTopic:
    topic = broker.get_by_id(topic_id)
    if topic is None or not broker.visible(topic):
        return _refused(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
    return _told(broker, topic, topic.kafka_name, operations)


def _told(broker: Broker, topic: Topic, name: str, operations: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=_partitions(topic.partitions, broker.identity.node_id),
        topic_authorized_operations=operations,
    )


def _refused(code: ErrorCode, name: str | None, topic_id: bytes = ZERO_UUID) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code, name=name, topic_id=topic_id, is_internal=name in INTERNAL_TOPICS
    )


@lru_cache(maxsize=64)
def _partitions(count: int, node_id: int) -> list[MetadataResponsePartition]:
    """Give the rows of a topic; topics of one size share them, and nobody changes them."""
    return [
        MetadataResponsePartition(
            partition_index=index,
            leader_id=node_id,
            leader_epoch=LEADER_EPOCH,
            replica_nodes=[node_id],
            isr_nodes=[node_id],
        )
        for index in range(count)
    ]


def _this_broker(context: RequestContext) -> MetadataResponseBroker:
    broker, told = context.kafka.broker, context.listener.advertised
    return MetadataResponseBroker(
        node_id=broker.identity.node_id, host=told.host, port=told.port, rack=broker.settings.node.broker_rack
    )
