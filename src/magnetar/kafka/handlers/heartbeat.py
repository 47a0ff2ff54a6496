"""Heartbeat: a member lives, and learns whether it has to rejoin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.wire.kafka.messages.heartbeat_request import HeartbeatRequest
from magnetar.wire.kafka.messages.heartbeat_response import HeartbeatResponse

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def heartbeat(request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    """Answer at once."""
    return await context.kafka.groups.heartbeat(request)
