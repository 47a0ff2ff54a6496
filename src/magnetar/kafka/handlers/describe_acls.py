"""DescribeAcls: the entries that a filter means, by resource; Pulsar's grants are told as entries, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.kafka.errors import REFUSALS, code_for
from magnetar.kafka.handlers.access_control_lists import check_enabled, filter_of
from magnetar.serving.pace import paced
from magnetar.wire.kafka.messages.describe_acls_request import DescribeAclsRequest
from magnetar.wire.kafka.messages.describe_acls_response import (
    AclDescription,
    DescribeAclsResource,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def describe_acls(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    """Tell of all that a filter means."""
    try:
        check_enabled(context)
        wanted = filter_of(request)
    except REFUSALS as error:
        return DescribeAclsResponse(error_code=code_for(error), error_message=str(error))
    resources: dict[object, DescribeAclsResource] = {}
    async for acl in paced(context.kafka.broker.security.policies.all()):
        if not wanted.fits(acl):
            continue
        key = acl[:3]
        if key not in resources:
            resources[key] = DescribeAclsResource(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
            )
        resources[key].acls.append(
            AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
        )
    return DescribeAclsResponse(error_message=None, resources=list(resources.values()))
