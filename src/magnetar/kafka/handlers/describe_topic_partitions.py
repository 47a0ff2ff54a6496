"""DescribeTopicPartitions (KIP-966): partitions of topics page by page, in the order of names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from magnetar.base.errors import InvalidTopic
from magnetar.cluster.ownership import NO_EPOCH, Owned
from magnetar.kafka.handlers.named_topic import named_topic
from magnetar.kafka.operations import NOT_ASKED, TOPIC_OPERATIONS
from magnetar.node.broker import Broker
from magnetar.serving.pace import in_order, paced
from magnetar.topics.topic import Topic
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from magnetar.wire.kafka.messages.describe_topic_partitions_response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

MAX_PARTITIONS = 2000
"""Of one answer, whatever the client asks for (Kafka's max.request.partition.size.limit)."""


async def describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    """Answer one page, and with ``next_cursor`` where the next one begins; no topics asks for all."""
    broker, cursor = context.kafka.broker, request.cursor
    names: set[str] = set()
    async for asked in paced(request.topics):
        names.add(asked.name)
    if cursor is not None and (cursor.partition_index < 0 or (names and cursor.topic_name not in names)):
        return DescribeTopicPartitionsResponse(
            topics=[
                DescribeTopicPartitionsResponseTopic(
                    error_code=ErrorCode.INVALID_REQUEST, name=name, topic_authorized_operations=NOT_ASKED
                )
                async for name in paced(await in_order(names))
            ]
        )
    wanted = names or [
        topic.kafka_name
        async for topic in paced(list(broker.topics()))
        if broker.visible(topic) and context.shows(topic.name)
    ]
    start = ("", 0) if cursor is None else (cursor.topic_name, cursor.partition_index)
    limit = max(1, min(request.response_partition_limit, MAX_PARTITIONS))
    return await _page(broker, await in_order(wanted), start, limit)


async def _page(
    broker: Broker, names: Iterable[str], start: tuple[str, int], limit: int
) -> DescribeTopicPartitionsResponse:
    response = DescribeTopicPartitionsResponse(topics=[])
    async for name in paced(names):
        if name < start[0]:
            continue
        if limit == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = named_topic(broker, name)
        if topic is None:
            response.topics.append(_unknown(broker, name))
            continue
        first = start[1] if name == start[0] else 0
        until = min(topic.partitions, first + limit)
        owner = broker.cluster.ownership.owner
        rows = [_partition(index, owner(topic.name, index)) async for index in paced(range(first, until))]
        response.topics.append(_told(topic, name, rows))
        limit -= len(rows)
        if until < topic.partitions:
            response.next_cursor = Cursor(topic_name=name, partition_index=until)
            break
    return response


def _told(
    topic: Topic, name: str, rows: list[DescribeTopicPartitionsResponsePartition]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=rows,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _unknown(broker: Broker, name: str) -> DescribeTopicPartitionsResponseTopic:
    try:
        broker.naming.parse(name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except InvalidTopic:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, topic_authorized_operations=TOPIC_OPERATIONS
    )


def _partition(index: int, owner: Owned | None) -> DescribeTopicPartitionsResponsePartition:
    replicas = [] if owner is None else [owner.node_id]
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if owner is None else ErrorCode.NONE,
        partition_index=index,
        leader_id=-1 if owner is None else owner.node_id,
        leader_epoch=NO_EPOCH if owner is None else owner.epoch,
        replica_nodes=replicas,
        isr_nodes=replicas,
        eligible_leader_replicas=[],
        last_known_elr=[],
    )
