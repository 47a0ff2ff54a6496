"""Cursors: named reading states of a managed ledger, as in Pulsar.

Everything up to the mark-delete position is acknowledged, and so are individually deleted entries after it; of an entry
that is a batch, a part of its messages may be. A durable cursor is stored by the log's engine
(`magnetar.ledger.cursors.store`); any other one is forgotten.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Protocol

from magnetar.ledger.errors import LedgerNotFound
from magnetar.ledger.formats.cursor_info import CursorInfo
from magnetar.ledger.values import LedgerSummary, Position, StoredEntry

BEFORE_FIRST = -1
"""The entry id of a mark-delete position before which a ledger has no entry."""
_MAX_PARTLY_KEPT = (
    10_000  # Pulsar's managedLedgerMaxBatchDeletedIndexToPersist; what is beyond comes whole again
)


class Start(Enum):
    """Where a new cursor begins: before all retained entries, or after them."""

    earliest = "earliest"
    latest = "latest"


class CursorLog(Protocol):
    """The methods of a log that a cursor uses (`magnetar.ledger.port.ManagedLedger`)."""

    name: str
    log_start_offset: int

    def ledgers(self) -> list[LedgerSummary]: ...

    async def read(self, offset: int, *, max_bytes: int) -> list[StoredEntry]: ...

    async def find_by_time(self, timestamp_ms: int) -> StoredEntry | None: ...

    async def offset_behind(self, position: Position) -> int: ...


class EntryRanges:
    """Entry ids of one ledger, as sorted ranges ``[start, end)`` that never touch."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        """Add ``[start, end)``, joined with the ranges it touches."""
        low = bisect_right(self._starts, start)
        if low and self._ends[low - 1] >= start:
            low -= 1
            start = self._starts[low]
        high = bisect_right(self._starts, end)
        if high > low:
            end = max(end, self._ends[high - 1])
        self._starts[low:high] = [start]
        self._ends[low:high] = [end]

    def cut(self, before: int) -> None:
        """Remove all ids below ``before``."""
        while self._starts and self._ends[0] <= before:
            del self._starts[0], self._ends[0]
        if self._starts and self._starts[0] < before:
            self._starts[0] = before

    def end_of(self, entry_id: int) -> int | None:
        """Return the end of the range that contains an id, None if none does."""
        place = bisect_right(self._starts, entry_id) - 1
        return self._ends[place] if place >= 0 and entry_id < self._ends[place] else None

    def pairs(self) -> list[tuple[int, int]]:
        return list(zip(self._starts, self._ends, strict=True))

    def __len__(self) -> int:
        return sum(self._ends) - sum(self._starts)


class Cursor:
    """One reading state. Created by a ``CursorStore``, which defines when changes are durable."""

    def __init__(
        self,
        log: CursorLog,
        name: str,
        info: CursorInfo,
        save: Callable[[Callable[[], CursorInfo]], None] | None,
    ) -> None:
        self.name = name
        self.is_durable = save is not None
        self._log = log
        self._save = save
        self.properties = dict(info.properties)
        """Properties that users set; call `keep` after a change."""
        ledgers = log.ledgers()
        self._mark = _as_kept(ledgers, info.mark_delete)
        self._deleted: dict[int, EntryRanges] = {}
        self._next_offset: int | None = None
        entries = {each.ledger_id: each.entries for each in ledgers}
        for lower, upper in info.ranges:
            start, end = lower.entry_id + 1, min(upper.entry_id + 1, entries.get(upper.ledger_id, 0))
            if start < end:
                self._ranges(upper.ledger_id).add(start, end)
        self.partly: dict[tuple[int, int], int] = {
            position: remaining
            for position, remaining in info.partly
            if position > self._mark and remaining and not self._is_deleted(position)
        }
        """For partly acknowledged entries, by ledger and entry: the set of batch indexes that remain. Call `keep` after
        a change."""

    @property
    def mark_delete_position(self) -> Position:
        """The position up to which everything is acknowledged."""
        return self._mark

    def deleted_ranges(self) -> list[tuple[Position, Position]]:
        """Return the ranges ``(lower, upper]`` after the mark-delete position that are acknowledged."""
        return [
            (Position(summary.ledger_id, start - 1), Position(summary.ledger_id, end - 1))
            for summary in self._log.ledgers()
            if summary.ledger_id in self._deleted
            for start, end in self._deleted[summary.ledger_id].pairs()
        ]

    def backlog(self) -> int:
        """Return how many entries are not acknowledged, with those that are not durable yet."""
        ledgers = self._log.ledgers()
        first = self._place(ledgers, self._mark.ledger_id)
        behind = ledgers[max(first, 0) :]
        entries = sum(each.entries for each in behind) - (self._mark.entry_id + 1 if first >= 0 else 0)
        return entries - sum(len(self._deleted.get(each.ledger_id, ())) for each in behind)

    # -- acknowledging

    def mark_delete(self, position: Position) -> None:
        """Acknowledge everything up to and with ``position``; one that lies before the mark changes nothing."""
        ledgers = self._known(position)
        if self._comes_before(ledgers, self._mark, position):
            self._mark = position
            self._settle(ledgers)

    def delete(self, *positions: Position) -> None:
        """Acknowledge single entries."""
        self.delete_ranges((position, position) for position in positions)

    def delete_ranges(self, ranges: Iterable[tuple[Position, Position]]) -> None:
        """Acknowledge ranges of entries, each from its first to its last one."""
        ledgers = self._log.ledgers()
        for first, last in ranges:
            self._known(last)
            low, high = self._place(ledgers, first.ledger_id), self._place(ledgers, last.ledger_id)
            for place in range(max(low, 0), high + 1):
                ledger = ledgers[place]
                start = first.entry_id if place == low else 0
                end = last.entry_id + 1 if place == high else ledger.entries
                if end > start:
                    self._ranges(ledger.ledger_id).add(start, end)
        self._settle(ledgers)

    def _ranges(self, ledger_id: int) -> EntryRanges:
        return self._deleted.setdefault(ledger_id, EntryRanges())

    def _settle(self, ledgers: list[LedgerSummary]) -> None:
        """Advance the mark over adjacent ranges; drop the ranges it has passed; save the result."""
        place = self._place(ledgers, self._mark.ledger_id)
        if place < 0 and ledgers:  # its ledger was deleted
            place, self._mark = 0, Position(ledgers[0].ledger_id, BEFORE_FIRST)
        for passed in set(self._deleted) - {each.ledger_id for each in ledgers[max(place, 0) :]}:
            del self._deleted[passed]
        while 0 <= place < len(ledgers):
            ledger = ledgers[place]
            entry_id = self._mark.entry_id if ledger.ledger_id == self._mark.ledger_id else BEFORE_FIRST
            ranges = self._deleted.get(ledger.ledger_id)
            end = ranges.end_of(entry_id + 1) if ranges is not None else None
            if end is not None:
                entry_id = end - 1
                self._mark = Position(ledger.ledger_id, entry_id)
            if ranges is not None:
                ranges.cut(entry_id + 1)
                if not len(ranges):
                    del self._deleted[ledger.ledger_id]
            if entry_id + 1 < ledger.entries:
                break
            place += 1
        first = ledgers[0].ledger_id if ledgers else 0
        for done in [each for each in self.partly if each <= self._mark or each[0] < first]:
            del self.partly[done]
        self.keep()

    def keep(self) -> None:
        """Save changes of `partly` and `properties` with the rest."""
        if self._save is not None:
            self._save(self._info)  # building it takes long with many ranges

    def _info(self) -> CursorInfo:
        partly = tuple(
            (Position(*place), self.partly[place]) for place in sorted(self.partly)[:_MAX_PARTLY_KEPT]
        )
        return CursorInfo(
            self._mark, tuple(self.deleted_ranges()), partly=partly, properties=dict(self.properties)
        )

    # -- reading

    async def read(self, *, max_entries: int = 100, max_bytes: int = 1 << 20) -> list[StoredEntry]:
        """Return the next entries that are not acknowledged, and advance past them."""
        offset = max(await self._offset(), self._log.log_start_offset)
        found: list[StoredEntry] = []
        while not found:
            entries = await self._log.read(offset, max_bytes=max_bytes)
            if not entries:
                break
            for entry in entries:
                if len(found) == max_entries:
                    break
                offset = entry.last_offset + 1
                if not self.is_done_with(Position(entry.ledger_id, entry.entry_id)):
                    found.append(entry)
        self._next_offset = offset
        return found

    def is_done_with(self, position: Position) -> bool:
        """Return whether an entry was acknowledged, alone or by the mark."""
        if self._is_deleted(position):
            return True
        return not self._comes_before(self._log.ledgers(), self._mark, position)

    def _is_deleted(self, position: Position) -> bool:
        ranges = self._deleted.get(position.ledger_id)
        return ranges is not None and ranges.end_of(position.entry_id) is not None

    def rewind(self) -> None:
        """Read again from the first entry that is not acknowledged."""
        self._next_offset = None

    async def _offset(self) -> int:
        """Return the offset to read from: after the mark, if nothing was read since."""
        if self._next_offset is None:
            self._next_offset = await self.start_offset()
        return self._next_offset

    async def start_offset(self) -> int:
        """Return the offset right after the mark-delete position."""
        ledgers = self._log.ledgers()
        place = self._place(ledgers, self._mark.ledger_id)
        if place < 0:
            return self._log.log_start_offset
        if self._mark.entry_id == BEFORE_FIRST:
            return ledgers[place].first_offset
        return await self._log.offset_behind(self._mark)

    # -- seeking

    def seek(self, position: Position) -> None:
        """Move back or forth to the entry at ``position``: it and all after it are not acknowledged any more."""
        ledgers = self._known(position, end=True)
        if self._place(ledgers, position.ledger_id) < 0:
            position = Position(ledgers[0].ledger_id, 0)
        self._mark = Position(position.ledger_id, position.entry_id - 1)
        self._deleted.clear()
        self.partly.clear()
        self._next_offset = None
        self.keep()

    async def seek_offset(self, offset: int) -> None:
        """Move to the entry that contains ``offset``; raise ``OffsetOutOfRange``."""
        entries = await self._log.read(offset, max_bytes=1)
        self._seek_entry(entries[0] if entries else None)

    async def seek_time(self, timestamp_ms: int) -> None:
        """Move to the first entry with a message of ``timestamp_ms`` or later, or to the end."""
        self._seek_entry(await self._log.find_by_time(timestamp_ms))

    def _seek_entry(self, entry: StoredEntry | None) -> None:
        if entry is not None:
            self.seek(Position(entry.ledger_id, entry.entry_id))
        elif ledgers := self._log.ledgers():
            self.seek(Position(ledgers[-1].ledger_id, ledgers[-1].entries))

    # -- positions

    @staticmethod
    def _place(ledgers: list[LedgerSummary], ledger_id: int) -> int:
        """Return the index of a ledger in the log; -1 for one that was deleted."""
        return next((place for place, each in enumerate(ledgers) if each.ledger_id == ledger_id), -1)

    def _known(self, position: Position, *, end: bool = False) -> list[LedgerSummary]:
        """Raise ``LedgerNotFound`` unless the position is, or was, one of this log."""
        ledgers = self._log.ledgers()
        place = self._place(ledgers, position.ledger_id)
        if place < 0:
            if ledgers and position.ledger_id < ledgers[0].ledger_id:
                return ledgers
            raise LedgerNotFound(f"{self._log.name} has no ledger {position.ledger_id}")
        if not BEFORE_FIRST <= position.entry_id < ledgers[place].entries + end:
            raise LedgerNotFound(f"ledger {position.ledger_id} has no entry {position.entry_id}")
        return ledgers

    def _comes_before(self, ledgers: list[LedgerSummary], one: Position, other: Position) -> bool:
        return (self._place(ledgers, one.ledger_id), one.entry_id) < (
            self._place(ledgers, other.ledger_id), other.entry_id,
        )  # fmt: skip


def _as_kept(ledgers: list[LedgerSummary], mark: Position) -> Position:
    """Return a mark-delete position, not past the last entry: acknowledged entries may be lost with the power."""
    before = None
    for each in ledgers:
        if each.ledger_id > mark.ledger_id:
            break
        before = each
    if before is None or (before.ledger_id == mark.ledger_id and mark.entry_id < before.entries):
        return mark
    return Position(before.ledger_id, before.entries - 1)
