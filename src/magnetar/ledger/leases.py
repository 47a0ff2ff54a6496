"""Leases: readers past the broker say which messages they still need, so that retention and compaction leave them.

A lease names, for each managed ledger it is about, the first offset that is needed, and counts until it is released or
its time is over; whoever needs it longer renews it. One that was killed holds nothing for ever. Deleting a topic or its
records (DeleteRecords) is an order, and is not held up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lease:
    """What one reader holds. ``needs`` are first offsets by managed ledger; ``until_ms`` is in ms since 1970."""

    lease_id: str
    needs: Mapping[str, int]
    until_ms: int


class LeaseExpired(Exception):
    """A lease that was released or whose time is over: what it held may be gone, and a new one has to be taken."""

    def __init__(self, lease_id: str) -> None:
        super().__init__(f"lease {lease_id} does not count any more")


class Leases(ABC):
    """The leases on the logs of one engine. Raises ``StorageFailed`` where they cannot be kept."""

    @abstractmethod
    async def take(self, needs: Mapping[str, int], *, for_ms: int) -> Lease:
        """Hold what these offsets name, from when this returns on, for so long."""

    @abstractmethod
    async def renew(self, lease: Lease, needs: Mapping[str, int] | None = None, *, for_ms: int) -> Lease:
        """Hold it, or from now on ``needs`` in its place, for so long from now; raise `LeaseExpired`."""

    @abstractmethod
    async def release(self, lease: Lease) -> None:
        """Need nothing any more; one that does not count any more is no error."""

    @abstractmethod
    async def needed(self, name: str) -> int | None:
        """Return the first offset of the managed ledger ``name`` that is needed under any lease, or None.

        Where that cannot be found out it is -1: everything may be needed. Forgets what is over.
        """
