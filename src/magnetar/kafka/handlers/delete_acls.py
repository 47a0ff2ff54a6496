"""DeleteAcls: there are none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.kafka.handlers.access_control_lists import CODE, MESSAGE
from magnetar.wire.kafka.messages.delete_acls_request import DeleteAclsRequest
from magnetar.wire.kafka.messages.delete_acls_response import DeleteAclsFilterResult, DeleteAclsResponse

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def delete_acls(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    """Answer SECURITY_DISABLED for each filter."""
    refused = DeleteAclsFilterResult(error_code=CODE, error_message=MESSAGE)
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
