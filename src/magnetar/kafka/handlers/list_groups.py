"""ListGroups: all groups, or those in certain states (KIP-518) and of certain types (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.serving.pace import paced
from magnetar.wire.kafka.messages.list_groups_request import ListGroupsRequest
from magnetar.wire.kafka.messages.list_groups_response import ListedGroup, ListGroupsResponse

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def list_groups(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    """Tell of each group; names in filters may be written in any case."""
    states = {state.lower() async for state in paced(request.states_filter)}
    types = {kind.lower() async for kind in paced(request.types_filter)}
    try:
        groups = context.kafka.groups.list_groups()
    except CoordinatorRefused as refused:
        return ListGroupsResponse(error_code=refused.code)
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.kind,
            )
            for group in groups
            if (not states or group.state.lower() in states) and (not types or group.kind in types)
        ]
    )
