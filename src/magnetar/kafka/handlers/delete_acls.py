"""DeleteAcls: away with all entries that each filter means, and with what of Pulsar's grants they say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.auth.acls import Acl
from magnetar.kafka.errors import REFUSALS, code_for
from magnetar.kafka.handlers.access_control_lists import check_enabled, filter_of
from magnetar.serving.pace import paced
from magnetar.wire.kafka.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from magnetar.wire.kafka.messages.delete_acls_response import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def delete_acls(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    """Forget what the filters mean; one that cannot be leaves the others alone."""
    policies = context.kafka.broker.security.policies
    entries = policies.all()
    found = [await _meant(row, entries, context) async for row in paced(request.filters)]
    try:
        await policies.delete({acl for each in found if not isinstance(each, Exception) for acl in each})
    except REFUSALS as error:
        found = [each if isinstance(each, Exception) else error for each in found]
    return DeleteAclsResponse(filter_results=[_answered(each) async for each in paced(found)])


async def _meant(row: DeleteAclsFilter, entries: list[Acl], context: RequestContext) -> list[Acl] | Exception:
    try:
        check_enabled(context)
        wanted = filter_of(row)
    except REFUSALS as error:
        return error
    return [each async for each in paced(entries) if wanted.fits(each)]


def _answered(found: list[Acl] | Exception) -> DeleteAclsFilterResult:
    if isinstance(found, Exception):
        return DeleteAclsFilterResult(error_code=code_for(found), error_message=str(found))
    return DeleteAclsFilterResult(error_message=None, matching_acls=[_told(each) for each in found])


def _told(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
