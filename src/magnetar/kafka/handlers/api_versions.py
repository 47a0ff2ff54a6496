"""ApiVersions: what this broker serves, read from ``ROUTES``, so it cannot promise what it does not do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from magnetar.kafka.wire.errors import ErrorCode
from magnetar.kafka.wire.messages.api_versions_request import ApiVersionsRequest
from magnetar.kafka.wire.messages.api_versions_response import ApiVersion, ApiVersionsResponse

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
_FIRST_WITH_SOFTWARE = 3


async def api_versions(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    """List the APIs; a client that gives itself an impossible name is refused (KIP-511)."""
    if context.api_version >= _FIRST_WITH_SOFTWARE:
        for word in (request.client_software_name, request.client_software_version):
            if _SOFTWARE.fullmatch(word) is None:
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.software.name = request.client_software_name
    return ApiVersionsResponse(api_keys=served())


def unsupported_version() -> ApiVersionsResponse:
    """The answer, in version 0, to a client that asks in a version we do not know: which ones we do (KIP-511)."""
    own = [row for row in served() if row.api_key == ApiVersionsRequest.API_KEY]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=own)


def served() -> list[ApiVersion]:
    """Give every route's key and versions."""
    from magnetar.kafka.handlers import ROUTES

    return [
        ApiVersion(api_key=route.api_key, min_version=route.first, max_version=route.last) for route in ROUTES
    ]
