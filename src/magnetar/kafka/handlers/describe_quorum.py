"""DescribeQuorum: who votes about the cluster's metadata. Here nobody does: it lies in a store, which keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.describe_quorum_request import DescribeQuorumRequest
from magnetar.wire.kafka.messages.describe_quorum_response import DescribeQuorumResponse

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def describe_quorum(request: DescribeQuorumRequest, context: RequestContext) -> DescribeQuorumResponse:
    """Say that there is no quorum.

    That the metadata's partition is not here would be as true, but Java's admin client asks that again for a minute.
    """
    return DescribeQuorumResponse(
        error_code=ErrorCode.INVALID_REQUEST,
        error_message="There is no quorum: this cluster keeps its metadata in a store, and has no controllers.",
    )
