"""Leases on the logs of a late store: whichever engine gave one, all of them leave what it holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from magnetar.ledger.errors import StorageFailed
from magnetar.ledger.leases import Lease, LeaseExpired, Leases
from tests.engines.late.store import LateStore


class LateLeases(Leases):
    """Kept in the store, each under its id, until its time is over."""

    def __init__(self, store: LateStore, clock: Callable[[], int]) -> None:
        self._store = store
        self._clock = clock

    async def take(self, needs: Mapping[str, int], *, for_ms: int) -> Lease:
        await self._store.on_the_way()
        if self._store.is_full:
            raise StorageFailed("the late store keeps no lease")
        return self._kept(Lease(f"lease-{next(self._store.numbers)}", dict(needs), self._clock() + for_ms))

    async def renew(self, lease: Lease, needs: Mapping[str, int] | None = None, *, for_ms: int) -> Lease:
        await self._store.on_the_way()
        kept = self._store.leases.get(lease.lease_id)
        if kept is None or kept.until_ms <= self._clock():
            raise LeaseExpired(lease.lease_id)
        return self._kept(
            Lease(lease.lease_id, dict(kept.needs if needs is None else needs), self._clock() + for_ms)
        )

    async def release(self, lease: Lease) -> None:
        await self._store.on_the_way()
        self._store.leases.pop(lease.lease_id, None)

    async def needed(self, name: str) -> int | None:
        await self._store.on_the_way()
        leases, now_ms = self._store.leases, self._clock()
        for over in [each for each in leases.values() if each.until_ms <= now_ms]:
            del leases[over.lease_id]
        return min((each.needs[name] for each in leases.values() if name in each.needs), default=None)

    def _kept(self, lease: Lease) -> Lease:
        self._store.leases[lease.lease_id] = lease
        return lease
