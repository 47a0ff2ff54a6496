"""What needs a look at frames, for the driver: the end of an open ledger, a lost index, a record by its time.

It needs the kernel, so `magnetar.pipeline.ledgers` loads it only where an index does not say enough.
"""

from __future__ import annotations

import numpy as np

from magnetar.ledger.formats.sparse import POINT_EVERY_BYTES, SparseIndex
from magnetar.pipeline.formats import in_kafka_format
from magnetar.pipeline.frames import WORDS, Walk
from magnetar.pipeline.mapped import STEP_BYTES, MappedLedger
from magnetar.records import batch_table
from magnetar.records.arrow import BatchUnreadable, Table, arrow_batches
from magnetar.records.batch import UNKNOWN_TIME
from magnetar.records.batch_table import FRAME_AT, LAST_OFFSET, FrameFault

# A walk sees each batch's head: what the latest time is it knows (of Pulsar's it says that it may be any), the
# earliest one not.
_ANY_TIME = UNKNOWN_TIME + 1


class LedgerWalk:
    """Walks one ledger, and takes what it finds behind the index into the index. ``skip_damage``: it is no error."""

    def __init__(self, file: MappedLedger, index: SparseIndex, *, skip_damage: bool) -> None:
        self._file = file
        self._index = index
        self._skip_damage = skip_damage

    def offset_at_time(self, timestamp_ms: int) -> int | None:
        """Return the offset of the first record of ``timestamp_ms`` or later, or None if there is none."""
        at, entry_id = self._index.before_time(timestamp_ms)
        while at < self._index.end:
            walk = self._file.walk(at, entry_id, self._index.end, verify=True, most_bytes=STEP_BYTES)
            young = walk.rows[walk.rows[:, batch_table.MAX_TIME] >= timestamp_ms]
            for number in range(len(young)):
                found = self._first_at(young[number : number + 1], timestamp_ms)
                if found is not None:
                    return found
            self._file.done_with(at, walk.at)
            at, entry_id = walk.at, walk.entry_id
            if walk.fault:
                later = self._file.next_whole_frame(at, entry_id) if self._skip_damage else None
                if later is None:
                    raise self._file.fault(walk)
                at, entry_id = later
        return None

    def _first_at(self, row: Table, timestamp_ms: int) -> int | None:
        """Return the offset of the first record of ``timestamp_ms`` or later in one entry."""
        try:
            times = timestamp_ms, (1 << 63) - 1
            for data, rows in in_kafka_format(self._file.data, row):
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
                raise self._file.damage(
                    int(row[0, batch_table.ENTRY_ID]), int(row[0, FRAME_AT]), error
                ) from None
        return None

    def up_to(self, last_offset: int) -> None:
        """Have the index cover a sealed ledger; raise ``LedgerCorrupt`` where it does not end with ``last_offset``."""
        fault = self._extend(verify=True)
        if self._index.next_offset != last_offset + 1 and not self._skip_damage:
            why = WORDS[fault] if fault else f"offset {last_offset} is missing behind it"
            raise self._file.damage(self._index.entries, self._index.end, why)

    def to_the_end(self, *, live: bool) -> None:
        """Have the index cover an open ledger; raise ``LedgerCorrupt`` where whole frames follow damaged ones.

        ``live`` says that a broker may be appending right now.
        """
        fault = self._extend(verify=not live)
        if not fault or live:
            return
        later = self._file.next_whole_frame(self._index.end, self._index.entries - 1)
        if later is not None:
            why = f"{WORDS[fault]}, and whole entries follow it at byte {later[0]}"
            raise self._file.damage(self._index.entries, self._index.end, why)

    def _extend(self, *, verify: bool) -> FrameFault:
        """Take all whole frames behind the index's end into it; give what ended the walk."""
        file = self._file
        while self._index.end < len(file):
            start = self._index.end
            walk = file.walk(start, self._index.entries, verify=verify, most_bytes=STEP_BYTES)
            if len(walk.rows):
                _add(self._index, walk)
            file.done_with(start, walk.at)
            if walk.fault:
                later = file.next_whole_frame(walk.at, walk.entry_id) if self._skip_damage else None
                if later is None:
                    return walk.fault
                self._index.end, self._index.entries = later
        return FrameFault.NONE


def _add(index: SparseIndex, walk: Walk) -> None:
    """Note many frames at once; the points lie as if they had been added one by one, give or take a frame."""
    rows = walk.rows
    places, times = rows[:, FRAME_AT], np.maximum.accumulate(rows[:, batch_table.MAX_TIME])
    if index.positions and places[0] - index.positions[-1] < POINT_EVERY_BYTES:
        index.earliest[-1] = min(index.earliest[-1], _ANY_TIME)
    at = 0
    while at < len(rows):
        if not index.positions or places[at] - index.positions[-1] >= POINT_EVERY_BYTES:
            index.positions.append(int(places[at]))
            index.entry_ids.append(index.entries + at)
            index.offsets.append(int(rows[at, batch_table.BASE_OFFSET]))
            index.times.append(max(index.max_timestamp, int(times[at - 1])) if at else index.max_timestamp)
            index.earliest.append(_ANY_TIME)
        at = max(at + 1, int(np.searchsorted(places, index.positions[-1] + POINT_EVERY_BYTES)))
    index.end = walk.at
    index.entries += len(rows)
    index.next_offset = int(rows[-1, LAST_OFFSET]) + 1
    index.max_timestamp = max(index.max_timestamp, int(times[-1]))
