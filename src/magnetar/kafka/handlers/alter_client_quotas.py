"""AlterClientQuotas: what users, client ids and addresses may (KIP-546)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from magnetar.auth import Right
from magnetar.base.errors import InvalidQuota
from magnetar.kafka.authorization.checks import Checks
from magnetar.kafka.errors import REFUSALS, code_for
from magnetar.serving.pace import paced
from magnetar.topics.client_quotas import QuotaEntity, address_of, check_quota
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.alter_client_quotas_request import AlterClientQuotasRequest, OpData
from magnetar.wire.kafka.messages.alter_client_quotas_response import (
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext
    from magnetar.kafka.route import Handler

Parts = tuple[tuple[str, str | None], ...]
"""What an entity is made of, sorted: by this its answer is found."""


async def alter_client_quotas(
    request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    """Set quotas and take them away; what is wrong with one entity's leaves those of the others alone.

    Of an entity that is named twice the first counts, and as in Kafka both are answered together, with an error.
    """
    wanted: dict[QuotaEntity, dict[str, float | None]] = {}
    named: dict[Parts, QuotaEntity | Exception] = {}
    async for entry in paced(request.entries):
        parts = {each.entity_type: each.entity_name for each in entry.entity}
        key = tuple(sorted(parts.items()))
        if key in named or len({op.key for op in entry.ops}) < len(entry.ops):
            shown = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in key)
            named[key] = InvalidQuota(f"Ignoring duplicate entity ClientQuotaEntity(entries={{{shown}}})")
            continue
        try:
            entity = QuotaEntity.of(parts)
            await address_of(entity)
            wanted[entity] = {op.key: _checked(entity, op) for op in entry.ops}
            named[key] = entity
        except InvalidQuota as error:
            named[key] = error
    failed: Exception | None = None
    if not request.validate_only:
        try:
            await context.kafka.broker.client_quotas.alter(wanted)
        except REFUSALS as error:
            failed = error
    return AlterClientQuotasResponse(
        entries=[
            _answer(key, outcome if isinstance(outcome, Exception) else failed)
            async for key, outcome in paced(named.items())
        ]
    )


def _checked(entity: QuotaEntity, op: OpData) -> float | None:
    """Return the value that a quota is to have; None for one to be taken away, which may be any."""
    if op.remove:
        return None
    check_quota(entity, op.key, op.value)
    return op.value


def _answer(key: Parts, error: Exception | None) -> EntryData:
    return EntryData(
        error_code=ErrorCode.NONE if error is None else code_for(error),
        error_message=None if error is None else str(error),
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in key],
    )


async def guard(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    """ALTER_CONFIGS on the cluster."""
    if checks.on_cluster(Right.alter_cluster_configs):
        return await answer(request, context)
    return AlterClientQuotasResponse(
        entries=[
            EntryData(
                error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                error_message="Cluster authorization failed.",
                entity=[
                    EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
                    for part in each.entity
                ],
            )
            async for each in paced(request.entries)
        ]
    )
