"""SyncGroup: hand in the leader's assignment, and get one's own part of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.kafka.wire.messages.sync_group_request import SyncGroupRequest
from magnetar.kafka.wire.messages.sync_group_response import SyncGroupResponse

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def sync_group(request: SyncGroupRequest, context: RequestContext) -> SyncGroupResponse:
    """Answer when the leader has assigned."""
    return await context.kafka.groups.sync(request)
