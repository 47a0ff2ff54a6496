"""CreateAcls: none is made, for nothing would obey them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.kafka.handlers.access_control_lists import CODE, MESSAGE
from magnetar.wire.kafka.messages.create_acls_request import CreateAclsRequest
from magnetar.wire.kafka.messages.create_acls_response import AclCreationResult, CreateAclsResponse

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def create_acls(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    """Answer SECURITY_DISABLED for each ACL that was to be made."""
    refused = AclCreationResult(error_code=CODE, error_message=MESSAGE)
    return CreateAclsResponse(results=[refused] * len(request.creations))
