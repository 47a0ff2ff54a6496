"""DescribeAcls: there are none, and no authorizer of Kafka's that would keep them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.kafka.handlers.access_control_lists import CODE, MESSAGE
from magnetar.wire.kafka.messages.describe_acls_request import DescribeAclsRequest
from magnetar.wire.kafka.messages.describe_acls_response import DescribeAclsResponse

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def describe_acls(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    """Answer SECURITY_DISABLED, whatever the filter."""
    return DescribeAclsResponse(error_code=CODE, error_message=MESSAGE)
