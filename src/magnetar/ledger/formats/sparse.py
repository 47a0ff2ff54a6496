"""The sparse index of one ledger: every so many bytes, which entry and offset begin where.

On disk (``.index`` beside the ledger) it is also the ledger's checkpoint: the file up to ``end`` was whole when it was
written, and durable, so recovery reads on from there. All numbers big-endian:

    offset  size  field
         0     8  magic "MGINDEX2"
         8     8  ledger id
        16     8  end: bytes of the ledger's file that are covered
        24     8  entries covered
        32     8  next offset behind them
        40     8  latest timestamp in them, ms
        48     8  number of points, p
        56     8  bytes of snapshot, a
        64  40*p  points: position, entry id, first offset, latest timestamp before it, earliest one from it to the next
             a    snapshot: what the log's owner keeps with a checkpoint
             4    CRC32C of all before

An earliest timestamp may be earlier than any that is there, never later; `UNKNOWN_TIME` says nothing at all. Files
with the magic "MGINDEX1" have no such column.

With the magic "MGINDEX3" the ledger was not flushed. All of it counts as long as the machine is not started anew; then
only what had been flushed before does, and the snapshot, which speaks of more, does not. Before the points it has

        64     8  bytes of the ledger's file that are durable
        72     8  entries in them
        80     8  next offset behind them
        88     8  latest timestamp in them
        96     2  n, at least 1
        98     n  the boot in which all of it counts
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import NamedTuple

from magnetar.ledger.boot import boot_id
from magnetar.ledger.errors import LedgerCorrupt
from magnetar.ledger.formats.layout import HEADER_BYTES
from magnetar.records.batch import UNKNOWN_TIME
from magnetar.records.crc import crc32c
from magnetar.records.tuples import maker

POINT_EVERY_BYTES = 32 << 10
_MAGIC = b"MGINDEX2"
_UNFLUSHED = b"MGINDEX3"
_COLUMNS = {_MAGIC: 5, _UNFLUSHED: 5, b"MGINDEX1": 4}
_HEAD = struct.Struct(">8sQQQQqQQ")
_FLUSHED = struct.Struct(">QQQqH")


class Mark(NamedTuple):
    """A place between two entries, and what the index knew there."""

    end: int
    entries: int
    next_offset: int
    max_timestamp: int


_mark = maker(Mark)


class SparseIndex:
    """Grows with every append; answers where to begin to read. Points are kept as five flat arrays."""

    __slots__ = (
        "earliest",
        "end",
        "entries",
        "entry_ids",
        "flushed",
        "ledger_id",
        "max_timestamp",
        "next_offset",
        "offsets",
        "positions",
        "times",
    )

    def __init__(self, ledger_id: int, first_offset: int) -> None:
        self.ledger_id = ledger_id
        self.end = HEADER_BYTES
        self.entries = 0
        self.next_offset = first_offset
        self.max_timestamp = -1
        self.flushed = self.mark()
        """Up to where the ledger's file is known to be durable."""
        self.positions = array("q")
        self.entry_ids = array("q")
        self.offsets = array("q")
        self.times = array("q")
        self.earliest = array("q")

    @property
    def min_timestamp(self) -> int:
        """A time that no message is earlier than; `UNKNOWN_TIME` if that cannot be told."""
        return min(self.earliest, default=UNKNOWN_TIME)

    def add(
        self, frame_bytes: int, messages: int, timestamp_ms: int, earliest_ms: int = UNKNOWN_TIME
    ) -> None:
        """Note one more entry at the end, its latest timestamp, and one that none of its messages is earlier than."""
        if not self.positions or self.end - self.positions[-1] >= POINT_EVERY_BYTES:
            self.positions.append(self.end)
            self.entry_ids.append(self.entries)
            self.offsets.append(self.next_offset)
            self.times.append(self.max_timestamp)
            self.earliest.append(earliest_ms)
        elif earliest_ms < self.earliest[-1]:
            self.earliest[-1] = earliest_ms
        self.end += frame_bytes
        self.entries += 1
        self.next_offset += messages
        if timestamp_ms > self.max_timestamp:
            self.max_timestamp = timestamp_ms

    def mark(self) -> Mark:
        """Return the present end."""
        return _mark((self.end, self.entries, self.next_offset, self.max_timestamp))

    def back_to(self, mark: Mark) -> None:
        """Forget the entries behind ``mark``."""
        count = bisect_left(self.positions, mark.end)
        for column in (self.positions, self.entry_ids, self.offsets, self.times, self.earliest):
            del column[count:]
        self.end, self.entries, self.next_offset, self.max_timestamp = mark

    def before_offset(self, offset: int) -> tuple[int, int]:
        """Return (position, entry id) of the nearest point whose entry begins at or before ``offset``."""
        return self._point(bisect_right(self.offsets, offset) - 1)

    def before_entry(self, entry_id: int) -> tuple[int, int]:
        """Return (position, entry id) of the nearest point at or before ``entry_id``."""
        return self._point(bisect_right(self.entry_ids, entry_id) - 1)

    def before_time(self, timestamp_ms: int) -> tuple[int, int]:
        """Return (position, entry id) of the last point before which all is earlier than ``timestamp_ms``."""
        # ``times`` never falls, so the first point that has seen the time lies behind the entry we want.
        low, high = 0, len(self.times)
        while low < high:
            middle = (low + high) // 2
            if self.times[middle] >= timestamp_ms:
                high = middle
            else:
                low = middle + 1
        return self._point(low - 1)

    def _point(self, which: int) -> tuple[int, int]:
        if which < 0 or not self.positions:
            return HEADER_BYTES, 0
        return self.positions[which], self.entry_ids[which]

    def encode(self, snapshot: bytes = b"", *, boot: str = "") -> bytes:
        """Return the bytes of the index file of a flushed ledger, or of one that was not in this ``boot``."""
        columns = (self.positions, self.entry_ids, self.offsets, self.times, self.earliest)
        points = array("q", [0]) * (len(columns) * len(self.positions))
        for place, column in enumerate(columns):
            points[place :: len(columns)] = column
        if sys.byteorder == "little":
            points.byteswap()
        head = _HEAD.pack(
            _UNFLUSHED if boot else _MAGIC, self.ledger_id, *self.mark(), len(self.positions), len(snapshot),
        )  # fmt: skip
        if boot:
            head += _FLUSHED.pack(*self.flushed, len(boot.encode())) + boot.encode()
        body = head + points.tobytes() + snapshot
        return body + struct.pack(">I", crc32c(body))

    @classmethod
    def decode(cls, data: bytes, path: Path, boot: str | None = None) -> tuple[SparseIndex, bytes | None]:
        """Return the index and its snapshot as far as they count in ``boot``: by default, in this one of this machine.

        There is none where the snapshot does not count. Raises ``LedgerCorrupt`` for damaged bytes.
        """
        if len(data) < _HEAD.size + 4 or struct.unpack(">I", data[-4:])[0] != crc32c(memoryview(data)[:-4]):
            raise LedgerCorrupt(f"{path}: the index is damaged")
        magic, ledger_id, end, entries, next_offset, latest, count, size = _HEAD.unpack_from(data)
        width = _COLUMNS.get(magic, 0)
        flushed, of_boot, points_at = None, "", _HEAD.size
        if magic == _UNFLUSHED:
            flushed, of_boot, points_at = _flushed_in(data, path)
        points_end = points_at + 8 * width * count
        if not width or len(data) != points_end + size + 4:
            raise LedgerCorrupt(f"{path}: this is no index, or one of another version")
        index = cls(ledger_id, 0)
        index.end, index.entries, index.next_offset, index.max_timestamp = end, entries, next_offset, latest
        points = array("q", data[points_at:points_end])
        if sys.byteorder == "little":
            points.byteswap()
        index.positions, index.entry_ids, index.offsets, index.times = (
            points[place::width] for place in range(4)
        )
        index.earliest = points[4::width] if width > 4 else array("q", [UNKNOWN_TIME]) * count
        index.flushed = flushed or index.mark()
        if flushed is not None and of_boot != (boot_id() if boot is None else boot):
            index.back_to(flushed)
            return index, None
        return index, data[points_end:-4]


def _flushed_in(data: bytes, path: Path) -> tuple[Mark, str, int]:
    """Return what is durable, the boot in which the rest counts, too, and where the points begin."""
    try:
        *mark, size = _FLUSHED.unpack_from(data, _HEAD.size)
    except struct.error:
        raise LedgerCorrupt(f"{path}: the index is too short") from None
    at = _HEAD.size + _FLUSHED.size
    return Mark(*mark), data[at : at + size].decode(errors="replace"), at + size
