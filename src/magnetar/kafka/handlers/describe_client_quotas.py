"""DescribeClientQuotas: the quotas of users, client ids and addresses (KIP-546). This broker has none of Kafka's.

Kafka's own tool asks it first when it is to show users: without an answer it would not come to their SCRAM credentials.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from magnetar.kafka.authorization.checks import Checks
from magnetar.kafka.handlers.assignments import PartRefused
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.describe_client_quotas_request import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from magnetar.wire.kafka.messages.describe_client_quotas_response import DescribeClientQuotasResponse

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext
    from magnetar.kafka.route import Handler

_USER, _CLIENT_ID, _IP = "user", "client-id", "ip"
_EXACT, _DEFAULT, _SPECIFIED = range(3)
"""How a component matches: this name, the default's entry, or whatever has a name."""


async def describe_client_quotas(
    request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    """Return that no quota is set, whatever is looked for, if it may be looked for."""
    try:
        _check(request.components)
    except PartRefused as refused:
        return _refusal(refused.code, str(refused))
    return DescribeClientQuotasResponse(error_message=None, entries=[])


def _check(components: Sequence[ComponentData]) -> None:
    """Raise `PartRefused` for what Kafka refuses."""
    seen: set[str] = set()
    for each in components:  # of three types, once each: this ends with the fourth
        if not each.entity_type:
            raise PartRefused(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if each.entity_type in seen:
            message = f"Entity type {each.entity_type} cannot appear more than once in the filter."
            raise PartRefused(ErrorCode.INVALID_REQUEST, message)
        if each.entity_type not in (_USER, _CLIENT_ID, _IP):
            raise PartRefused(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {each.entity_type}")
        seen.add(each.entity_type)
        if each.match_type not in (_EXACT, _DEFAULT, _SPECIFIED):
            raise PartRefused(ErrorCode.INVALID_REQUEST, f"Unknown match type {each.match_type}")
        if (each.match is not None) != (each.match_type == _EXACT):
            message = f"Match type {each.match_type} {'needs a' if each.match is None else 'takes no'} match string."
            raise PartRefused(ErrorCode.INVALID_REQUEST, message)
    if _IP in seen and len(seen) > 1:
        message = "IP filter component should not be used with user or clientId filter component."
        raise PartRefused(
            ErrorCode.INVALID_REQUEST, f"Invalid entity filter component combination. {message}"
        )


def _refusal(code: ErrorCode, message: str) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)


async def guard(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    """DESCRIBE_CONFIGS on the cluster."""
    if not checks.operates():
        return _refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    return await answer(request, context)
