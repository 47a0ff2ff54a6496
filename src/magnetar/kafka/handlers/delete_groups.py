"""DeleteGroups: forget groups without members, and all they committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.serving.pace import distinct, paced
from magnetar.wire.kafka.messages.delete_groups_request import DeleteGroupsRequest
from magnetar.wire.kafka.messages.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def delete_groups(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    """Answer for each group when it is durably gone."""
    results = []
    async for group_id in paced(distinct(request.groups_names)):
        result = DeletableGroupResult(group_id=group_id)
        try:
            is_share = context.kafka.groups.share_group(group_id) is not None
            await context.kafka.groups.delete_group(group_id)
            if is_share:  # by now nobody can join it and go on where it was
                await (await context.kafka.shares.get()).delete_group(group_id)
        except CoordinatorRefused as refused:
            result.error_code = refused.code
        results.append(result)
    return DeleteGroupsResponse(results=results)
