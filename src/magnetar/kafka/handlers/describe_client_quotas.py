"""DescribeClientQuotas: the quotas of users, client ids and addresses (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from magnetar.auth import Right
from magnetar.kafka.authorization.checks import Checks
from magnetar.kafka.handlers.assignments import PartRefused
from magnetar.serving.pace import paced
from magnetar.topics.client_quotas import CLIENT_ID, IP, USER
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.describe_client_quotas_request import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from magnetar.wire.kafka.messages.describe_client_quotas_response import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext
    from magnetar.kafka.route import Handler

_EXACT, _DEFAULT, _SPECIFIED = range(3)
"""How a component matches: this name, the default, or whatever there is."""


async def describe_client_quotas(
    request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    """Return the quotas of all entities that fit each component; if ``strict``, of those that have no other parts."""
    try:
        _check(request.components)
    except PartRefused as refused:
        return _refusal(refused.code, str(refused))
    return DescribeClientQuotasResponse(
        error_message=None,
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in parts.items()],
                values=[ValueData(key=key, value=value) for key, value in quotas.items()],
            )
            async for entity, quotas in paced(context.kafka.broker.client_quotas.all())
            if _fits(parts := entity.parts(), request.components, strict=request.strict)
        ],
    )


def _fits(parts: Mapping[str, str | None], components: Sequence[ComponentData], *, strict: bool) -> bool:
    if strict and len(parts) != len(components):
        return False
    return all(
        each.entity_type in parts and (each.match_type == _SPECIFIED or parts[each.entity_type] == each.match)
        for each in components
    )


def _check(components: Sequence[ComponentData]) -> None:
    """Raise `PartRefused` for what Kafka refuses."""
    seen: set[str] = set()
    for each in components:  # of three types, once each: this ends with the fourth
        if not each.entity_type:
            raise PartRefused(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if each.entity_type in seen:
            message = f"Entity type {each.entity_type} cannot appear more than once in the filter."
            raise PartRefused(ErrorCode.INVALID_REQUEST, message)
        if each.entity_type not in (USER, CLIENT_ID, IP):
            raise PartRefused(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {each.entity_type}")
        seen.add(each.entity_type)
        if each.match_type not in (_EXACT, _DEFAULT, _SPECIFIED):
            raise PartRefused(ErrorCode.INVALID_REQUEST, f"Unknown match type {each.match_type}")
        if (each.match is not None) != (each.match_type == _EXACT):
            message = f"Match type {each.match_type} {'needs a' if each.match is None else 'takes no'} match string."
            raise PartRefused(ErrorCode.INVALID_REQUEST, message)
    if IP in seen and len(seen) > 1:
        message = "IP filter component should not be used with user or clientId filter component."
        raise PartRefused(
            ErrorCode.INVALID_REQUEST, f"Invalid entity filter component combination. {message}"
        )


def _refusal(code: ErrorCode, message: str) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)


async def guard(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    """DESCRIBE_CONFIGS on the cluster."""
    if not checks.on_cluster(Right.see_cluster_configs):
        return _refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    return await answer(request, context)
