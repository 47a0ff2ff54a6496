"""LeaveGroup: one member leaves, or (since version 3) an operator or a client takes several out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from magnetar.wire.kafka.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from magnetar.wire.kafka.messages.leave_group_response import LeaveGroupResponse

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext
    from magnetar.kafka.coordinators.groups import GroupCoordinator

_FIRST_WITH_MEMBERS = 3
_AT_ONCE = 1000


async def leave_group(request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    """Answer for each member; for the single one of old versions, at the top."""
    groups = context.kafka.groups
    if context.api_version >= _FIRST_WITH_MEMBERS:
        return await _leave(request, groups)
    member = MemberIdentity(member_id=request.member_id)
    answer = await groups.leave(LeaveGroupRequest(group_id=request.group_id, members=[member]))
    code = answer.error_code or answer.members[0].error_code
    return LeaveGroupResponse(error_code=code)


async def _leave(request: LeaveGroupRequest, groups: GroupCoordinator) -> LeaveGroupResponse:
    """A coordinator decides in one piece: of very many members so many at a time, others having turns between."""
    members, told = request.members, []
    for first in range(0, max(len(members), 1), _AT_ONCE):
        if first:
            await asyncio.sleep(0)
        some = LeaveGroupRequest(group_id=request.group_id, members=members[first : first + _AT_ONCE])
        answer = await groups.leave(some)
        if answer.error_code:
            return answer
        told += answer.members
    return LeaveGroupResponse(members=told)
