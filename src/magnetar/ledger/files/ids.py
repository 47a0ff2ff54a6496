"""Ids of ledgers: no two ledgers of a metadata store ever get the same one, whichever engine creates them.

Ids are taken from the store in blocks, by compare-and-set, so engines on one store share none. Those of one engine
grow; those of two engines have no order. So an engine that adds a ledger to a log requests an id above those of the
log: within one log the order of ids is that of its ledgers, and positions are compared by it, as Pulsar does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from magnetar.ledger.errors import metadata_failed
from magnetar.metadata.blocking import BlockingStore
from magnetar.metadata.errors import BadVersion, MetadataError
from magnetar.metadata.ops import MUST_NOT_EXIST, Put, Stored
from magnetar.metadata.port import MetadataStore

NEXT_ID = "/magnetar/files/next-id"
_NEXT_ID_BEFORE = "/ledgers/next-id"
"""The earlier path, whose root is BookKeeper's. Ids that were assigned there are not assigned again."""
BLOCK = 1000


class LedgerIds:
    """Assigns ids from one store."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._next = self._limit = 0
        self._taking = asyncio.Lock()

    async def new(self, *, above: int = -1) -> int:
        """Return an id that no ledger ever had, higher than ``above``; raise ``StorageFull`` or ``StorageFailed``."""
        async with self._taking:
            # Another engine's ids since lie above the rest of this one's block, which is given up then.
            if self._next == self._limit or self._next <= above:
                self._next, self._limit = await self._take()
            self._next += 1
            return self._next - 1

    async def _take(self) -> tuple[int, int]:
        try:
            while True:
                stored, before = await self._store.get_many([NEXT_ID, _NEXT_ID_BEFORE])
                put, first = _taking(stored, before, BLOCK)
                try:
                    await self._store.commit([put])
                except BadVersion:
                    continue  # another engine was faster
                return first, first + BLOCK
        except MetadataError as error:
            raise metadata_failed(error) from error


def take_ids(store: BlockingStore, count: int) -> range:
    """Return so many ids that no ledger ever had, for a tool that has no event loop."""
    put, first = _taking(store.get(NEXT_ID), store.get(_NEXT_ID_BEFORE), count)
    store.commit([put])
    return range(first, first + count)


def never_give_out(store: BlockingStore, ledger_ids: Iterable[int]) -> None:
    """Reserve ids that came from elsewhere: new ones begin after them."""
    stored = store.get(NEXT_ID)
    behind = max(ledger_ids, default=-1) + 1
    first = _first(stored, store.get(_NEXT_ID_BEFORE))
    if behind > first:
        store.commit([Put(NEXT_ID, b"%d" % behind, MUST_NOT_EXIST if stored is None else stored.version)])


def _taking(stored: Stored | None, before: Stored | None, count: int) -> tuple[Put, int]:
    """Return the operation that takes so many ids, and the first of them."""
    first = _first(stored, before)
    version = MUST_NOT_EXIST if stored is None else stored.version
    return Put(NEXT_ID, b"%d" % (first + count), version), first


def _first(stored: Stored | None, before: Stored | None) -> int:
    return max(int(each.value) if each is not None else 0 for each in (stored, before))
