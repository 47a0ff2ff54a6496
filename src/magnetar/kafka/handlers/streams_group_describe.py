"""StreamsGroupDescribe: groups of the streams protocol (KIP-1071), their topology, members and tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.handlers.describe_groups import GROUP_OPERATIONS
from magnetar.kafka.handlers.rebalance_protocols import check_served
from magnetar.kafka.operations import NOT_ASKED
from magnetar.serving.pace import told_of
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from magnetar.wire.kafka.messages.streams_group_describe_response import (
    DescribedGroup,
    StreamsGroupDescribeResponse,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

_NOT_STORED = 1
"""Of a topology's description (KIP-1331): no client is asked for one."""


async def streams_group_describe(
    request: StreamsGroupDescribeRequest, context: RequestContext
) -> StreamsGroupDescribeResponse:
    """Tell of each group; one of another kind is not found, as in Kafka."""
    may = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    groups = await told_of(
        request.group_ids,
        lambda group_id: _described(group_id, context, may),
        lambda group: len(group.members),
    )
    if request.include_topology_description:
        for group in groups:
            group.topology_description_status = 0 if group.error_code else _NOT_STORED
    return StreamsGroupDescribeResponse(groups=groups)


def _described(group_id: str, context: RequestContext, may: int) -> DescribedGroup:
    try:
        check_served(context, "streams")
        found = context.kafka.groups.describe_streams(group_id)
    except CoordinatorRefused as refused:
        return _refused(group_id, refused.code, str(refused))
    found.authorized_operations = may
    return found


def _refused(group_id: str, code: ErrorCode, message: str) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=code, error_message=message, topology=None)
