"""What engines share and what outlives them: ledgers that take entries in order, and the list of each log's ledgers.

A ledger has one writer. Whoever wants to know where it ends *fences* it: from then on it takes nothing, and the writer
is told so with what it writes next. A list is changed by compare-and-set; its versions never come again, also not for
another log of the same name. Nothing here is on time, and with bad `Weather` something may be done and not told of.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import count

from magnetar.ledger.errors import LedgerError, LedgerFenced, LedgerNotFound, StorageFailed, StorageFull
from magnetar.ledger.leases import Lease
from magnetar.ledger.port import Compacted, LedgerSummary, NewEntry, Position, Snapshot
from tests.engines.late.weather import Weather

Answered = Callable[[LedgerError | None], None]
NO_VERSION = -1
"""Of a list that is not there."""


@dataclass(slots=True)
class Listed:
    """What is kept of a log beside its entries."""

    version: int = NO_VERSION
    owner: int = -1
    """The opening that changed it last; a later one takes it over."""
    epoch: int = 0
    """The ownership under which it was opened last."""
    ledgers: list[LedgerSummary] = field(default_factory=list)
    first_offset: int = 0
    compacted: Compacted | None = None
    copies_from: int = 0
    draft: int = -1
    """A ledger of copies that does not count yet."""
    terminated: Position | None = None
    has_transactions: bool = False
    change: int = -1
    """What changed it last: a number that no other change has."""

    def copy(self) -> Listed:
        """Return another one, whose ledgers may be changed."""
        return replace(self, ledgers=[replace(each) for each in self.ledgers])

    def ids(self) -> list[int]:
        """Return the ledgers that there are for it."""
        found = [each.ledger_id for each in self.ledgers if not each.compacted]
        found += [self.draft] if self.draft >= 0 else []
        return found if self.compacted is None else [*found, self.compacted.ledger.ledger_id]


@dataclass(slots=True)
class StoredLedger:
    """Entries in their order."""

    rows: list[NewEntry] = field(default_factory=list)
    is_fenced: bool = False


class LateStore:
    """All that is kept. Every engine of one store lives on one event loop at a time."""

    def __init__(self, weather: Weather | None = None) -> None:
        self.weather = weather or Weather()
        self.is_full = False
        self.ledgers: dict[int, StoredLedger] = {}
        self.logs: dict[str, Listed] = {}
        self.snapshots: dict[str, Snapshot] = {}
        self.leases: dict[str, Lease] = {}
        self.states: dict[int, bytes] = {}
        """Of cursors that are too large for the metadata."""
        self.numbers = count(1)
        """Whatever must never come again takes the next one: ids, versions, openings."""

    async def on_the_way(self) -> None:
        """Wait for as long as something takes to get there, or back."""
        await asyncio.sleep(self.weather.delay_s())

    # -- lists

    async def listed(self, name: str) -> Listed | None:
        """Return a log's list."""
        await self.on_the_way()
        found = self.logs.get(name)
        return None if found is None else found.copy()

    async def put(self, name: str, listed: Listed, expected: int) -> int:
        """Keep a list in the place of the one of that version, and return its version.

        Raises ``LedgerFenced`` where that is another one, ``StorageFull`` with nothing changed, and ``StorageFailed``
        if nobody knows.
        """
        await self.on_the_way()
        if self.is_full:
            raise StorageFull("the late store is full")
        actual = self.logs[name].version if name in self.logs else NO_VERSION
        if actual != expected:
            raise LedgerFenced(f"the list of {name} has version {actual}, not {expected}")
        fails, version = self.weather.fails(), next(self.numbers)
        if not fails or self.weather.happens(0.5):
            self.logs[name] = replace(listed.copy(), version=version)
        await self.on_the_way()
        if fails:
            raise StorageFailed("the answer of the late store was lost")
        return version

    async def drop(self, name: str) -> None:
        """Forget a log; its ledgers go too."""
        await self.on_the_way()
        listed = self.logs.pop(name, None)
        self.snapshots.pop(name, None)
        for ledger_id in listed.ids() if listed is not None else ():
            self.ledgers.pop(ledger_id, None)

    async def keep_snapshot(self, name: str, owner: int, snapshot: Snapshot) -> None:
        """Keep what a log's owner knew; from one who has lost the log it is not taken."""
        await self.on_the_way()
        if name not in self.logs or self.logs[name].owner != owner:
            raise LedgerFenced(f"{name} has another owner")
        before = self.snapshots.get(name)
        if not self.weather.fails() and (before is None or before.offset <= snapshot.offset):
            self.snapshots[name] = snapshot

    # -- ledgers

    async def create(self) -> int:
        """Make a ledger; its id is higher than any before."""
        await self.on_the_way()
        if self.is_full:
            raise StorageFull("the late store is full")
        if self.weather.fails():
            raise StorageFailed("the late store made no ledger")
        ledger_id = next(self.numbers)
        self.ledgers[ledger_id] = StoredLedger()
        await self.on_the_way()
        return ledger_id

    async def fence(self, ledger_id: int) -> list[NewEntry]:
        """Have a ledger take nothing more, and return what it has taken."""
        await self.on_the_way()
        ledger = self._ledger(ledger_id)
        ledger.is_fenced = True
        await self.on_the_way()
        return list(ledger.rows)

    async def end(self, ledger_id: int, entries: int) -> None:
        """Have a ledger end behind so many entries, as its writer says; raise ``LedgerFenced`` if it is fenced."""
        await self.on_the_way()
        ledger = self._ledger(ledger_id)
        if ledger.is_fenced:
            raise LedgerFenced(f"ledger {ledger_id} was fenced")
        del ledger.rows[entries:]
        ledger.is_fenced = True
        await self.on_the_way()

    async def remove(self, ledger_ids: Iterable[int]) -> None:
        """Let go of ledgers."""
        await self.on_the_way()
        for ledger_id in ledger_ids:
            self.ledgers.pop(ledger_id, None)

    def rows(self, ledger_id: int) -> list[NewEntry]:
        """Return the entries of a ledger; raise ``LedgerNotFound``."""
        return self._ledger(ledger_id).rows

    def _ledger(self, ledger_id: int) -> StoredLedger:
        if ledger_id not in self.ledgers:
            raise LedgerNotFound(f"ledger {ledger_id} is not there")
        return self.ledgers[ledger_id]

    def fate(self) -> LedgerError | None:
        """Return what becomes of an entry that is placed now, but for what it meets on its way."""
        if self.is_full:
            return StorageFull("the late store is full")
        return StorageFailed("the late store failed") if self.weather.fails() else None

    def arrived(
        self, ledger_id: int, entry_id: int, row: NewEntry, fate: LedgerError | None
    ) -> LedgerError | None:
        """Take an entry; return what its writer is told. What fails may be kept all the same."""
        ledger = self.ledgers.get(ledger_id)
        if ledger is None or ledger.is_fenced:
            return LedgerFenced(f"ledger {ledger_id} was fenced")
        if entry_id != len(ledger.rows):
            return StorageFailed(f"entry {ledger_id}:{entry_id} came without those before it")
        if fate is None or (isinstance(fate, StorageFailed) and self.weather.happens(0.3)):
            ledger.rows.append(row)
        return fate


class Stream:
    """One writer's way to one ledger: entries come in their order, and so do the answers."""

    def __init__(self, store: LateStore, ledger_id: int) -> None:
        self.ledger_id = ledger_id
        self._store = store
        self._sent = 0
        self._going: deque[tuple[int, NewEntry, LedgerError | None, Answered]] = deque()
        self._coming: deque[tuple[Answered, LedgerError | None]] = deque()

    def send(self, row: NewEntry, fate: LedgerError | None, answered: Answered) -> int:
        """Send an entry; return its id. ``answered`` is called when it is known what became of it."""
        entry_id = self._sent
        self._sent += 1
        self._going.append((entry_id, row, fate, answered))
        self._later(self._arrive)
        return entry_id

    def _arrive(self) -> None:
        entry_id, row, fate, answered = self._going.popleft()
        self._coming.append((answered, self._store.arrived(self.ledger_id, entry_id, row, fate)))
        self._later(self._answer)

    def _answer(self) -> None:
        answered, error = self._coming.popleft()
        answered(error)

    def _later(self, what: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(self._store.weather.delay_s(), what)
