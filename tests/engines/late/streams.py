"""What compaction and cursors keep in ledgers of a late store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from magnetar.ledger.compaction.runs import Chunks, EntrySource
from magnetar.ledger.cursors.store import CursorLedgers
from magnetar.ledger.errors import LedgerNotFound, StorageFailed, StorageFull
from magnetar.ledger.port import LedgerSummary, LedgerWriter, NewEntry, StoredEntry
from magnetar.records.batch import UNKNOWN_TIME
from tests.engines.late.reading import stored
from tests.engines.late.store import LateStore

_AT_ONCE = 7  # few, so that a run has many pieces


class LateWriter(LedgerWriter):
    """Writes a ledger that no log names yet."""

    def __init__(self, store: LateStore, ledger_id: int, first_offset: int, now_ms: int) -> None:
        self.ledger_id = ledger_id
        self._store = store
        self._summary = LedgerSummary(ledger_id, first_offset, first_offset - 1, created_ms=now_ms)

    async def append(self, entries: Sequence[NewEntry]) -> None:
        await self._store.on_the_way()
        if self._store.is_full:
            raise StorageFull("the late store is full")
        if self._store.weather.fails():
            raise StorageFailed("the late store failed")
        rows = self._store.rows(self.ledger_id)
        rows += [NewEntry(bytes(each.data), each.last_offset, each.max_timestamp) for each in entries]

    async def seal(self) -> LedgerSummary:
        rows, summary = await self._store.fence(self.ledger_id), self._summary
        summary.sealed, summary.min_timestamp = True, UNKNOWN_TIME
        summary.entries, summary.size = len(rows), sum(len(row.data) for row in rows)
        summary.last_offset = rows[-1].last_offset if rows else summary.first_offset - 1
        summary.max_timestamp = max((row.max_timestamp for row in rows), default=-1)
        return summary

    async def discard(self) -> None:
        await self._store.remove([self.ledger_id])


class LateSource(EntrySource):
    """Entries as a compaction reads them, some at a time."""

    def __init__(
        self,
        store: LateStore,
        dirty: Sequence[LedgerSummary],
        copies: LedgerSummary | None,
        from_offset: int,
        check_open: Callable[[], None],
    ) -> None:
        self._store = store
        self._dirty = dirty
        self._copies = copies
        self._from_offset = from_offset
        self._check_open = check_open

    async def dirty(self, up_to: int) -> Chunks:
        for ledger in self._dirty:
            async for entries in self._some(ledger.ledger_id):
                wanted = [each for each in entries if self._from_offset <= each.last_offset < up_to]
                if wanted:
                    yield wanted

    async def copies(self) -> Chunks:
        if self._copies is not None:
            async for entries in self._some(self._copies.ledger_id):
                yield entries

    async def _some(self, ledger_id: int) -> Chunks:
        at = 0
        while True:
            await self._store.on_the_way()
            self._check_open()
            rows: list[StoredEntry] = [
                stored(ledger_id, at + n, row)
                for n, row in enumerate(self._store.rows(ledger_id)[at : at + _AT_ONCE])
            ]
            if not rows:
                return
            yield rows
            at += len(rows)


class LateCursorLedgers(CursorLedgers):
    """States of cursors that are too large for the metadata."""

    def __init__(self, store: LateStore) -> None:
        self._store = store

    async def write(self, state: bytes) -> int:
        await self._store.on_the_way()
        if self._store.is_full:
            raise StorageFull("the late store is full")
        ledger_id = next(self._store.numbers)
        self._store.states[ledger_id] = bytes(state)
        await self._store.on_the_way()
        return ledger_id

    async def read(self, ledger_id: int) -> bytes:
        await self._store.on_the_way()
        if ledger_id not in self._store.states:
            raise LedgerNotFound(f"no cursor's state is in ledger {ledger_id}")
        return self._store.states[ledger_id]

    def forget(self, ledger_ids: Iterable[int]) -> None:
        gone = list(ledger_ids)
        asyncio.get_running_loop().call_later(self._store.weather.delay_s(), self._drop, gone)

    def _drop(self, ledger_ids: list[int]) -> None:
        for ledger_id in ledger_ids:
            self._store.states.pop(ledger_id, None)
