"""ShareGroupDescribe: share groups, their members, and what these fetch from (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.handlers.describe_groups import GROUP_OPERATIONS
from magnetar.kafka.operations import NOT_ASKED
from magnetar.serving.pace import told_of
from magnetar.wire.kafka.messages.share_group_describe_request import ShareGroupDescribeRequest
from magnetar.wire.kafka.messages.share_group_describe_response import (
    DescribedGroup,
    ShareGroupDescribeResponse,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def share_group_describe(
    request: ShareGroupDescribeRequest, context: RequestContext
) -> ShareGroupDescribeResponse:
    """Tell of each group; one of another kind is not found, as in Kafka."""
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    return ShareGroupDescribeResponse(
        groups=await told_of(
            request.group_ids,
            lambda group_id: _described(group_id, context, operations),
            lambda group: len(group.members),
        )
    )


def _described(group_id: str, context: RequestContext, operations: int) -> DescribedGroup:
    try:
        found = context.kafka.groups.describe_share(group_id)
    except CoordinatorRefused as refused:
        return DescribedGroup(
            group_id=group_id,
            error_code=refused.code,
            error_message=str(refused),
            authorized_operations=NOT_ASKED,
        )
    found.authorized_operations = operations
    return found
