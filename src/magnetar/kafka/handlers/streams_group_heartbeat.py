"""StreamsGroupHeartbeat: join, live, change and leave a group of Kafka Streams' own protocol (KIP-1071)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from magnetar.base.errors import BrokerError, TopicExists
from magnetar.coordination.caller import Caller
from magnetar.kafka.apart import load_apart
from magnetar.kafka.authorization.checks import Checks
from magnetar.kafka.handlers.assignments import PartRefused, check_replication_factor
from magnetar.kafka.handlers.rebalance_protocols import serves
from magnetar.serving.pace import paced
from magnetar.topics.new_topic import NewTopic
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest
from magnetar.wire.kafka.messages.streams_group_heartbeat_response import (
    Status,
    StreamsGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext
    from magnetar.kafka.coordinators.streams.topology import MissingTopic
    from magnetar.kafka.route import Handler


async def streams_group_heartbeat(
    request: StreamsGroupHeartbeatRequest, context: RequestContext
) -> StreamsGroupHeartbeatResponse:
    """Answer when what it led to is durable; internal topics that are missing are made before."""
    return await _heartbeat(request, context, lambda name: True)


async def _heartbeat(
    request: StreamsGroupHeartbeatRequest, context: RequestContext, may_create: Callable[[str], bool]
) -> StreamsGroupHeartbeatResponse:
    if not serves(context, "streams"):
        return StreamsGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    await load_apart(
        "magnetar.kafka.coordinators.streams.members", "magnetar.kafka.coordinators.streams.facts"
    )
    caller = Caller(context.client_id, context.client_host, context.api_version)
    answered = await context.kafka.groups.streams_heartbeat(request, caller)
    if answered.missing and not answered.response.error_code:
        denied = [each.name for each in answered.missing if not may_create(each.name)]
        if denied:  # then none is made, as in Kafka
            _add_detail(answered.response, f"Unauthorized to CREATE on topics {', '.join(denied)}.")
        elif failed := await _make(answered.missing, context):
            _add_detail(answered.response, f"Creation failed: {', '.join(failed)}.")
    return answered.response


def _add_detail(response: StreamsGroupHeartbeatResponse, detail: str) -> None:
    """Say it where the group is told that internal topics are missing."""
    for status in response.status or ():
        if status.status_code == _MISSING_INTERNAL_TOPICS:
            status.status_detail = f"{status.status_detail}; {detail}"
            return
    status = Status(status_code=_MISSING_INTERNAL_TOPICS, status_detail=detail)
    response.status = [*(response.status or ()), status]


_MISSING_INTERNAL_TOPICS = 3
_AS_BY_DEFAULT = (0, -1)
"""Replicas: what a topology says, and what CreateTopics says, who wants as many as topics have."""


_MOST_SHOWN = 100
"""Of the topics that could not be made: members get them anew with each heartbeat."""


async def _make(missing: Sequence[MissingTopic], context: RequestContext) -> list[str]:
    """Make internal topics, all by one request, as Kafka does; return what went wrong with which."""
    broker = context.kafka.broker
    failed, wanted = [], []
    async for topic in paced(missing):
        try:
            if topic.replication_factor not in _AS_BY_DEFAULT:
                check_replication_factor(topic.replication_factor, broker.cluster.ownership)
            name = broker.naming.parse(topic.name)
            wanted.append((topic.name, NewTopic(name, topic.partitions, dict(topic.configs))))
        except (BrokerError, PartRefused) as error:
            failed.append(f"{topic.name} ({error})")
    made: Sequence[object]
    try:
        made = await broker.create_topics([new for _, new in wanted])
    except BrokerError as error:  # of all of them together
        made = [error] * len(wanted)
    failed += [
        f"{name} ({result})"
        for (name, _), result in zip(wanted, made, strict=True)
        if isinstance(result, BrokerError) and not isinstance(result, TopicExists)
    ]
    more = len(failed) - _MOST_SHOWN
    return failed if more <= 0 else [*failed[:_MOST_SHOWN], f"and {more} more"]


async def guard(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    """READ on the group, DESCRIBE on all that a topology names, and CREATE on internal topics that are missing."""
    if not checks.uses(request.group_id):
        return _refused(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed.")
    async for part in paced(request.topology.subtopologies if request.topology is not None else ()):
        internal = [each.name for each in (*part.repartition_source_topics, *part.state_changelog_topics)]
        if not all(map(checks.sees, (*part.source_topics, *part.repartition_sink_topics, *internal))):
            return _refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    return await _heartbeat(request, context, checks.creates)


def _refused(code: ErrorCode, message: str) -> StreamsGroupHeartbeatResponse:
    return StreamsGroupHeartbeatResponse(error_code=code, error_message=message, status=[])
