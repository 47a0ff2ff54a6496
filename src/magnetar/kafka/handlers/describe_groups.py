"""DescribeGroups: the state of classic groups and what their members were assigned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.coordinators.group import GroupState
from magnetar.kafka.coordinators.views import GroupView
from magnetar.kafka.operations import NOT_ASKED
from magnetar.serving.pace import told_of
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.describe_groups_request import DescribeGroupsRequest
from magnetar.wire.kafka.messages.describe_groups_response import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

_READ, _DELETE, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS = 3, 6, 8, 10, 11
GROUP_OPERATIONS = sum(
    1 << operation for operation in (_READ, _DELETE, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
)
"""Nobody is refused anything yet."""
_FIRST_WITH_NOT_FOUND = 6


async def describe_groups(request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    """Tell of each group; one that does not exist counts as dead, and is an error since version 6 (KIP-1043)."""
    told = await told_of(
        request.groups, lambda group_id: _described(group_id, context), lambda group: len(group.members)
    )
    if request.include_authorized_operations:
        for group in (group for group in told if not group.error_code):
            group.authorized_operations = GROUP_OPERATIONS
    return DescribeGroupsResponse(groups=told)


def _described(group_id: str, context: RequestContext) -> DescribedGroup:
    try:
        group = context.kafka.groups.describe(group_id)
        if group.kind != "classic":
            raise CoordinatorRefused(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a classic group."
            )
    except CoordinatorRefused as refused:
        absent = DescribedGroup(group_id=group_id, authorized_operations=NOT_ASKED)
        if refused.code != ErrorCode.GROUP_ID_NOT_FOUND:
            absent.error_code = refused.code
            return absent
        absent.group_state = GroupState.DEAD
        if context.api_version >= _FIRST_WITH_NOT_FOUND:
            absent.error_code, absent.error_message = refused.code, str(refused)
        return absent
    return _told(group)


def _told(group: GroupView) -> DescribedGroup:
    stable = group.state is GroupState.STABLE
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol if stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata if stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
        authorized_operations=NOT_ASKED,
    )
