"""One ledger as Spark sees it: a file mapped into memory, and where in it which offsets lie.

Sealed ledgers bring their index. Of an open one the index covers the beginning at most; the frames behind it are
walked here, on the driver. Spark reads files and never changes one: recovery is the broker's.
"""

from __future__ import annotations

import mmap
from bisect import bisect_left
from pathlib import Path

import numpy as np

from magnetar.ledger.errors import LedgerCorrupt, LedgerNotFound
from magnetar.ledger.files.layout import HEADER_BYTES, check_header, index_path, ledger_path
from magnetar.ledger.files.sparse import POINT_EVERY_BYTES, SparseIndex
from magnetar.ledger.port import LedgerSummary
from magnetar.pipeline.frames import FRAME_AT, LAST_OFFSET, WORDS, FrameFault, Walk, walk_frames
from magnetar.records import kernel
from magnetar.records.arrow import Bytes
from magnetar.records.batch import decode_records

_FRAME_BYTES = 16


def map_ledger(path: Path, ledger_id: int) -> Bytes:
    """Give a ledger's bytes, its header checked; raise ``LedgerNotFound`` or ``LedgerCorrupt``."""
    try:
        with path.open("rb") as file:
            data = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    except FileNotFoundError:
        raise LedgerNotFound(f"the file of ledger {ledger_id} is gone: {path}") from None
    except ValueError:
        raise LedgerCorrupt(f"{path}: it is empty") from None
    check_header(data[:HEADER_BYTES].tobytes(), ledger_id, path)
    return data


def damage(path: Path, ledger_id: int, entry_id: int, at: int, why: object) -> LedgerCorrupt:
    """Give the error that names the place."""
    return LedgerCorrupt(f"{path}: entry {entry_id} of ledger {ledger_id} at byte {at} is damaged: {why}")


class LedgerMap:
    """Where the offsets of one ledger lie. ``live`` says that a broker runs, which may be appending right now."""

    def __init__(self, root: Path, summary: LedgerSummary, *, live: bool) -> None:
        self.ledger_id = summary.ledger_id
        self.path = ledger_path(root, self.ledger_id)
        self._data = map_ledger(self.path, self.ledger_id)
        self.index = self._stored_index(root, max(summary.first_offset, 0))
        if summary.sealed:
            self._walk_sealed(summary)
        else:
            self._walk_open(live=live)

    @property
    def next_offset(self) -> int:
        """The offset behind the last whole entry."""
        return self.index.next_offset

    def cuts(self, low: int, high: int, slice_bytes: int) -> list[tuple[int, int, int]]:
        """Give (start, end, id of the first entry) of pieces of about ``slice_bytes`` that hold ``[low, high)``."""
        index = self.index
        if low >= index.next_offset or high <= low or not index.positions:
            return []
        first = max(bisect_left(index.offsets, low + 1) - 1, 0)
        last = bisect_left(index.offsets, high)
        stop = index.positions[last] if last < len(index.positions) else index.end
        starts = [first]
        for point in range(first + 1, last):
            if index.positions[point] - index.positions[starts[-1]] >= slice_bytes:
                starts.append(point)
        ends = [index.positions[point] for point in starts[1:]] + [stop]
        return [(index.positions[s], end, index.entry_ids[s]) for s, end in zip(starts, ends, strict=True)]

    def offset_at_time(self, timestamp_ms: int) -> int | None:
        """Give the offset of the first record of ``timestamp_ms`` or later, or None if there is none."""
        if self.index.max_timestamp < timestamp_ms:
            return None
        at, entry_id = self.index.before_time(timestamp_ms)
        while at < self.index.end:
            walk = self._walk(at, entry_id, verify=True)
            if walk.fault:
                raise damage(self.path, self.ledger_id, walk.entry_id, walk.at, WORDS[walk.fault])
            for row in walk.rows[walk.rows[:, kernel.MAX_TIME] >= timestamp_ms]:
                records = decode_records(self._data.data[row[kernel.START] - 61 : row[kernel.END]])
                found = next((record.offset for record in records if record.timestamp >= timestamp_ms), None)
                if found is not None:
                    return found
            at, entry_id = walk.at, walk.entry_id
        return None

    def _stored_index(self, root: Path, first_offset: int) -> SparseIndex:
        path = index_path(root, self.ledger_id)
        try:
            return SparseIndex.decode(path.read_bytes(), path)[0]
        except (FileNotFoundError, LedgerCorrupt):
            # Nothing is lost: the index only repeats what the frames say.
            return SparseIndex(self.ledger_id, first_offset)

    def _walk_sealed(self, summary: LedgerSummary) -> None:
        fault = self._extend(verify=True)
        if self.index.next_offset == summary.last_offset + 1:
            return
        why = WORDS[fault] if fault else f"offset {summary.last_offset} is missing behind it"
        raise damage(self.path, self.ledger_id, self.index.entries, self.index.end, why)

    def _walk_open(self, *, live: bool) -> None:
        fault = self._extend(verify=not live)
        if not fault or live:
            return
        later = _whole_frame_after(self._data, self.index)
        if later is not None:
            why = f"{WORDS[fault]}, and whole entries follow it at byte {later}"
            raise damage(self.path, self.ledger_id, self.index.entries, self.index.end, why)

    def _extend(self, *, verify: bool) -> FrameFault:
        """Take all whole frames behind the index's end into it; give what ended the walk."""
        while self.index.end < len(self._data):
            walk = self._walk(self.index.end, self.index.entries, verify=verify)
            if len(walk.rows):
                _add(self.index, walk)
            if walk.fault:
                return walk.fault
        return FrameFault.NONE

    def _walk(self, at: int, entry_id: int, *, verify: bool) -> Walk:
        end = len(self._data)
        return walk_frames(self._data, at, end, ledger_id=self.ledger_id, entry_id=entry_id, verify=verify)


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


def _whole_frame_after(data: Bytes, index: SparseIndex) -> int | None:
    """Give where a whole frame of a later entry stands behind the end of ``index``, if one does."""
    window = data[index.end :].tobytes()
    found = window.find(b"\x0e\x02\x00\x00", _FRAME_BYTES + 1)
    while found >= 0:
        at = index.end + found - _FRAME_BYTES
        entry_id = int.from_bytes(window[found - 8 : found], "big")
        size = int.from_bytes(window[found - 16 : found - 12], "big")
        if index.entries <= entry_id < 1 << 62 and at + _FRAME_BYTES + size <= len(data):
            stop = at + _FRAME_BYTES + size
            one = walk_frames(data, at, stop, ledger_id=index.ledger_id, entry_id=entry_id, verify=True)
            if len(one.rows):
                return at
        found = window.find(b"\x0e\x02\x00\x00", found + 1)
    return None
