"""ConsumerGroupHeartbeat: join, live, change and leave a group of the consumer protocol (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.kafka.apart import load_apart
from magnetar.kafka.handlers.rebalance_protocols import serves
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from magnetar.wire.kafka.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

_GROUPS = "magnetar.kafka.coordinators.consumer.members", "magnetar.kafka.coordinators.migration"


async def consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse:
    """Answer when what it led to is durable."""
    if not serves(context, "consumer"):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    await load_apart(*_GROUPS)
    from magnetar.kafka.coordinators.consumer.members import Beating

    broker = context.kafka.broker
    may_see_all = context.access is None

    def shows(name: str) -> bool:
        topic = broker.get(name)
        return topic is not None and context.shows(topic.name)

    caller = Beating(
        context.client_id, context.client_host, context.api_version, None if may_see_all else shows
    )
    return await context.kafka.groups.consumer_heartbeat(request, caller)
