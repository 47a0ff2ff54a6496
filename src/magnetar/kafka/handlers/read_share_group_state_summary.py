"""ReadShareGroupStateSummary: how far share partitions are, without the states of single records (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.handlers.share_states import each_state
from magnetar.kafka.shares.state import ShareKey, ShareState
from magnetar.serving.pace import paced
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
    from magnetar.kafka.shares.shares import Shares


async def read_share_group_state_summary(
    request: ReadShareGroupStateSummaryRequest, context: RequestContext
) -> ReadShareGroupStateSummaryResponse:
    """Tell of each, and change nothing. Who names no topics is told of all that is kept here of the group."""
    shares = await context.kafka.shares.get()
    if not request.topics:
        return ReadShareGroupStateSummaryResponse(results=await _all_of(request.group_id, shares))

    async def read(key: ShareKey, wanted: Any) -> PartitionResult:
        state = await shares.states.read(key)
        return _row(key, state)

    return ReadShareGroupStateSummaryResponse(
        results=[
            ReadStateSummaryResult(topic_id=topic_id, partitions=rows)
            for topic_id, rows in await each_state(
                request.group_id, request.topics, context, read, PartitionResult
            )
        ]
    )


async def _all_of(group_id: str, shares: Shares) -> list[ReadStateSummaryResult]:
    await shares.states.loaded()
    try:
        ((_, found),) = shares.states.of_groups((group_id,))
    except CoordinatorRefused as refused:
        row = PartitionResult(error_code=refused.code, error_message=str(refused))
        return [ReadStateSummaryResult(partitions=[row])]
    topics: dict[bytes, list[PartitionResult]] = {}
    async for key, state in paced(found.items()):
        topics.setdefault(key.topic_id, []).append(_row(key, state))
    return [ReadStateSummaryResult(topic_id=topic_id, partitions=rows) for topic_id, rows in topics.items()]


def _row(key: ShareKey, state: ShareState) -> PartitionResult:
    return PartitionResult(
        partition=key.partition,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.complete,
    )
