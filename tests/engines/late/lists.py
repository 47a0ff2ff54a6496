"""The list of one log's ledgers, as one engine changes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from magnetar.ledger.errors import LedgerError, LedgerFenced, StorageFailed
from magnetar.ledger.port import LedgerSummary
from magnetar.records.batch import UNKNOWN_TIME
from tests.engines.late.store import LateStore, Listed

_TRIES = 5


class ListOfLedgers:
    """``now`` is what was kept last; of it only what is told of the open ledger is changed in place."""

    def __init__(self, store: LateStore, name: str, now: Listed, lost: Callable[[LedgerError], None]) -> None:
        self.now = now
        self.changing = asyncio.Lock()
        self._store = store
        self._name = name
        self._lost = lost
        self._ended: LedgerError | None = None

    def end(self, reason: LedgerError) -> None:
        """Change it no more."""
        self._ended = reason

    async def change(
        self,
        make: Callable[[Listed], bool],
        counts: Callable[[], None] = lambda: None,
        refused: Callable[[], None] = lambda: None,
    ) -> bool:
        """Keep what ``make`` makes of a copy unless it returns False; ``counts`` is called as soon as it counts.

        It goes on when whoever asked is cancelled. Raises ``LedgerError``; ``refused`` was called then if nothing has
        changed, but not where another owner may have gone on from what this one has changed.
        """
        return await asyncio.shield(asyncio.ensure_future(self._change(make, counts, refused)))

    async def _change(
        self, make: Callable[[Listed], bool], counts: Callable[[], None], refused: Callable[[], None]
    ) -> bool:
        async with self.changing:
            if self._ended is not None:
                raise self._ended
            made = self.now.copy()
            if not make(made):
                return False
            made.change = next(self._store.numbers)
            try:
                made.version = await self._store.put(self._name, made, self.now.version)
            except StorageFailed as error:
                made.version = await self._found_out(made.change, error, refused)
            except LedgerError as error:
                refused()
                if isinstance(error, LedgerFenced):
                    self._lost(error)
                raise
            # What was appended meanwhile stands in the one that counted until now.
            if made.ledgers and self.now.ledgers and not made.ledgers[-1].sealed:
                last = self.now.ledgers[-1]
                if last.ledger_id == made.ledgers[-1].ledger_id:
                    made.ledgers[-1] = last
            self.now = made
            counts()
            return True

    async def _found_out(self, change: int, error: StorageFailed, refused: Callable[[], None]) -> int:
        """Return the version of a change of which the store could not tell whether it was kept, if it was."""
        stored = await self._store.listed(self._name)
        if stored is not None and stored.change == change:
            return stored.version
        if stored is None or stored.version != self.now.version:
            fenced = LedgerFenced(f"{self._name} has another owner")
            self._lost(fenced)
            raise fenced from error
        refused()
        raise error


async def taken_over(store: LateStore, name: str, epoch: int) -> Listed:
    """Take a log from whoever has it, its last ledger sealed; return its list.

    Raises ``LedgerFenced`` where it was opened under a later ownership than that of ``epoch``.
    """
    for tries_left in reversed(range(_TRIES)):
        stored = await store.listed(name) or Listed()
        if 0 < epoch < stored.epoch:
            raise LedgerFenced(f"{name} was opened under epoch {stored.epoch}, which is later than {epoch}")
        mine = stored.copy()
        mine.owner, mine.change = next(store.numbers), next(store.numbers)
        mine.epoch = epoch or stored.epoch
        draft, mine.draft = mine.draft, -1
        if mine.ledgers and not mine.ledgers[-1].sealed:
            await _seal(store, mine.ledgers[-1])
        try:
            mine.version = await store.put(name, mine, stored.version)
        except (LedgerFenced, StorageFailed):  # another one opens it too, or nobody knows: look once more
            if not tries_left:
                raise
            continue
        if draft >= 0:
            await store.remove([draft])  # what a compaction left behind
        return mine
    raise AssertionError


async def _seal(store: LateStore, last: LedgerSummary) -> None:
    """Find out what lies in a ledger that its writer has left open."""
    rows = await store.fence(last.ledger_id)
    last.sealed, last.min_timestamp = True, UNKNOWN_TIME
    last.entries, last.size = len(rows), sum(len(row.data) for row in rows)
    last.last_offset = rows[-1].last_offset if rows else last.first_offset - 1
    last.max_timestamp = max((row.max_timestamp for row in rows), default=-1)
