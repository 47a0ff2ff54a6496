"""JoinGroup: become, or stay, a member of a classic group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.coordination.caller import Caller
from magnetar.wire.kafka.messages.join_group_request import JoinGroupRequest
from magnetar.wire.kafka.messages.join_group_response import JoinGroupResponse

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

_FIRST_WITHOUT_PROTOCOL = 7


async def join_group(request: JoinGroupRequest, context: RequestContext) -> JoinGroupResponse:
    """Answer when the group's next generation begins."""
    caller = Caller(context.client_id, context.client_host, context.api_version)
    answer = await context.kafka.groups.join(request, caller)
    if answer.error_code and context.api_version >= _FIRST_WITHOUT_PROTOCOL:
        answer.protocol_name = None
    return answer
