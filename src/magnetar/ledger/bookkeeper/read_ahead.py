"""Read-ahead for readers that read a ledger on bookies from one entry to the next.

A read goes through Java to a bookie and back, and the reader sends on what was read only then. With the next entries
requested meanwhile, neither waits for the other.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from itertools import islice

from magnetar.ledger.values import StoredEntry

AHEAD_BYTES = 1 << 20
"""How much is read with one request."""
_MOST_ENTRIES = 500
_STALE_S = 5.0
_PLACES = 8  # readers of one ledger, each at its own place
_MOST_USED = 1000  # places of all ledgers that anything is known of


class AheadBudget:
    """The bytes that may be read ahead, or be under way, for all readers of an engine."""

    def __init__(self, budget: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.size = 0
        self._budget = budget
        self._clock = clock
        self._used: OrderedDict[_Place, float] = OrderedDict()
        """Places by their last read, the oldest first."""

    def has_room(self, size: int) -> bool:
        """Return whether so much more may be read; places without readers make room."""
        while self.size + size > self._budget and self._used:
            place, used = next(iter(self._used.items()))
            if self._clock() - used < _STALE_S:
                return False
            place.leave()
        return self.size + size <= self._budget

    def is_read_at(self, place: _Place) -> None:
        """Note a read at a place."""
        self._used[place] = self._clock()
        self._used.move_to_end(place)
        if len(self._used) > _MOST_USED:
            next(iter(self._used)).leave()

    def count(self, change: int) -> None:
        self.size += change

    def forget(self, place: _Place) -> None:
        self._used.pop(place, None)


class _Place:
    """The place of one reader: the entries that were returned last, and what was read ahead of them."""

    def __init__(self, budget: AheadBudget, first: int, behind: int) -> None:
        self.first, self.behind = first, behind
        self.end = behind
        """The first entry after those that are here or requested."""
        self.coming: asyncio.Task[None] | None = None
        self.has_failed = False
        self._budget = budget
        self._lives = 0
        self._entries: deque[StoredEntry] = deque()

    def moved(self, first: int, behind: int) -> None:
        """Note that these were returned: earlier entries are not needed any more."""
        self.first, self.behind = first, behind
        if behind > self.end:  # all that was read ahead is before that, and so is what could not be
            self._drop()
            self.has_failed = False
        while self._entries and self._entries[0].entry_id < first:
            self._budget.count(-len(self._entries.popleft().data))
        self._budget.is_read_at(self)

    def bring(self, read: Callable[[int, int], Awaitable[list[StoredEntry]]], about: int, last: int) -> None:
        """Read entries from the end on, of ``about`` so many bytes. An error is left to the reader's own request."""
        first, self.end = self.end, last + 1
        self._budget.count(about)
        self.coming = asyncio.ensure_future(self._bring(read(first, last), about, first, self._lives))

    async def _bring(self, reading: Awaitable[list[StoredEntry]], about: int, first: int, life: int) -> None:
        found: list[StoredEntry] = []
        try:
            found = await reading
        except Exception:  # whatever it is: the reader's own request raises it
            self.has_failed = True
        self._budget.count(-about)
        if life != self._lives:  # it was left meanwhile
            return
        self.coming = None
        self.end = first + len(found)
        self._entries += found
        self._budget.count(sum(len(each.data) for each in found))

    def from_here(self, entry_id: int) -> list[StoredEntry]:
        """Return what was read ahead, from an entry on."""
        before = entry_id - self._entries[0].entry_id if self._entries else -1
        return list(islice(self._entries, before, None)) if before >= 0 else []

    def leave(self) -> None:
        """Drop the place: its reader is gone."""
        self._drop()
        self._budget.forget(self)

    def _drop(self) -> None:
        self._lives += 1
        self.coming = None
        self.end = self.behind
        self._budget.count(-sum(len(each.data) for each in self._entries))
        self._entries.clear()


class AheadOfReaders:
    """The read-ahead of one ledger."""

    def __init__(self, budget: AheadBudget, read: Callable[[int, int], Awaitable[list[StoredEntry]]]) -> None:
        self._budget = budget
        self._read = read
        self._places: deque[_Place] = deque()

    async def find(self, entry_id: int) -> list[StoredEntry]:
        """Return what was read ahead, or is being read, from an entry on; nothing if that was not."""
        for place in tuple(self._places):
            if place.first <= entry_id < place.end:
                if place.coming is not None and not place.from_here(entry_id):
                    await asyncio.shield(place.coming)
                if found := place.from_here(entry_id):
                    return found
        return []

    def given(self, first: int, behind: int, entries: int, entry_bytes: int) -> None:
        """Note entries that were returned from ``first`` on: a reader that had read up to there is expected to read on.

        The ledger has ``entries``, of about ``entry_bytes`` each.
        """
        place = next((each for each in self._places if each.behind == first), None)
        if place is None:
            if len(self._places) >= _PLACES:
                self._places.popleft().leave()
            self._places.append(_Place(self._budget, first, behind))
            return
        self._places.remove(place)  # the oldest one goes first
        self._places.append(place)
        place.moved(first, behind)
        count = max(1, min(_MOST_ENTRIES, AHEAD_BYTES // entry_bytes, entries - place.end))
        if (
            place.coming is not None
            or place.has_failed
            or place.end >= entries
            or place.end - behind >= count
        ):
            return
        if self._budget.has_room(count * entry_bytes):
            place.bring(self._read, count * entry_bytes, place.end + count - 1)
