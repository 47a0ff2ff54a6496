"""ApiVersions: what this broker serves, read from ``ROUTES``, so it cannot promise what it does not do.

It lists what Kafka lists, version for version, because clients look there for more than what they may ask:
``compat/api_versions.py`` compares whole answers, and the compatibility page gives a reason for each difference.
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
"""Java clients before 3.8 end their I/O thread at a feature whose lowest level is 0 (KAFKA-17492): it is left out."""
_FIRST_WITH_NODE = 5
_NO_NODE = -1
_TELEMETRY = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)


async def api_versions(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    """List the APIs; refuse a client that names itself as no client may, or that looks for another broker."""
    error = _refused(request, context)
    if error:
        return ApiVersionsResponse(error_code=error)
    version = context.api_version
    if version >= _FIRST_WITH_SOFTWARE:
        context.software.name = request.client_software_name
        context.software.version = request.client_software_version
    answer = ApiVersionsResponse(api_keys=served())
    if not context.kafka.client_metrics.is_asked_for:
        # As in Kafka clients are not bothered with it where nothing is asked for.
        answer.api_keys = [row for row in answer.api_keys if row.api_key not in _TELEMETRY]
    if version >= _FIRST_WITH_EPOCH:
        # Known, and the same for ever: what is finalized comes with the broker.
        answer.finalized_features_epoch = 0
        answer.finalized_features = [
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in LEVELS.items()
            if level
        ]
    if version >= _FIRST_WITH_LEVEL_0:
        answer.supported_features = [
            SupportedFeatureKey(name=name, max_version=level) for name, level in LEVELS.items()
        ]
    return answer


def _refused(request: ApiVersionsRequest, context: RequestContext) -> int:
    """Return the error for a client that may not go on with this broker, 0 for any other."""
    if is_malformed(request, context.api_version):
        return ErrorCode.INVALID_REQUEST
    if request.cluster_id is None or context.is_stranger:
        return 0
    broker = context.kafka.broker
    here = (broker.identity.cluster_id, broker.cluster.ownership.node_id)
    return 0 if (request.cluster_id, request.node_id) == here else ErrorCode.REBOOTSTRAP_REQUIRED


def is_malformed(request: ApiVersionsRequest, version: int) -> bool:
    """Whether a client names its software as none is named (KIP-511), or one of cluster and node alone (KIP-1242)."""
    if version >= _FIRST_WITH_NODE and (request.cluster_id is None) is not (request.node_id == _NO_NODE):
        return True
    words = (request.client_software_name, request.client_software_version)
    return version >= _FIRST_WITH_SOFTWARE and any(_SOFTWARE.fullmatch(word) is None for word in words)


def unsupported_version() -> ApiVersionsResponse:
    """The answer, in version 0, to a client that asks in a version we do not know: which ones we do (KIP-511)."""
    own = [row for row in served() if row.api_key == ApiVersionsRequest.API_KEY]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=own)


def served() -> list[ApiVersion]:
    """Return every route's key and versions."""
    from magnetar.kafka.handlers import ROUTES

    return [
        ApiVersion(api_key=route.api_key, min_version=route.listed_from, max_version=route.last)
        for route in ROUTES
    ]
