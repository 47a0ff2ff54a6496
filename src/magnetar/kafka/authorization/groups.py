"""Requests about groups and what they committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from magnetar.broker.auth import Right
from magnetar.kafka.authorization import operations
from magnetar.kafka.authorization.checks import Checks, GuardFunction
from magnetar.kafka.authorization.topics import DENIED as TOPIC_DENIED
from magnetar.kafka.authorization.topics import refused, split
from magnetar.kafka.operations import NOT_ASKED
from magnetar.kafka.pace import paced
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.consumer_group_describe_response import DescribedGroup as ToldGroup
from magnetar.wire.kafka.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from magnetar.wire.kafka.messages.delete_groups_response import DeletableGroupResult
from magnetar.wire.kafka.messages.describe_groups_response import DescribedGroup
from magnetar.wire.kafka.messages.find_coordinator_response import Coordinator
from magnetar.wire.kafka.messages.heartbeat_response import HeartbeatResponse
from magnetar.wire.kafka.messages.join_group_response import JoinGroupResponse
from magnetar.wire.kafka.messages.leave_group_response import LeaveGroupResponse
from magnetar.wire.kafka.messages.offset_commit_response import (
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from magnetar.wire.kafka.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from magnetar.wire.kafka.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from magnetar.wire.kafka.messages.sync_group_response import SyncGroupResponse
from magnetar.wire.kafka.primitives import ZERO_UUID

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext
    from magnetar.kafka.route import Handler

DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
MESSAGE = "Group authorization failed."
_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_FIRST_WITH_GROUPS = 8
_FIRST_WITH_GROUP_ERROR = 2
_FIRST_WITH_KEYS = 4
_FIRST_WITHOUT_PROTOCOL = 7


async def find_coordinator(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    """DESCRIBE on each group or transactional id; for share coordinators, as brokers ask, CLUSTER_ACTION."""
    allowed: Callable[[str], bool]
    if request.key_type == _GROUP:
        allowed, code = checks.sees_group, DENIED
    elif request.key_type == _TRANSACTION:
        allowed, code = checks.finds_transaction, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    else:
        may = request.key_type != _SHARE or checks.on_cluster(Right.act_for_cluster)
        allowed, code = (lambda key: may), ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if context.api_version < _FIRST_WITH_KEYS:
        response = await answer(request, context)
        if not allowed(request.key):
            response.error_code, response.error_message = code, code.name
            response.node_id, response.host, response.port = -1, "", -1
        return response
    request.coordinator_keys, denied = await split(request.coordinator_keys, allowed)
    response = await answer(request, context)
    response.coordinators += [
        Coordinator(key=key, node_id=-1, port=-1, error_code=code) async for key in paced(denied)
    ]
    return response


async def join_group(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    """READ on the group."""
    if checks.uses(request.group_id):
        return await answer(request, context)
    refused = JoinGroupResponse(error_code=DENIED, member_id=request.member_id)
    if context.api_version >= _FIRST_WITHOUT_PROTOCOL:
        refused.protocol_name = None
    return refused


def _member(response: Callable[..., Any]) -> GuardFunction:
    """Make the guard of a member's request: READ on its group, or an answer with nothing but the error."""

    async def guard(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
        if checks.uses(request.group_id):
            return await answer(request, context)
        return response(error_code=DENIED)

    return guard


heartbeat = _member(HeartbeatResponse)
leave_group = _member(LeaveGroupResponse)
sync_group = _member(SyncGroupResponse)


async def describe_groups(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    """DESCRIBE on each group."""
    request.groups, denied = await split(request.groups, checks.sees_group)
    response = await answer(request, context)
    async for group in paced(response.groups):
        if group.authorized_operations != NOT_ASKED:
            group.authorized_operations = operations.of_group(checks, group.group_id)
    response.groups += [
        DescribedGroup(group_id=group_id, error_code=DENIED) async for group_id in paced(denied)
    ]
    return response


async def consumer_group_heartbeat(
    request: Any, context: RequestContext, checks: Checks, answer: Handler
) -> Any:
    """READ on the group, and DESCRIBE on each topic that is named."""
    if not checks.uses(request.group_id):
        return ConsumerGroupHeartbeatResponse(error_code=DENIED, error_message=MESSAGE)
    async for name in paced(request.subscribed_topic_names or ()):
        if not checks.sees(name):
            return ConsumerGroupHeartbeatResponse(
                error_code=TOPIC_DENIED, error_message="Topic authorization failed."
            )
    return await answer(request, context)


async def consumer_group_describe(
    request: Any, context: RequestContext, checks: Checks, answer: Handler
) -> Any:
    """DESCRIBE on each group, and on each topic that its members read."""
    request.group_ids, denied = await split(request.group_ids, checks.sees_group)
    response = await answer(request, context)
    async for group in paced(response.groups):
        if group.authorized_operations != NOT_ASKED:
            group.authorized_operations = operations.of_group(checks, group.group_id)
    response.groups = [
        group
        if all(checks.sees(name) for name in _topics_of(group))
        else ToldGroup(
            group_id=group.group_id,
            error_code=TOPIC_DENIED,
            error_message="The group has described topic(s) that the client is not authorized to describe.",
        )
        async for group in paced(response.groups)
    ]
    response.groups += [
        ToldGroup(group_id=group_id, error_code=DENIED, error_message=MESSAGE)
        async for group_id in paced(denied)
    ]
    return response


def _topics_of(group: ToldGroup) -> set[str]:
    return {
        each.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for each in assignment.topic_partitions
    } | {name for member in group.members for name in member.subscribed_topic_names}


async def list_groups(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    """Of all groups, those that may be seen."""
    response = await answer(request, context)
    if not checks.on_cluster(Right.describe_cluster):
        response.groups = [
            group async for group in paced(response.groups) if checks.sees_group(group.group_id)
        ]
    return response


async def delete_groups(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    """DELETE on each group."""
    request.groups_names, denied = await split(request.groups_names, checks.deletes_group)
    response = await answer(request, context)
    response.results += [
        DeletableGroupResult(group_id=name, error_code=DENIED) async for name in paced(denied)
    ]
    return response


async def offset_commit(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    """READ on the group, and READ on each topic."""
    code = TOPIC_DENIED
    denied = request.topics
    if not checks.uses(request.group_id):
        code, request.topics = DENIED, []
    else:
        request.topics, denied = await split(
            request.topics, lambda topic: checks.reads(topic.name, topic.topic_id, request.group_id)
        )
    response = await answer(request, context)
    response.topics += [
        OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                async for each in paced(topic.partitions)
            ],
        )
        async for topic in paced(denied)
    ]
    return response


async def offset_fetch(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    """DESCRIBE on each group, and on each topic; of all topics, those that may be seen."""
    if context.api_version < _FIRST_WITH_GROUPS:
        return await _offset_fetch_one(request, context, checks, answer)
    all_topics = {group.group_id for group in request.groups if group.topics is None}
    request.groups, denied = await split(request.groups, lambda group: checks.sees_group(group.group_id))
    response = await answer(request, context)
    async for group in paced(response.groups):
        group.topics = await _shown(group.topics, checks, drop=group.group_id in all_topics)
    response.groups += [
        OffsetFetchResponseGroup(group_id=group.group_id, error_code=DENIED) async for group in paced(denied)
    ]
    return response


async def _offset_fetch_one(
    request: Any, context: RequestContext, checks: Checks, answer: Handler
) -> OffsetFetchResponse:
    asks_for_all = request.topics is None
    allowed = checks.sees_group(request.group_id)
    response: OffsetFetchResponse = await answer(request, context)
    if allowed:
        response.topics = await _shown(response.topics, checks, drop=asks_for_all)
        return response
    if context.api_version >= _FIRST_WITH_GROUP_ERROR:
        return OffsetFetchResponse(error_code=DENIED)
    async for topic in paced(response.topics):
        async for row in paced(topic.partitions):
            _blank(row, DENIED)
    return response


async def _shown(topics: list[Any], checks: Checks, *, drop: bool) -> list[Any]:
    """Take what must not be seen out of an answer; nothing was changed by asking for it."""
    seen, hidden = await split(
        topics, lambda topic: checks.sees(topic.name, getattr(topic, "topic_id", ZERO_UUID))
    )
    if drop:
        return seen
    async for topic in paced(hidden):
        async for row in paced(topic.partitions):
            _blank(row, TOPIC_DENIED)
    return topics


def _blank(row: Any, code: ErrorCode) -> None:
    row.committed_offset, row.committed_leader_epoch, row.metadata, row.error_code = -1, -1, "", code


async def offset_delete(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    """DELETE on the group, and READ on each topic."""
    if not checks.deletes_group(request.group_id):
        return OffsetDeleteResponse(error_code=DENIED)
    request.topics, denied = await split(
        request.topics, lambda topic: checks.reads(topic.name, group=request.group_id)
    )
    response = await answer(request, context)
    response.topics += await refused(denied, OffsetDeleteResponseTopic, OffsetDeleteResponsePartition)
    return response
