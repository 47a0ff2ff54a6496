"""One ledger as Spark's driver sees it: where in its file which offsets lie.

Sealed ledgers bring their index. Of an open one the index covers the beginning at most; the frames behind it are
walked here. Spark reads files and never changes one: recovery is the broker's.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import NamedTuple

import numpy as np

from magnetar.ledger.errors import LedgerCorrupt, LedgerNotFound
from magnetar.ledger.files.layout import HEADER_BYTES, index_path
from magnetar.ledger.files.sparse import POINT_EVERY_BYTES, SparseIndex
from magnetar.ledger.port import LedgerSummary
from magnetar.pipeline.formats import in_kafka_format
from magnetar.pipeline.frames import FRAME_AT, LAST_OFFSET, WORDS, FrameFault, Walk
from magnetar.pipeline.mapped import MappedLedger
from magnetar.pipeline.object_store import at_hand
from magnetar.pipeline.port import SliceSize
from magnetar.records import kernel
from magnetar.records.arrow import BatchUnreadable, Table, arrow_batches


class Cut(NamedTuple):
    """A part of a ledger: offsets ``[low, high)`` lie in bytes ``[start, end)``, which begin with ``entry_id``."""

    low: int
    high: int
    start: int
    end: int
    entry_id: int


class LedgerMap:
    """Where the offsets of one ledger lie.

    ``live`` says that a broker runs, which may be appending right now; ``skip_damage`` that damage is no error.
    """

    def __init__(self, root: Path, summary: LedgerSummary, *, live: bool, skip_damage: bool = False) -> None:
        self.ledger_id = summary.ledger_id
        self._root = root
        self._skip_damage = skip_damage
        self._mapped: MappedLedger | None = None
        self.until = 1 << 62
        """The offset before which it counts: of a compacted ledger the end of what it replaced."""
        self.index = self._stored_index(max(summary.first_offset, 0))
        if not summary.sealed:
            self._walk_open(live=live)
        elif self.index.next_offset != summary.last_offset + 1:
            self._walk_sealed(summary)

    @property
    def next_offset(self) -> int:
        """The offset behind the last whole entry."""
        return self.index.next_offset

    def cuts(self, low: int, high: int, size: SliceSize, earliest_ms: int | None = None) -> list[Cut]:
        """Cut what this ledger holds of ``[low, high)`` into even parts; leave out what is before ``earliest_ms``."""
        index = self.index
        if not index.positions:
            return []
        if earliest_ms is not None:
            if index.max_timestamp < earliest_ms:
                return []
            point = bisect_left(index.entry_ids, index.before_time(earliest_ms)[1])
            low = max(low, index.offsets[point])
        low, high = max(low, index.offsets[0]), min(high, index.next_offset, self.until)
        if low >= high:
            return []
        edges = [low, *self._edges(low, high, size), high]
        return [self._cut(start, end) for start, end in itertools.pairwise(edges)]

    def _edges(self, low: int, high: int, size: SliceSize) -> list[int]:
        """Give the offsets inside of ``[low, high)`` at which to cut."""
        index = self.index
        whole = self._cut(low, high)
        count = max(round((whole.end - whole.start) / size.about_bytes), 1)
        edges = set()
        for number in range(1, count):
            point = bisect_left(index.positions, whole.start + (whole.end - whole.start) * number // count)
            edges.add(index.offsets[min(point, len(index.offsets) - 1)])
        found = sorted(edge for edge in edges if low < edge < high)
        if size.most_offsets is not None:
            sides = [low, *found, high]
            found = sorted(set(found).union(*(
                range(a + size.most_offsets, b, size.most_offsets) for a, b in itertools.pairwise(sides)
            )))  # fmt: skip
        return found

    def _cut(self, low: int, high: int) -> Cut:
        index = self.index
        first = max(bisect_right(index.offsets, low) - 1, 0)
        last = bisect_left(index.offsets, high)
        end = index.positions[last] if last < len(index.positions) else index.end
        return Cut(low, high, index.positions[first], end, index.entry_ids[first])

    def offset_at_time(self, timestamp_ms: int) -> int | None:
        """Give the offset of the first record of ``timestamp_ms`` or later, or None if there is none."""
        if self.index.max_timestamp < timestamp_ms:
            return None
        at, entry_id = self.index.before_time(timestamp_ms)
        while at < self.index.end:
            walk = self._file().walk(at, entry_id, self.index.end, verify=True)
            young = walk.rows[walk.rows[:, kernel.MAX_TIME] >= timestamp_ms]
            for number in range(len(young)):
                found = self._first_at(young[number : number + 1], timestamp_ms)
                if found is not None:
                    return found
            at, entry_id = walk.at, walk.entry_id
            if walk.fault:
                later = self._file().next_whole_frame(at, entry_id) if self._skip_damage else None
                if later is None:
                    raise self._file().fault(walk)
                at, entry_id = later
        return None

    def _first_at(self, row: Table, timestamp_ms: int) -> int | None:
        """Give the offset of the first record of ``timestamp_ms`` or later in one entry."""
        try:
            times = timestamp_ms, (1 << 63) - 1
            for data, rows in in_kafka_format(self._file().data, row):
                for batch in arrow_batches(
                    data,
                    rows,
                    topic="",
                    partition=0,
                    low=0,
                    high=1 << 62,
                    columns=("offset",),
                    times_ms=times,
                ):
                    return int(batch.column(0)[0].as_py())
        except BatchUnreadable as error:
            if not self._skip_damage:
                raise self._file().damage(
                    int(row[0, kernel.ENTRY_ID]), int(row[0, FRAME_AT]), error
                ) from None
        return None

    def _file(self) -> MappedLedger:
        if self._mapped is None:
            self._mapped = MappedLedger(self._root, self.ledger_id)
        return self._mapped

    def _stored_index(self, first_offset: int) -> SparseIndex:
        path = at_hand(index_path(self._root, self.ledger_id))
        try:
            return SparseIndex.decode(path.read_bytes(), path)[0]
        except (FileNotFoundError, LedgerCorrupt):
            # Nothing is lost: the index only repeats what the frames say.
            return SparseIndex(self.ledger_id, first_offset)

    def _walk_sealed(self, summary: LedgerSummary) -> None:
        try:
            fault = self._extend(verify=True)
            if self.index.next_offset == summary.last_offset + 1 and not self._skip_damage:
                return
            why = WORDS[fault] if fault else f"offset {summary.last_offset} is missing behind it"
            if not self._skip_damage:
                raise self._file().damage(self.index.entries, self.index.end, why)
        except (LedgerNotFound, LedgerCorrupt):
            if not self._skip_damage:
                raise
        self._leave_to_tasks(summary)

    def _leave_to_tasks(self, summary: LedgerSummary) -> None:
        """Have the index cover all that should be there: whoever reads it finds out what is not."""
        index = self.index
        if not index.positions or index.positions[0] > HEADER_BYTES:
            index.positions.insert(0, HEADER_BYTES)
            index.entry_ids.insert(0, 0)
            index.offsets.insert(0, summary.first_offset)
            index.times.insert(0, -1)
        index.next_offset, index.end = summary.last_offset + 1, max(summary.size, index.end)
        index.max_timestamp = max(summary.max_timestamp, index.max_timestamp)

    def _walk_open(self, *, live: bool) -> None:
        fault = self._extend(verify=not live)
        if not fault or live:
            return
        later = self._file().next_whole_frame(self.index.end, self.index.entries - 1)
        if later is not None:
            why = f"{WORDS[fault]}, and whole entries follow it at byte {later[0]}"
            raise self._file().damage(self.index.entries, self.index.end, why)

    def _extend(self, *, verify: bool) -> FrameFault:
        """Take all whole frames behind the index's end into it; give what ended the walk."""
        file = self._file()
        while self.index.end < len(file):
            walk = file.walk(self.index.end, self.index.entries, verify=verify)
            if len(walk.rows):
                _add(self.index, walk)
            if walk.fault:
                later = file.next_whole_frame(walk.at, walk.entry_id) if self._skip_damage else None
                if later is None:
                    return walk.fault
                self.index.end, self.index.entries = later
        return FrameFault.NONE


def _add(index: SparseIndex, walk: Walk) -> None:
    """Note many frames at once; the points lie as if they had been added one by one, give or take a frame."""
    rows = walk.rows
    places, times = rows[:, FRAME_AT], np.maximum.accumulate(rows[:, kernel.MAX_TIME])
    at = 0
    while at < len(rows):
        if not index.positions or places[at] - index.positions[-1] >= POINT_EVERY_BYTES:
            index.positions.append(int(places[at]))
            index.entry_ids.append(index.entries + at)
            index.offsets.append(int(rows[at, kernel.BASE_OFFSET]))
            index.times.append(max(index.max_timestamp, int(times[at - 1])) if at else index.max_timestamp)
        at = max(at + 1, int(np.searchsorted(places, index.positions[-1] + POINT_EVERY_BYTES)))
    index.end = walk.at
    index.entries += len(rows)
    index.next_offset = int(rows[-1, LAST_OFFSET]) + 1
    index.max_timestamp = max(index.max_timestamp, int(times[-1]))
