"""ApiVersions: what this broker serves, read from ``ROUTES``, so it cannot promise what it does not do.

Features are those of `magnetar.kafka.handlers.features`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from magnetar.kafka.handlers.features import LEVELS
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages import ApiKey
from magnetar.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from magnetar.wire.kafka.messages.api_versions_response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
_FIRST_WITH_SOFTWARE = _FIRST_WITH_EPOCH = 3
_FIRST_WITH_LEVEL_0 = 4
"""Earlier clients refuse an answer with a feature of level 0 (KAFKA-17011), so Kafka leaves those out."""
_TELEMETRY = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)
_FEATURES = [name for name, level in LEVELS.items() if not level]
_SERVED = {name: level for name, level in LEVELS.items() if level}


async def api_versions(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    """List the APIs; a client that gives itself an impossible name is refused (KIP-511)."""
    if context.api_version >= _FIRST_WITH_SOFTWARE:
        for word in (request.client_software_name, request.client_software_version):
            if _SOFTWARE.fullmatch(word) is None:
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.software.name = request.client_software_name
        context.software.version = request.client_software_version
    answer = ApiVersionsResponse(api_keys=served())
    if not context.kafka.client_metrics.is_asked_for:
        # As in Kafka clients are not bothered with it where nothing is asked for.
        answer.api_keys = [row for row in answer.api_keys if row.api_key not in _TELEMETRY]
    if context.api_version >= _FIRST_WITH_EPOCH:
        # Known, and the same for ever: what is finalized comes with the broker.
        answer.finalized_features_epoch = 0
        answer.supported_features = [
            SupportedFeatureKey(name=name, max_version=most) for name, most in _SERVED.items()
        ]
        answer.finalized_features = [
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in _SERVED.items()
        ]
    if context.api_version >= _FIRST_WITH_LEVEL_0:
        answer.supported_features += [SupportedFeatureKey(name=name) for name in _FEATURES]
    return answer


def unsupported_version() -> ApiVersionsResponse:
    """The answer, in version 0, to a client that asks in a version we do not know: which ones we do (KIP-511)."""
    own = [row for row in served() if row.api_key == ApiVersionsRequest.API_KEY]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=own)


def served() -> list[ApiVersion]:
    """Return every route's key and versions."""
    from magnetar.kafka.handlers import ROUTES

    return [
        ApiVersion(api_key=route.api_key, min_version=route.first, max_version=route.last) for route in ROUTES
    ]
