"""ElectLeaders: nothing to elect, since bundles decide who leads: a partition has its leader or waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from magnetar.auth import Right
from magnetar.cluster.ownership import Owned
from magnetar.kafka.authorization.checks import Checks
from magnetar.kafka.handlers.named_topic import named_topic
from magnetar.node.broker import Broker
from magnetar.serving.pace import paced
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from magnetar.wire.kafka.messages.elect_leaders_response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext
    from magnetar.kafka.route import Handler

_PREFERRED, _UNCLEAN = 0, 1


async def elect_leaders(request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    """Tell of each partition that is named; where all are meant, only those would be told that get a new leader."""
    kind = request.election_type
    if kind not in (_PREFERRED, _UNCLEAN):
        return _refused(
            request, ErrorCode.INVALID_REQUEST, f"Unknown election type {kind}", context.api_version
        )
    if request.timeout_ms == 0 and request.topic_partitions is None:
        # As Kafka, which has no time to ask its controller; what is named is told at once.
        return _refused(request, ErrorCode.REQUEST_TIMED_OUT, None, context.api_version)
    return ElectLeadersResponse(
        replica_election_results=[
            await _told(context.kafka.broker, topic, kind)
            async for topic in paced(request.topic_partitions or [])
        ]
    )


async def guard(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    """ALTER on the cluster."""
    if checks.on_cluster(Right.alter_cluster):
        return await answer(request, context)
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return _refused(request, denied, "Cluster authorization failed.", context.api_version)


def _refused(
    request: ElectLeadersRequest, code: ErrorCode, message: str | None, version: int
) -> ElectLeadersResponse:
    """Return the same error for the request, which version 0 cannot tell, and for each of its partitions."""
    return ElectLeadersResponse(
        error_code=code if version else ErrorCode.NONE,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[_row(index, code, message) for index in topic.partitions],
            )
            for topic in request.topic_partitions or []
        ],
    )


async def _told(broker: Broker, asked: TopicPartitions, kind: int) -> ReplicaElectionResult:
    topic = named_topic(broker, asked.topic)
    count = 0 if topic is None else topic.partitions
    unknown = "No such topic as {0}" if topic is None else "No such partition as {0}-{1}"
    return ReplicaElectionResult(
        topic=asked.topic,
        partition_result=[
            _row(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, unknown.format(asked.topic, index))
            if topic is None or not 0 <= index < count
            else _elected(index, broker.cluster.ownership.owner(topic.name, index), kind)
            async for index in paced(asked.partitions)
        ],
    )


def _elected(index: int, owner: Owned | None, kind: int) -> PartitionResult:
    if owner is not None:
        return _row(index, ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    is_preferred = kind == _PREFERRED
    code = (
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE if is_preferred else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    )
    return _row(index, code, "The partition is on its way to another broker.")


def _row(index: int, code: ErrorCode, message: str | None) -> PartitionResult:
    return PartitionResult(partition_id=index, error_code=code, error_message=message)
