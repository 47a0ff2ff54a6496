"""InitializeShareGroupState: a group's coordinator begins the state of share partitions anew (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from magnetar.kafka.handlers.share_states import each_state
from magnetar.kafka.shares.state import ShareKey
from magnetar.wire.kafka.messages.initialize_share_group_state_request import InitializeShareGroupStateRequest
from magnetar.wire.kafka.messages.initialize_share_group_state_response import (
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionResult,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def initialize_share_group_state(
    request: InitializeShareGroupStateRequest, context: RequestContext
) -> InitializeShareGroupStateResponse:
    """Answer once the states are durable."""
    shares = await context.kafka.shares.get()

    async def initialize(key: ShareKey, wanted: Any) -> PartitionResult:
        await shares.states.initialize(key, wanted.state_epoch, wanted.start_offset)
        shares.forget(key)
        return PartitionResult(partition=key.partition)

    return InitializeShareGroupStateResponse(
        results=[
            InitializeStateResult(topic_id=topic_id, partitions=rows)
            for topic_id, rows in await each_state(
                request.group_id, request.topics, context, initialize, PartitionResult
            )
        ]
    )
