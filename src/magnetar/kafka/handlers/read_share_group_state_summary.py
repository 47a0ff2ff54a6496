"""ReadShareGroupStateSummary: how far share partitions are, without the states of single records (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from magnetar.kafka.handlers.share_states import each_state
from magnetar.kafka.shares.state import ShareKey
from magnetar.wire.kafka.messages.read_share_group_state_summary_request import (
    ReadShareGroupStateSummaryRequest,
)
from magnetar.wire.kafka.messages.read_share_group_state_summary_response import (
    PartitionResult,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def read_share_group_state_summary(
    request: ReadShareGroupStateSummaryRequest, context: RequestContext
) -> ReadShareGroupStateSummaryResponse:
    """Tell of each, and change nothing."""
    shares = await context.kafka.shares.get()

    async def read(key: ShareKey, wanted: Any) -> PartitionResult:
        state = await shares.states.read(key)
        return PartitionResult(
            partition=key.partition,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.complete,
        )

    return ReadShareGroupStateSummaryResponse(
        results=[
            ReadStateSummaryResult(topic_id=topic_id, partitions=rows)
            for topic_id, rows in await each_state(
                request.group_id, request.topics, context, read, PartitionResult
            )
        ]
    )
