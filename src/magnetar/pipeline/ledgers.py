"""One ledger as Spark's driver sees it: where in its file which offsets lie.

Sealed ledgers bring their index. Of an open one it may cover the beginning only; `magnetar.pipeline.ledger_walk`
walks the frames behind it then. Spark reads files and never changes one: recovery is the broker's.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.ledger.errors import LedgerCorrupt, LedgerNotFound
from magnetar.ledger.formats.layout import HEADER_BYTES, index_path
from magnetar.ledger.formats.sparse import SparseIndex
from magnetar.ledger.port import LedgerSummary
from magnetar.pipeline.few_records import NotPlain, last_in_cut, take_whole_frames
from magnetar.pipeline.mapped import Cut, MappedLedger
from magnetar.pipeline.object_store import at_hand
from magnetar.pipeline.port import LastRecord, SliceSize
from magnetar.records.batch import UNKNOWN_TIME

if TYPE_CHECKING:
    from magnetar.pipeline.ledger_walk import LedgerWalk


_MIN_HOLE = 0.25  # of a slice: to pass over less takes about as long as to begin a task


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
        self.offloaded = None
        """Where it lies, if that is in tiered storage alone."""
        if summary.offloaded:
            # Most have none: what it takes to read there is loaded for them alone.
            from magnetar.pipeline.offloaded import objects_at, offloaded_at

            self.offloaded = offloaded_at(summary)
        if self.offloaded is not None:
            self.index = objects_at(self.offloaded).index
            return
        self.index = self._stored_index(max(summary.first_offset, 0))
        if not summary.sealed:
            if self.index.end < len(self._file()):
                take_whole_frames(self._file(), self.index)
            if self.index.end < len(self._file()):
                self._walk().to_the_end(live=live)
        elif self.index.next_offset != summary.last_offset + 1:
            self._walk_sealed(summary)

    @property
    def next_offset(self) -> int:
        """The offset behind the last whole entry."""
        return self.index.next_offset

    def cuts(
        self, low: int, high: int, size: SliceSize, times_ms: tuple[int, int] | None = None
    ) -> list[Cut]:
        """Cut what this ledger holds of ``[low, high)`` into even parts; leave out what is of no time in ``times_ms``.

        What is left out before and behind all that is wanted is as much as the index tells of; in between it is only
        what is large, or slices would be many and small.
        """
        index = self.index
        if not index.positions:
            return []
        low, high = max(low, index.offsets[0]), min(high, index.next_offset, self.until)
        parts = [(low, high)] if times_ms is None else self._of_time(times_ms, size)
        found = []
        for start, end in parts:
            start, end = max(start, low), min(end, high)
            if start < end:
                edges = [start, *self._edges(start, end, size), end]
                found += [self._cut(*pair) for pair in itertools.pairwise(edges)]
        return found

    def last_record(self, low: int, high: int, *, committed: bool) -> LastRecord | None:
        """Return the last record of what this ledger holds of ``[low, high)``; raise `NotPlain` where it takes more."""
        if self.offloaded is not None:
            raise NotPlain
        found = None
        for cut in self.cuts(low, high, SliceSize()):
            found = last_in_cut(self._file(), cut, committed=committed) or found
        return found

    def _of_time(self, times_ms: tuple[int, int], size: SliceSize) -> list[tuple[int, int]]:
        """Return the ranges of offsets in which times of ``times_ms`` may be, none of them near to another."""
        index, (earliest_ms, latest_ms) = self.index, times_ms
        ends, beyond = [*index.positions[1:], index.end], [*index.offsets[1:], index.next_offset]
        latest = [*index.times[1:], index.max_timestamp]  # of all up to the end of each point's entries
        runs: list[tuple[int, int]] = []
        for point, earliest in enumerate(index.earliest):
            # Where the earliest time is not known the latest may be that of a batch of Pulsar's, whose messages have
            # times of their own.
            if earliest != UNKNOWN_TIME and (latest[point] < earliest_ms or earliest > latest_ms):
                continue
            if runs and index.positions[point] - ends[runs[-1][1]] < size.about_bytes * _MIN_HOLE:
                runs[-1] = runs[-1][0], point
            else:
                runs.append((point, point))
        return [(index.offsets[begin], beyond[last]) for begin, last in runs]

    def _edges(self, low: int, high: int, size: SliceSize) -> list[int]:
        """Return the offsets inside of ``[low, high)`` at which to cut."""
        index = self.index
        whole = self._cut(low, high)
        count = max(round((whole.end - whole.start) / size.about_bytes), 1)
        edges = set()
        for number in range(1, count):
            point = bisect_left(index.positions, whole.start + (whole.end - whole.start) * number // count)
            edges.add(index.offsets[min(point, len(index.offsets) - 1)])
        found = sorted(edge for edge in edges if low < edge < high)
        if size.max_offsets is not None:
            sides = [low, *found, high]
            found = sorted(set(found).union(*(
                range(a + size.max_offsets, b, size.max_offsets) for a, b in itertools.pairwise(sides)
            )))  # fmt: skip
        return found

    def _cut(self, low: int, high: int) -> Cut:
        index = self.index
        first = max(bisect_right(index.offsets, low) - 1, 0)
        last = bisect_left(index.offsets, high)
        end = index.positions[last] if last < len(index.positions) else index.end
        return Cut(low, high, index.positions[first], end, index.entry_ids[first])

    def offset_at_time(self, timestamp_ms: int) -> int | None:
        """Return the offset of the first record of ``timestamp_ms`` or later, or None if there is none."""
        if self.index.max_timestamp < timestamp_ms:
            return None
        return self._walk().offset_at_time(timestamp_ms)

    def _walk(self) -> LedgerWalk:
        from magnetar.pipeline.ledger_walk import LedgerWalk  # most need none: its kernel takes long to load

        return LedgerWalk(self._file(), self.index, skip_damage=self._skip_damage)

    def _file(self) -> MappedLedger:
        if self._mapped is None:
            if self.offloaded is None:
                self._mapped = MappedLedger(self._root, self.ledger_id)
            else:
                from magnetar.pipeline.offloaded import OffloadedMap

                self._mapped = OffloadedMap(self.offloaded)
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
            self._walk().up_to(summary.last_offset)
        except (LedgerNotFound, LedgerCorrupt):
            if not self._skip_damage:
                raise
        if self._skip_damage:
            self._leave_to_tasks(summary)

    def _leave_to_tasks(self, summary: LedgerSummary) -> None:
        """Have the index cover all that should be there: whoever reads it finds out what is not."""
        index = self.index
        if not index.positions or index.positions[0] > HEADER_BYTES:
            index.positions.insert(0, HEADER_BYTES)
            index.entry_ids.insert(0, 0)
            index.offsets.insert(0, summary.first_offset)
            index.times.insert(0, -1)
            index.earliest.insert(0, UNKNOWN_TIME)
        index.earliest[-1] = UNKNOWN_TIME
        index.next_offset, index.end = summary.last_offset + 1, max(summary.size, index.end)
        index.max_timestamp = max(summary.max_timestamp, index.max_timestamp)
