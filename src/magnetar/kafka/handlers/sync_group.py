"""SyncGroup: hand in the leader's assignment, and get one's own part of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.sync_group_request import SyncGroupRequest
from magnetar.wire.kafka.messages.sync_group_response import SyncGroupResponse

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

_FIRST_WITH_PROTOCOL = 5


async def sync_group(request: SyncGroupRequest, context: RequestContext) -> SyncGroupResponse:
    """Answer when the leader has assigned; since version 5 members must say which protocol they follow (KIP-559)."""
    unsaid = request.protocol_type is None or request.protocol_name is None
    if unsaid and context.api_version >= _FIRST_WITH_PROTOCOL:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return await context.kafka.groups.sync(request)
