"""Kafka's client quotas in the metadata store, one entity to a path: ``/magnetar/client-quotas/<id>``, JSON.

    {"entity": {"user": "alice", "client-id": null}, "quotas": {"producer_byte_rate": 1048576.0}}
    {"entity": {"ip": "builder"}, "quotas": {"connection_creation_rate": 10.0}, "address": "10.0.0.7"}

A name that is null stands for all entities without a quota of their own. An id follows from the entity. The address
that a host's name had when its quota was set is stored with it, so that all brokers limit the same address.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv6Address, ip_address
from typing import Any, NamedTuple

from magnetar.base.errors import InvalidQuota
from magnetar.base.values import MAX_INT, MAX_LONG
from magnetar.metadata import MUST_NOT_EXIST, Delete, MetadataCorrupt, Op, Put, Stored
from magnetar.metadata.cache import MetadataCache

_ROOT = "/magnetar/client-quotas"
_AT_ONCE = 500  # entities in one commit

DEFAULT = ""
"""The name that stands for all entities without a quota of their own; Kafka has no entity with an empty name."""
USER, CLIENT_ID, IP = "user", "client-id", "ip"

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

_LARGEST: Mapping[str, tuple[float, str] | None] = {
    PRODUCER_BYTE_RATE: (MAX_LONG, "a LONG"),
    CONSUMER_BYTE_RATE: (MAX_LONG, "a LONG"),
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
    CONNECTION_CREATION_RATE: (MAX_INT, "an INT"),
}
"""All quotas, each with its largest value and type if it is a whole number."""
OF_CLIENTS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
OF_ADDRESSES = (CONNECTION_CREATION_RATE,)


class QuotaEntity(NamedTuple):
    """The subject of a quota. A part is None if the entity does not have it, `DEFAULT` for all others of its kind."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    @classmethod
    def of(cls, parts: Mapping[str, str | None]) -> QuotaEntity:
        """Return the entity of these parts, a null meaning the default; raise `InvalidQuota` as Kafka does."""
        if not parts:
            raise InvalidQuota("Invalid empty client quota entity")
        for kind, name in parts.items():
            if kind not in (USER, CLIENT_ID, IP):
                raise InvalidQuota(f"Unhandled client quota entity type: {kind}")
            if name == "":
                raise InvalidQuota(f"Empty {kind} not supported")
        if IP in parts and len(parts) > 1:
            raise InvalidQuota(
                "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
            )
        user, client_id, ip = ((parts[kind] or DEFAULT) if kind in parts else None for kind in _KINDS)
        return cls(user, client_id, ip)

    def parts(self) -> dict[str, str | None]:
        """Return what `of` takes."""
        return {kind: name or None for kind, name in zip(_KINDS, self, strict=True) if name is not None}


_KINDS = (USER, CLIENT_ID, IP)
Quotas = Mapping[str, float]
"""The limits of an entity, by key."""


class _Kept(NamedTuple):
    entity: QuotaEntity
    quotas: dict[str, float]
    address: str | None
    version: int

    @property
    def limited(self) -> QuotaEntity:
        """The entity as `ClientQuotas.limits` names it."""
        return self.entity if self.address is None else QuotaEntity(ip=self.address)


class ClientQuotas:
    """All client quotas, in memory."""

    root = _ROOT

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache
        self._kept: dict[str, _Kept] = {}
        """By path."""
        self.limits: dict[str, dict[QuotaEntity, float]] = {key: {} for key in _LARGEST}
        """By key and entity, whose ``ip`` is an address here."""
        self._of_address: dict[QuotaEntity, dict[str, Quotas]] = {}
        """By path: several names may have one address; the quota that was set last counts."""
        self.changed: list[Callable[[], None]] = []
        """Called when a quota has come, changed or gone."""

    def known(self) -> Iterable[str]:
        return tuple(self._kept)

    def apply(self, path: str, stored: Stored | None) -> None:
        """Apply the stored state of one entity."""
        if path == _ROOT:
            return
        now = None if stored is None else _decoded(path, stored)
        if now == self._kept.get(path):
            return
        if (before := self._kept.pop(path, None)) is not None:
            for key in before.quotas:
                self.limits[key].pop(before.limited, None)
            if before.entity.ip is not None:
                self._of_address[before.limited].pop(path)
        if now is not None:
            self._kept[path] = now
            self._limit(now.limited, now.quotas)
            if now.entity.ip is not None:
                self._of_address.setdefault(now.limited, {})[path] = now.quotas
        elif before is not None and (others := self._of_address.get(before.limited)):
            self._limit(before.limited, list(others.values())[-1])
        for changed in self.changed:
            changed()

    def _limit(self, entity: QuotaEntity, quotas: Quotas) -> None:
        for key, value in quotas.items():
            self.limits[key][entity] = value

    def all(self) -> list[tuple[QuotaEntity, Quotas]]:
        """Return all entities with their quotas."""
        return [(each.entity, each.quotas) for each in self._kept.values()]

    async def alter(self, wanted: Mapping[QuotaEntity, Mapping[str, float | None]]) -> None:
        """Set quotas, and remove those that are None; all were checked with `check_quota`.

        Raises `InvalidQuota` for a name that is no host; quotas before it are stored then.
        """
        rows = list(wanted.items())
        for at in range(0, len(rows), _AT_ONCE):
            some = [(entity, quotas, await address_of(entity)) for entity, quotas in rows[at : at + _AT_ONCE]]

            def plan(
                some: list[tuple[QuotaEntity, Mapping[str, float | None], str | None]] = some,
            ) -> list[Op]:
                ops = (self._op(entity, quotas, address) for entity, quotas, address in some)
                return [op for op in ops if op is not None]

            await self._cache.change(plan)
            await asyncio.sleep(0)

    def _op(self, entity: QuotaEntity, quotas: Mapping[str, float | None], address: str | None) -> Op | None:
        path = _path(entity)
        kept = self._kept.get(path)
        before = {} if kept is None else kept.quotas
        after = {key: value for key, value in {**before, **quotas}.items() if value is not None}
        version = MUST_NOT_EXIST if kept is None else kept.version
        if not after:
            return None if kept is None else Delete(path, version)
        return None if after == before else Put(path, _encoded(entity, after, address), version)


def check_quota(entity: QuotaEntity, key: str, value: float) -> None:
    """Raise `InvalidQuota` for a quota that the entity cannot have."""
    if key not in (OF_CLIENTS if entity.ip is None else OF_ADDRESSES):
        raise InvalidQuota(f"Invalid configuration key {key}")
    if not math.isfinite(value):
        raise InvalidQuota(f"Quota {key} must be a finite number")
    if value <= 0:
        raise InvalidQuota(f"Quota {key} must be greater than 0")
    if (largest := _LARGEST[key]) is not None:
        most, what = largest
        if value > most:
            raise InvalidQuota(f"Proposed value for {key} is too large for {what}.")
        if value != int(value):
            raise InvalidQuota(f"{key} cannot be a fractional value.")


async def address_of(entity: QuotaEntity) -> str | None:
    """Return the address of an entity that is a host; raise `InvalidQuota` if it has none."""
    if not entity.ip:
        return None
    try:
        return plain_address(entity.ip)
    except ValueError:
        pass
    try:
        found = await asyncio.get_running_loop().getaddrinfo(entity.ip, None)
    except (OSError, UnicodeError):
        found = []
    if not found:
        raise InvalidQuota(f"{entity.ip} is not a valid IP or resolvable host.")
    return plain_address(str(found[0][4][0]))


def plain_address(text: str) -> str:
    """Return an address in its canonical form; raise `ValueError` if the text is no address."""
    address = ip_address(text)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


def _path(entity: QuotaEntity) -> str:
    named = json.dumps(entity.parts(), sort_keys=True).encode()
    return f"{_ROOT}/{hashlib.sha256(named).hexdigest()[:32]}"


def _encoded(entity: QuotaEntity, quotas: Mapping[str, float], address: str | None) -> bytes:
    content: dict[str, Any] = {"entity": entity.parts(), "quotas": dict(quotas)}
    if address is not None:
        content["address"] = address
    return json.dumps(content, sort_keys=True).encode()


def _decoded(path: str, stored: Stored) -> _Kept:
    try:
        content = json.loads(stored.value)
        entity = QuotaEntity.of(content["entity"])
        quotas = {str(key): float(value) for key, value in content["quotas"].items()}
        for key, value in quotas.items():
            check_quota(entity, key, value)
        address = content.get("address")
        return _Kept(entity, quotas, None if address is None else plain_address(address), stored.version)
    except (ValueError, KeyError, TypeError, AttributeError, InvalidQuota) as error:
        raise MetadataCorrupt(path, f"not a client quota: {error}") from error
