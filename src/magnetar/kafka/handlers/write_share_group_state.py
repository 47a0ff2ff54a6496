"""WriteShareGroupState: the broker that has a partition's log says what became of its records (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from magnetar.coordination.shares.share_partition import ShareChanges
from magnetar.kafka.handlers.share_states import each_state, state_batches
from magnetar.kafka.shares.state import ShareKey
from magnetar.wire.kafka.messages.write_share_group_state_request import WriteShareGroupStateRequest
from magnetar.wire.kafka.messages.write_share_group_state_response import (
    PartitionResult,
    WriteShareGroupStateResponse,
    WriteStateResult,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def write_share_group_state(
    request: WriteShareGroupStateRequest, context: RequestContext
) -> WriteShareGroupStateResponse:
    """Answer once it is durable."""
    shares = await context.kafka.shares.get()

    async def write(key: ShareKey, wanted: Any) -> PartitionResult:
        batches = tuple(state_batches(wanted.state_batches))
        changes = ShareChanges(wanted.start_offset, wanted.delivery_complete_count, batches)
        await shares.states.loaded()
        await shares.states.write(key, wanted.state_epoch, wanted.leader_epoch, changes)
        shares.forget(key)  # whoever works on it here knows less than is stored
        return PartitionResult(partition=key.partition)

    return WriteShareGroupStateResponse(
        results=[
            WriteStateResult(topic_id=topic_id, partitions=rows)
            for topic_id, rows in await each_state(
                request.group_id, request.topics, context, write, PartitionResult
            )
        ]
    )
