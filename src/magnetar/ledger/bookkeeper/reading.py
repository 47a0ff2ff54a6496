"""Entries of ledgers far away, found by their offsets: BookKeeper knows entry ids only.

Each entry has the offset of its last message (PIP-70), so the entry of an offset is found by bisection, and what was
learnt on the way is remembered as *points*. If a ledger was written here the points come with the entries.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator

from magnetar.ledger.bookkeeper.read_ahead import AheadOfReaders
from magnetar.ledger.bookkeeper.tail import Tail
from magnetar.ledger.errors import LedgerCorrupt, LedgerNotFound
from magnetar.ledger.looking import base_offset, looked_at
from magnetar.ledger.values import StoredEntry
from magnetar.records.entry import last_offset
from magnetar.records.errors import EntryCorrupt

_EVERY = 16  # entries between two points of a ledger that is written here
_NEAR = 32  # entries that are read rather than halved
_MOST = 4096  # points
_MAX_ENTRIES = 500  # with one question
_CHUNK = 1 << 20
_DAMAGE = LedgerCorrupt, LedgerNotFound
UNKNOWN_BEFORE = 1 << 62
"""The time of a point before which entries were not read."""


class Points:
    """Known points of a ledger: the offsets at which some entries begin, and the latest time before them."""

    __slots__ = ("entry_ids", "offsets", "times")

    def __init__(self, first_offset: int) -> None:
        self.entry_ids = array("q", [0])
        self.offsets = array("q", [first_offset])
        self.times = array("q", [-1])

    def add(self, entry_id: int, offset: int, latest_before: int = UNKNOWN_BEFORE) -> None:
        """Remember that an entry begins at an offset."""
        at = bisect_right(self.entry_ids, entry_id)
        if self.entry_ids[at - 1] == entry_id:
            return
        self.entry_ids.insert(at, entry_id)
        self.offsets.insert(at, offset)
        self.times.insert(at, latest_before)
        if len(self.entry_ids) > _MOST:
            for column in (self.entry_ids, self.offsets, self.times):
                kept = column[::2]
                del column[:]
                column.extend(kept)

    def around(self, offset: int, entries: int) -> tuple[int, int]:
        """Return the last entry known to begin at or before an offset, and the first one known to begin after it."""
        at = bisect_right(self.offsets, offset)
        low = self.entry_ids[at - 1] if at else 0
        return low, self.entry_ids[at] if at < len(self.entry_ids) else entries

    def before_time(self, timestamp_ms: int) -> int:
        """Return an entry before which all entries are earlier than that."""
        known = [at for at, time in enumerate(self.times) if time < timestamp_ms]
        return self.entry_ids[known[-1]] if known else 0


class BookieReader:
    """Reads one ledger. ``entries`` and ``size`` grow as long as it is written."""

    is_tiered = False
    """Whether it is read from tiered storage."""

    def __init__(
        self,
        ledger_id: int,
        first_offset: int,
        ask: Callable[[int, int], Awaitable[list[bytes]]],
        tail: Tail,
        entries: int = 0,
        size: int = 0,
    ) -> None:
        self.ledger_id = ledger_id
        self.entries = entries
        self.size = size
        self.points = Points(first_offset)
        self._ask = ask
        self._tail = tail
        # Tiered storage has a read-ahead of its own, by blocks.
        self._ahead = None if self.is_tiered else AheadOfReaders(tail.ahead, self._read)

    def grew(self, entry: StoredEntry, latest_ms: int, next_offset: int) -> None:
        """Note an entry that is stored now; ``latest_ms`` is of all up to it."""
        self.entries = entry.entry_id + 1
        self.size += len(entry.data)
        self._tail.add(entry)
        if self.entries % _EVERY == 0:
            self.points.add(self.entries, next_offset, latest_ms)

    async def ready(self) -> None:
        """Load the index, if there is one; raise ``LedgerError``."""

    async def read(self, offset: int, *, max_bytes: int, up_to: int) -> list[StoredEntry]:
        """Return entries from the one that holds ``offset``, below ``up_to``, as many as fit; one if there is one."""
        found: list[StoredEntry] = []
        size = 0
        await self.ready()
        at = await self._entry_of(offset)
        while True:
            try:
                async for entry in self.since(at, max_bytes, once=True):
                    at = entry.entry_id + 1
                    if entry.last_offset < offset:
                        continue
                    size += len(entry.data)
                    if entry.last_offset >= up_to or (found and size > max_bytes):
                        break
                    found.append(entry)
                else:
                    if not found and at < self.entries:
                        continue
            except _DAMAGE:
                if not found:  # entries before the damage are returned first
                    behind = await self._whole_from(at + 1, self.entries)
                    if await looked_at(behind, base_offset) > offset:
                        raise
                    at = behind.entry_id  # what is damaged lies before the one that is asked for
                    continue
            break
        if found:
            last = found[-1]
            self.points.add(last.entry_id + 1, last.last_offset + 1)
            if self._ahead is not None and last.entry_id + 1 < self.entries:
                self._ahead.given(found[0].entry_id, last.entry_id + 1, self.entries, self._usual)
        return found

    async def since(
        self, entry_id: int, some_bytes: int = _CHUNK, *, once: bool = False
    ) -> AsyncIterator[StoredEntry]:
        """Yield all entries from one on, requesting about so many bytes at a time.

        ``once`` ends when most of the first request were returned: the rest is not worth a request.
        """
        left = some_bytes
        while entry_id < self.entries:
            chunk = await self.some(entry_id, left)
            for entry in chunk:
                left -= len(entry.data)
                yield entry
            entry_id = chunk[-1].entry_id + 1
            if once and left < some_bytes // 4:
                return
            left = left if left > 0 else some_bytes

    async def some(self, entry_id: int, max_bytes: int) -> list[StoredEntry]:
        """Return entries from one on, about so many bytes, and one at least."""
        found = _about(self._newest(entry_id), max_bytes)
        if not found and self._ahead is not None:
            found = _about(await self._ahead.find(entry_id), max_bytes)
        return found or await self._from_afar(entry_id, max_bytes)

    @property
    def _usual(self) -> int:
        """Return the average bytes of an entry."""
        return max(1, self.size // max(1, self.entries))

    def _newest(self, entry_id: int) -> Iterator[StoredEntry]:
        while entry_id < self.entries and (kept := self._tail.get(self.ledger_id, entry_id)) is not None:
            yield kept
            entry_id += 1

    async def _from_afar(self, entry_id: int, max_bytes: int) -> list[StoredEntry]:
        count = max(1, min(_MAX_ENTRIES, max_bytes // self._usual, self.entries - entry_id))
        while True:
            try:
                return await self._read(entry_id, entry_id + count - 1)
            except _DAMAGE:  # of one of them: what is before that is whole
                if count == 1:
                    raise
                count //= 2

    async def _read(self, first: int, last: int) -> list[StoredEntry]:
        """Return entries that are all there."""
        rows = await self._ask(first, last)
        return [self._stored(first + n, row) for n, row in enumerate(rows)]

    def _stored(self, entry_id: int, data: bytes) -> StoredEntry:
        try:
            return StoredEntry(self.ledger_id, entry_id, last_offset(data), memoryview(data))
        except EntryCorrupt as error:
            raise LedgerCorrupt(
                f"entry {self.ledger_id}:{entry_id} says no index: {error}; Pulsar writes it where"
                " brokerEntryMetadataInterceptors names AppendIndexMetadataInterceptor"
            ) from None

    async def since_time(self, timestamp_ms: int) -> AsyncIterator[StoredEntry]:
        """Yield all entries from one on before which all are known to be earlier."""
        await self.ready()
        async for entry in self.since(self.points.before_time(timestamp_ms)):
            yield entry

    async def at(self, entry_id: int) -> StoredEntry:
        """Return one entry; raise ``LedgerNotFound``."""
        if not 0 <= entry_id < self.entries:
            raise LedgerNotFound(f"there is no entry {self.ledger_id}:{entry_id}")
        (found,) = (await self.some(entry_id, 1))[:1]
        return found

    async def _entry_of(self, offset: int) -> int:
        """Return an entry at or a little before the one that holds an offset."""
        low, high = self.points.around(offset, self.entries)
        while high - low > _NEAR:
            middle = (low + high) // 2
            entry = await self._whole_from(middle, high)
            self.points.add(entry.entry_id + 1, entry.last_offset + 1)
            if entry.last_offset < offset:
                low = entry.entry_id + 1
            elif entry.entry_id > middle and await looked_at(entry, base_offset) <= offset:
                return entry.entry_id
            else:
                high = middle
        return low

    async def _whole_from(self, entry_id: int, end: int) -> StoredEntry:
        """Return the first entry from one on that can be read: damaged ones hide no others."""
        for each in range(entry_id, min(entry_id + _NEAR, end) - 1):
            try:
                return await self.at(each)
            except _DAMAGE:
                continue
        return await self.at(min(entry_id + _NEAR, end) - 1)


def _about(entries: Iterable[StoredEntry], max_bytes: int) -> list[StoredEntry]:
    """Return the first of the entries: about so many bytes, and one if there is one."""
    found: list[StoredEntry] = []
    for entry in entries:
        found.append(entry)
        max_bytes -= len(entry.data)
        if max_bytes <= 0:
            break
    return found
