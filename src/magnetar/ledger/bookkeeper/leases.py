"""Leases on the logs of a cluster: nodes of the metadata store, so that each broker respects those of all."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from uuid import uuid4

from magnetar.ledger.errors import metadata_failed
from magnetar.ledger.leases import Lease, LeaseExpired, Leases
from magnetar.metadata import (
    ANY,
    MUST_NOT_EXIST,
    BadVersion,
    Delete,
    MetadataError,
    MetadataStore,
    NotFound,
    Put,
)

ROOT = "/magnetar/leases"


class KeptLeases(Leases):
    """Each is ``{"needs": {name: offset}, "until_ms": ms}`` under its id."""

    def __init__(self, store: MetadataStore, clock: Callable[[], int]) -> None:
        self._store = store
        self._clock = clock

    async def take(self, needs: Mapping[str, int], *, for_ms: int) -> Lease:
        lease = Lease(uuid4().hex, dict(needs), self._clock() + for_ms)
        await self._put(lease, MUST_NOT_EXIST)
        return lease

    async def renew(self, lease: Lease, needs: Mapping[str, int] | None = None, *, for_ms: int) -> Lease:
        try:
            stored = await self._store.get(f"{ROOT}/{lease.lease_id}")
        except MetadataError as error:
            raise metadata_failed(error) from error
        kept = None if stored is None else _decoded(lease.lease_id, stored.value)
        if stored is None or kept is None or kept.until_ms <= self._clock():
            raise LeaseExpired(lease.lease_id)
        renewed = Lease(lease.lease_id, dict(kept.needs if needs is None else needs), self._clock() + for_ms)
        await self._put(renewed, stored.version)
        return renewed

    async def release(self, lease: Lease) -> None:
        try:
            with suppress(NotFound):
                await self._store.commit([Delete(f"{ROOT}/{lease.lease_id}", ANY)])
        except MetadataError as error:
            raise metadata_failed(error) from error

    async def needed(self, name: str) -> int | None:
        try:
            ids = await self._store.children(ROOT)
            stored = await self._store.get_many([f"{ROOT}/{each}" for each in ids])
        except MetadataError:
            return -1
        first: int | None = None
        for lease_id, node in zip(ids, stored, strict=True):
            lease = None if node is None else _decoded(lease_id, node.value)
            if node is None:
                continue
            if lease is None:
                return -1
            if lease.until_ms <= self._clock():
                with suppress(MetadataError):
                    await self._store.commit([Delete(f"{ROOT}/{lease_id}", node.version)])
            elif name in lease.needs:
                first = lease.needs[name] if first is None else min(first, lease.needs[name])
        return first

    async def _put(self, lease: Lease, expected: int) -> None:
        value = json.dumps({"needs": lease.needs, "until_ms": lease.until_ms}).encode()
        try:
            await self._store.commit([Put(f"{ROOT}/{lease.lease_id}", value, expected)])
        except BadVersion:
            raise LeaseExpired(lease.lease_id) from None
        except MetadataError as error:
            raise metadata_failed(error) from error


def _decoded(lease_id: str, value: bytes) -> Lease | None:
    """Return a lease, or None where it cannot be read."""
    try:
        said = json.loads(value)
        return Lease(
            lease_id, {name: int(offset) for name, offset in said["needs"].items()}, int(said["until_ms"])
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
