"""ConsumerGroupDescribe: groups of the consumer protocol (KIP-848), their members, what these have and should have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.handlers.describe_groups import GROUP_OPERATIONS
from magnetar.kafka.handlers.rebalance_protocols import check_served
from magnetar.kafka.operations import NOT_ASKED
from magnetar.serving.pace import told_of
from magnetar.wire.kafka.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from magnetar.wire.kafka.messages.consumer_group_describe_response import (
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def consumer_group_describe(
    request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    """Tell of each group; one of another kind is not found, as in Kafka."""
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    return ConsumerGroupDescribeResponse(
        groups=await told_of(
            request.group_ids,
            lambda group_id: _described(group_id, context, operations),
            lambda group: len(group.members),
        )
    )


def _described(group_id: str, context: RequestContext, operations: int) -> DescribedGroup:
    try:
        check_served(context, "consumer")
        found = context.kafka.groups.describe_consumer(group_id)
    except CoordinatorRefused as refused:
        return DescribedGroup(
            group_id=group_id,
            error_code=refused.code,
            error_message=str(refused),
            authorized_operations=NOT_ASKED,
        )
    found.authorized_operations = operations
    return found
