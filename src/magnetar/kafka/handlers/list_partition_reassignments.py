"""ListPartitionReassignments: partitions have one replica, so none is ever reassigned; bundles move by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.wire.kafka.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
)
from magnetar.wire.kafka.messages.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """Tell of no topic, as Kafka does of those that are not being moved, and of those that are not there."""
    return ListPartitionReassignmentsResponse(error_message=None)
