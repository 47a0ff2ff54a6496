"""Requests about groups and what they committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from magnetar.auth import Right
from magnetar.kafka.authorization.checks import Checks
from magnetar.kafka.authorization.topics import DENIED as TOPIC_DENIED
from magnetar.kafka.authorization.topics import split
from magnetar.serving.pace import paced
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.find_coordinator_response import Coordinator
from magnetar.wire.kafka.messages.join_group_response import JoinGroupResponse
from magnetar.wire.kafka.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
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
