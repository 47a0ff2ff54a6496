"""DeleteShareGroupState: a group's coordinator has the states of share partitions forgotten (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from magnetar.kafka.handlers.share_states import each_state
from magnetar.kafka.shares.state import ShareKey
from magnetar.wire.kafka.messages.delete_share_group_state_request import DeleteShareGroupStateRequest
from magnetar.wire.kafka.messages.delete_share_group_state_response import (
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionResult,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def delete_share_group_state(
    request: DeleteShareGroupStateRequest, context: RequestContext
) -> DeleteShareGroupStateResponse:
    """Answer once they are gone; one that is not there is no error."""
    shares = await context.kafka.shares.get()

    async def delete(key: ShareKey, wanted: Any) -> PartitionResult:
        await shares.states.delete(key)
        shares.forget(key)
        return PartitionResult(partition=key.partition)

    return DeleteShareGroupStateResponse(
        results=[
            DeleteStateResult(topic_id=topic_id, partitions=rows)
            for topic_id, rows in await each_state(
                request.group_id, request.topics, context, delete, PartitionResult
            )
        ]
    )
