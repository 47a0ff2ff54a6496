"""AlterPartitionReassignments: a partition may be put where it is, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.kafka.handlers.assignments import PartRefused, check_reassignment
from magnetar.kafka.handlers.named_topic import named_topic
from magnetar.node.broker import Broker
from magnetar.serving.pace import paced
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from magnetar.wire.kafka.messages.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """Say of each partition whether its replicas may be those that are given; none given cancels a reassignment."""
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=[await _answered(context.kafka.broker, topic) async for topic in paced(request.topics)],
    )


async def _answered(broker: Broker, topic: ReassignableTopic) -> ReassignableTopicResponse:
    return ReassignableTopicResponse(
        name=topic.name,
        partitions=[_judged(broker, topic.name, each) async for each in paced(topic.partitions)],
    )


def _judged(broker: Broker, name: str, asked: ReassignablePartition) -> ReassignablePartitionResponse:
    answer = ReassignablePartitionResponse(partition_index=asked.partition_index, error_message=None)
    try:
        _check_partition(broker, name, asked.partition_index)
        if asked.replicas is None:
            answer.error_code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        else:
            check_reassignment(asked.replicas, broker.cluster.ownership)
    except PartRefused as refused:
        answer.error_code, answer.error_message = refused.code, str(refused)
    return answer


def _check_partition(broker: Broker, name: str, index: int) -> None:
    topic = named_topic(broker, name)
    if topic is None:
        raise PartRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    if not 0 <= index < topic.partitions:
        raise PartRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
