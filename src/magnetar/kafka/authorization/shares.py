"""Requests about share groups, and what is kept of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from magnetar.broker.auth import Right
from magnetar.kafka.authorization import operations
from magnetar.kafka.authorization.checks import Checks, GuardFunction
from magnetar.kafka.authorization.groups import DENIED, MESSAGE
from magnetar.kafka.authorization.topics import DENIED as TOPIC_DENIED
from magnetar.kafka.authorization.topics import MESSAGE as TOPIC_MESSAGE
from magnetar.kafka.authorization.topics import split
from magnetar.kafka.operations import NOT_ASKED
from magnetar.kafka.pace import paced
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages import (
    alter_share_group_offsets_response,
    delete_share_group_offsets_response,
    delete_share_group_state_response,
    describe_share_group_offsets_response,
    initialize_share_group_state_response,
    read_share_group_state_response,
    read_share_group_state_summary_response,
    write_share_group_state_response,
)
from magnetar.wire.kafka.messages.share_acknowledge_response import PartitionData as AcknowledgedRow
from magnetar.wire.kafka.messages.share_acknowledge_response import (
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from magnetar.wire.kafka.messages.share_fetch_response import ShareFetchResponse
from magnetar.wire.kafka.messages.share_group_describe_response import DescribedGroup
from magnetar.wire.kafka.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext
    from magnetar.kafka.route import Handler

_CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def share_group_heartbeat(
    request: Any, context: RequestContext, checks: Checks, answer: Handler
) -> Any:
    """READ on the group, and DESCRIBE on each topic that is named."""
    if not checks.uses(request.group_id):
        return ShareGroupHeartbeatResponse(error_code=DENIED, error_message=MESSAGE)
    async for name in paced(request.subscribed_topic_names or ()):
        if not checks.sees(name):
            return ShareGroupHeartbeatResponse(error_code=TOPIC_DENIED, error_message=TOPIC_MESSAGE)
    return await answer(request, context)


async def share_group_describe(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    """DESCRIBE on each group, and on each topic that its members read."""
    request.group_ids, denied = await split(request.group_ids, checks.sees_group)
    response = await answer(request, context)
    async for group in paced(response.groups):
        if group.authorized_operations != NOT_ASKED:
            group.authorized_operations = operations.of_group(checks, group.group_id)
    response.groups = [
        group
        if all(checks.sees(name) for name in _topics_of(group))
        else DescribedGroup(
            group_id=group.group_id,
            error_code=TOPIC_DENIED,
            error_message="The group has described topic(s) that the client is not authorized to describe.",
        )
        async for group in paced(response.groups)
    ]
    response.groups += [
        DescribedGroup(group_id=group_id, error_code=DENIED, error_message=MESSAGE)
        async for group_id in paced(denied)
    ]
    return response


def _topics_of(group: DescribedGroup) -> set[str]:
    return {each.topic_name for member in group.members for each in member.assignment.topic_partitions} | {
        name for member in group.members for name in member.subscribed_topic_names
    }


async def share_fetch(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    """READ on the group; the handler asks for READ on each topic, each time it looks."""
    if not checks.uses(request.group_id or ""):
        return ShareFetchResponse(error_code=DENIED, error_message=MESSAGE)
    return await answer(request, context)


async def share_acknowledge(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    """READ on the group, and on each topic."""
    if not checks.uses(request.group_id or ""):
        return ShareAcknowledgeResponse(error_code=DENIED, error_message=MESSAGE)
    request.topics, denied = await split(request.topics, lambda topic: checks.reads(None, topic.topic_id))
    response = await answer(request, context)
    if not response.error_code:
        response.responses += [
            ShareAcknowledgeTopicResponse(
                topic_id=topic.topic_id,
                partitions=[
                    AcknowledgedRow(
                        partition_index=each.partition_index,
                        error_code=TOPIC_DENIED,
                        error_message=TOPIC_MESSAGE,
                    )
                    async for each in paced(topic.partitions)
                ],
            )
            async for topic in paced(denied)
        ]
    return response


# What brokers ask of each other: CLUSTER_ACTION on the cluster.


def _between_brokers(
    response: Callable[..., Any], result: Callable[..., Any], row: Callable[..., Any]
) -> GuardFunction:
    async def guard(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
        if checks.on_cluster(Right.act_for_cluster):
            return await answer(request, context)
        return response(
            results=[
                result(
                    topic_id=topic.topic_id,
                    partitions=[
                        row(partition=each.partition, error_code=_CLUSTER_DENIED)
                        async for each in paced(topic.partitions)
                    ],
                )
                async for topic in paced(request.topics)
            ]
        )

    return guard


initialize_share_group_state = _between_brokers(
    initialize_share_group_state_response.InitializeShareGroupStateResponse,
    initialize_share_group_state_response.InitializeStateResult,
    initialize_share_group_state_response.PartitionResult,
)
read_share_group_state = _between_brokers(
    read_share_group_state_response.ReadShareGroupStateResponse,
    read_share_group_state_response.ReadStateResult,
    read_share_group_state_response.PartitionResult,
)
write_share_group_state = _between_brokers(
    write_share_group_state_response.WriteShareGroupStateResponse,
    write_share_group_state_response.WriteStateResult,
    write_share_group_state_response.PartitionResult,
)
delete_share_group_state = _between_brokers(
    delete_share_group_state_response.DeleteShareGroupStateResponse,
    delete_share_group_state_response.DeleteStateResult,
    delete_share_group_state_response.PartitionResult,
)
read_share_group_state_summary = _between_brokers(
    read_share_group_state_summary_response.ReadShareGroupStateSummaryResponse,
    read_share_group_state_summary_response.ReadStateSummaryResult,
    read_share_group_state_summary_response.PartitionResult,
)


# Offsets.


async def describe_share_group_offsets(
    request: Any, context: RequestContext, checks: Checks, answer: Handler
) -> Any:
    """DESCRIBE on each group, and on each topic; of all topics, those that may be seen."""
    kind = describe_share_group_offsets_response
    request.groups, denied = await split(request.groups, lambda group: checks.sees_group(group.group_id))
    all_topics = {group.group_id for group in request.groups if group.topics is None}
    response = await answer(request, context)
    async for group in paced(response.groups):
        seen, hidden = await split(group.topics, lambda topic: checks.sees(topic.topic_name))
        group.topics = seen
        if group.group_id in all_topics:
            continue
        async for topic in paced(hidden):
            async for row in paced(topic.partitions):
                row.start_offset, row.lag, row.leader_epoch = -1, -1, 0
                row.error_code, row.error_message = TOPIC_DENIED, TOPIC_MESSAGE
            group.topics.append(topic)
    response.groups += [
        kind.DescribeShareGroupOffsetsResponseGroup(
            group_id=group.group_id, error_code=DENIED, error_message=MESSAGE
        )
        async for group in paced(denied)
    ]
    return response


async def alter_share_group_offsets(
    request: Any, context: RequestContext, checks: Checks, answer: Handler
) -> Any:
    """READ on the group, and on each topic."""
    kind = alter_share_group_offsets_response
    if not checks.uses(request.group_id):
        return kind.AlterShareGroupOffsetsResponse(error_code=DENIED, error_message=MESSAGE)
    request.topics, denied = await split(request.topics, lambda topic: checks.reads(topic.topic_name))
    response = await answer(request, context)
    response.responses += [
        kind.AlterShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name,
            partitions=[
                kind.AlterShareGroupOffsetsResponsePartition(
                    partition_index=each.partition_index,
                    error_code=TOPIC_DENIED,
                    error_message=TOPIC_MESSAGE,
                )
                async for each in paced(topic.partitions)
            ],
        )
        async for topic in paced(denied)
    ]
    return response


async def delete_share_group_offsets(
    request: Any, context: RequestContext, checks: Checks, answer: Handler
) -> Any:
    """DELETE on the group, and READ on each topic."""
    kind = delete_share_group_offsets_response
    if not checks.deletes_group(request.group_id):
        return kind.DeleteShareGroupOffsetsResponse(error_code=DENIED, error_message=MESSAGE)
    request.topics, denied = await split(request.topics, lambda topic: checks.reads(topic.topic_name))
    response = await answer(request, context)
    response.responses += [
        kind.DeleteShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name, error_code=TOPIC_DENIED, error_message=TOPIC_MESSAGE
        )
        async for topic in paced(denied)
    ]
    return response
