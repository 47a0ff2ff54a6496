"""LeaveGroup: one member leaves, or (since version 3) an operator or a client takes several out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.wire.kafka.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from magnetar.wire.kafka.messages.leave_group_response import LeaveGroupResponse

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

_FIRST_WITH_MEMBERS = 3


async def leave_group(request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    """Answer for each member; for the single one of old versions, at the top."""
    groups = context.kafka.groups
    if context.api_version >= _FIRST_WITH_MEMBERS:
        return await groups.leave(request)
    member = MemberIdentity(member_id=request.member_id)
    answer = await groups.leave(LeaveGroupRequest(group_id=request.group_id, members=[member]))
    code = answer.error_code or answer.members[0].error_code
    return LeaveGroupResponse(error_code=code)
