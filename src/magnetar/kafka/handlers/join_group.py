"""JoinGroup: become, or stay, a member of a classic group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.kafka.coordinators.classic import Caller
from magnetar.kafka.wire.messages.join_group_request import JoinGroupRequest
from magnetar.kafka.wire.messages.join_group_response import JoinGroupResponse

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def join_group(request: JoinGroupRequest, context: RequestContext) -> JoinGroupResponse:
    """Answer when the group's next generation begins."""
    caller = Caller(context.client_id, context.client_host, context.api_version)
    return await context.kafka.groups.join(request, caller)
