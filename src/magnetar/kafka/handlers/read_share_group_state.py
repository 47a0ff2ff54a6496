"""ReadShareGroupState: all that is kept of share partitions, for the broker that has their logs (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from magnetar.kafka.handlers.share_states import each_state
from magnetar.kafka.shares.state import ShareKey
from magnetar.wire.kafka.messages.read_share_group_state_request import ReadShareGroupStateRequest
from magnetar.wire.kafka.messages.read_share_group_state_response import (
    PartitionResult,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def read_share_group_state(
    request: ReadShareGroupStateRequest, context: RequestContext
) -> ReadShareGroupStateResponse:
    """Tell of each; who asks with an older leader epoch than another has is refused."""
    shares = await context.kafka.shares.get()

    async def read(key: ShareKey, wanted: Any) -> PartitionResult:
        state = await shares.states.read(key, wanted.leader_epoch)
        return PartitionResult(
            partition=key.partition,
            state_epoch=state.state_epoch,
            start_offset=state.start_offset,
            state_batches=[
                StateBatch(
                    first_offset=each.first,
                    last_offset=each.last,
                    delivery_state=each.state,
                    delivery_count=each.deliveries,
                )
                for each in state.batches
            ],
        )

    return ReadShareGroupStateResponse(
        results=[
            ReadStateResult(topic_id=topic_id, partitions=rows)
            for topic_id, rows in await each_state(
                request.group_id, request.topics, context, read, PartitionResult
            )
        ]
    )
