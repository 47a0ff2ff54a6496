"""ShareGroupHeartbeat: join, live, change and leave a share group (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.apart import load_apart
from magnetar.wire.kafka.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from magnetar.wire.kafka.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def share_group_heartbeat(
    request: ShareGroupHeartbeatRequest, context: RequestContext
) -> ShareGroupHeartbeatResponse:
    """Answer when what it led to is durable."""
    await load_apart("magnetar.kafka.coordinators.share.members")
    from magnetar.kafka.coordinators.consumer.members import Beating
    from magnetar.kafka.coordinators.share.members import check

    caller = Beating(context.client_id, context.client_host, context.api_version)
    try:
        check(request)
        return await context.kafka.groups.share_heartbeat(request, caller)
    except CoordinatorRefused as refused:
        return ShareGroupHeartbeatResponse(error_code=refused.code, error_message=str(refused))
