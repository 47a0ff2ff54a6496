"""What a log of the late engine holds, as readers find it: copies where these replaced history, then originals."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator

from magnetar.ledger.errors import LedgerNotFound
from magnetar.ledger.port import LedgerSummary, NewEntry, Position, StoredEntry
from magnetar.records.copied import copied_from
from magnetar.records.entry import decode_entry, latest_timestamp
from tests.engines.late.store import LateStore, Listed

_NO_END = 1 << 62


class Entries:
    """They are looked up as they are at one moment; to wait for them is the caller's part."""

    def __init__(self, store: LateStore, listed: Callable[[], Listed]) -> None:
        self._store = store
        self._listed = listed

    def since(self, offset: int, up_to: int) -> Iterator[StoredEntry]:
        """Return the entries from the one that holds ``offset`` on, all of whose offsets are below ``up_to``."""
        for summary in self._listed().ledgers:
            if summary.sealed and summary.last_offset < offset:
                continue
            if summary.compacted:
                begin, end = max(offset, summary.first_offset), min(up_to, summary.last_offset + 1)
                yield from self.copies(begin, end)
            else:
                yield from self._of(summary.ledger_id, offset, up_to)

    def copies(self, offset: int, up_to: int = _NO_END) -> Iterator[StoredEntry]:
        """Return the copies of entries from ``offset`` on, below ``up_to``, under the positions of these."""
        compacted = self._listed().compacted
        if compacted is not None:
            for entry in self._of(compacted.ledger.ledger_id, offset, up_to):
                came = copied_from(entry.data)
                yield entry._replace(ledger_id=came.ledger_id, entry_id=came.entry_id, copy=entry.ledger_id)

    def _of(self, ledger_id: int, offset: int, up_to: int) -> Iterator[StoredEntry]:
        rows = self._store.rows(ledger_id)
        first = bisect_left(rows, offset, key=lambda row: row.last_offset)
        for entry_id in range(first, len(rows)):
            if rows[entry_id].last_offset >= up_to:
                return
            yield stored(ledger_id, entry_id, rows[entry_id])

    def some(self, offset: int, max_bytes: int, up_to: int) -> list[StoredEntry]:
        """Return as many of `since` as fit; one if there is one."""
        return fitting(self.since(offset, up_to), max_bytes)

    def at(self, position: Position, up_to: int) -> StoredEntry:
        """Return the entry at a position, below offset ``up_to``; raise ``LedgerNotFound``."""
        summary = self._summary(position)
        if summary.compacted:
            for copy in self.copies(summary.first_offset, summary.last_offset + 1):
                if (copy.ledger_id, copy.entry_id) == position:
                    return copy
        else:
            rows = self._store.rows(position.ledger_id)
            if 0 <= position.entry_id < len(rows) and rows[position.entry_id].last_offset < up_to:
                return stored(*position, rows[position.entry_id])
        raise LedgerNotFound(f"there is no entry {position.ledger_id}:{position.entry_id}")

    def behind(self, position: Position, up_to: int) -> int:
        """Return the offset behind an entry, be it there still or compacted away."""
        summary = self._summary(position)
        if not summary.compacted:
            return self.at(position, up_to).last_offset + 1
        for copy in self.copies(summary.first_offset, summary.last_offset + 1):
            if (copy.ledger_id, copy.entry_id) > position:
                return decode_entry(copy.data).base_offset
        return summary.last_offset + 1

    def _summary(self, position: Position) -> LedgerSummary:
        for summary in self._listed().ledgers:
            if summary.ledger_id == position.ledger_id:
                return summary
        raise LedgerNotFound(f"there is no ledger {position.ledger_id} in this log")


def stored(ledger_id: int, entry_id: int, row: NewEntry) -> StoredEntry:
    return StoredEntry(ledger_id, entry_id, row.last_offset, memoryview(row.data))


def fitting(entries: Iterator[StoredEntry], max_bytes: int) -> list[StoredEntry]:
    """Return the first entries, as many as fit; one if there is one."""
    found: list[StoredEntry] = []
    size = 0
    for entry in entries:
        size += len(entry.data)
        if found and size > max_bytes:
            break
        found.append(entry)
    return found


def first_of_time(entries: Iterator[StoredEntry], timestamp_ms: int) -> StoredEntry | None:
    """Return the first entry with a message of that time or later."""
    return next((entry for entry in entries if latest_timestamp(entry.data) >= timestamp_ms), None)
