"""Quotas of Kafka's clients: what is set for whom, and how it changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from magnetar.admin.cluster import ClusterAdmin
from magnetar.admin.errors import Invalid, NotThere
from magnetar.admin.refusals import check
from magnetar.topics.client_quotas import OF_ADDRESSES, OF_CLIENTS
from magnetar.wire.kafka.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from magnetar.wire.kafka.messages.alter_client_quotas_response import AlterClientQuotasResponse
from magnetar.wire.kafka.messages.describe_client_quotas_request import DescribeClientQuotasRequest
from magnetar.wire.kafka.messages.describe_client_quotas_response import DescribeClientQuotasResponse

Entity = Mapping[str, str | None]
"""By ``user``, ``client-id`` or ``ip`` its name; None for whoever has no quota of its own."""
_NAMES = ", ".join((*OF_CLIENTS, *OF_ADDRESSES))


@dataclass(frozen=True, slots=True)
class QuotasOf:
    """What one entity may. In ``entity`` a null stands for whoever has no quota of its own."""

    entity: dict[str, str | None]
    quotas: dict[str, float]


def list_quotas(cluster: ClusterAdmin, entity: Entity | None = None) -> tuple[QuotasOf, ...]:
    """Return the quotas of all entities, or of this one alone."""
    said = cluster.ask(DescribeClientQuotasRequest(components=[]), DescribeClientQuotasResponse)
    check(said.error_code, said.error_message, "quotas")
    found = [
        QuotasOf(
            {part.entity_type: part.entity_name for part in row.entity},
            {each.key: each.value for each in sorted(row.values, key=lambda each: each.key)},
        )
        for row in said.entries or ()
    ]
    kept = (each for each in found if entity is None or each.entity == dict(entity))
    return tuple(sorted(kept, key=lambda each: [(kind, name or "") for kind, name in each.entity.items()]))


def set_quotas(cluster: ClusterAdmin, entity: Entity, quotas: Mapping[str, float]) -> tuple[QuotasOf, ...]:
    """Set these quotas of an entity, and give all that it has then."""
    _alter(cluster, entity, dict(quotas))
    return list_quotas(cluster, entity)


def delete_quotas(cluster: ClusterAdmin, entity: Entity, names: list[str]) -> tuple[QuotasOf, ...]:
    """Take these quotas from an entity, all of them if none is named, and give those that are left."""
    kept = {key for each in list_quotas(cluster, entity) for key in each.quotas}
    missing = [name for name in names if name not in kept]
    if missing or not kept:
        raise NotThere(
            f"there is no {missing[0] if missing else 'quota'} of {named(entity)}",
            "See 'magnetar quota list'.",
        )
    _alter(cluster, entity, dict.fromkeys(names or sorted(kept)))
    return list_quotas(cluster, entity)


def parse_quotas(pairs: list[str]) -> dict[str, float]:
    """Read ``NAME=NUMBER`` pairs; raise `Invalid`."""
    parsed: dict[str, float] = {}
    for pair in pairs:
        name, _, number = pair.partition("=")
        try:
            parsed[name.strip()] = float(number)
        except ValueError:
            raise Invalid(
                f"{pair!r} is no quota",
                f"Write NAME=NUMBER, as in producer_byte_rate=1048576. There are {_NAMES}.",
            ) from None
    return parsed


def named(entity: Entity) -> str:
    """Return an entity as people say it."""
    return ", ".join(f"{kind} {name}" if name else f"any other {kind}" for kind, name in entity.items())


def _alter(cluster: ClusterAdmin, entity: Entity, quotas: Mapping[str, float | None]) -> None:
    entry = EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()],
    )
    said = cluster.ask(AlterClientQuotasRequest(entries=[entry]), AlterClientQuotasResponse)
    for row in said.entries:
        check(row.error_code, row.error_message, f"quotas of {named(entity)}", f"There are {_NAMES}.")
