"""CreateAcls: entries more; those that are there already stay as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.auth.acls import Acl
from magnetar.kafka.errors import REFUSALS, code_for
from magnetar.kafka.handlers.access_control_lists import acl_of, check_enabled
from magnetar.serving.pace import paced
from magnetar.wire.kafka.messages.create_acls_request import CreateAclsRequest
from magnetar.wire.kafka.messages.create_acls_response import AclCreationResult, CreateAclsResponse

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def create_acls(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    """Keep what can be; what is wrong with one entry leaves the others alone."""
    found: list[Acl | Exception] = []
    async for row in paced(request.creations):
        try:
            check_enabled(context)
            found.append(acl_of(row))
        except REFUSALS as error:
            found.append(error)
    wanted = [each for each in found if isinstance(each, Acl)]
    try:
        await context.kafka.broker.security.policies.create(wanted)
    except REFUSALS as error:
        found = [error if isinstance(each, Acl) else each for each in found]
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_code=code_for(each), error_message=str(each))
            if isinstance(each, Exception)
            else AclCreationResult(error_message=None)
            async for each in paced(found)
        ]
    )
