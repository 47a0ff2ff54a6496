"""The inspection of one ledger's file: every frame is checked, and after damage the next whole ones are found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import le

from magnetar.ledger.errors import LedgerCorrupt
from magnetar.ledger.formats.layout import (
    FRAME,
    FRAME_BYTES,
    HEADER_BYTES,
    LedgerFrame,
    is_header,
    read_frame,
)
from magnetar.ledger.formats.sparse import SparseIndex
from magnetar.records.entry import decode_entry, latest_timestamp
from magnetar.records.errors import RecordsError

_ENTRY_MAGIC = b"\x0e\x02\x00\x00"
_NO_LIMIT = (1 << 63) - 1


@dataclass(slots=True)
class Run:
    """Consecutive whole entries. ``index`` ends where they end, with the id of the next entry.

    It knows no earliest times, for which every record would have to be opened; ``limits`` are times that those of its
    points cannot be later than.
    """

    start: int
    first_entry: int
    first_offset: int
    index: SparseIndex
    limits: list[int] = field(default_factory=list)

    def add(self, frame_bytes: int, messages: int, latest_ms: int) -> None:
        """Add one more entry."""
        self.index.add(frame_bytes, messages, latest_ms)
        if len(self.limits) < len(self.index.positions):
            self.limits.append(_NO_LIMIT)
        if 0 <= latest_ms < self.limits[-1]:  # without a time there may be no records either
            self.limits[-1] = latest_ms

    def bears_out(self, index: SparseIndex) -> bool:
        """Return whether the earliest times of an index with the same points can be right."""
        whole = len(index.positions) - (
            index.end < self.index.end
        )  # something may lie behind its last point since
        return all(map(le, index.earliest[: max(whole, 0)], self.limits))


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes ``[at, until)`` that are no whole entries although some belong there; the offsets they held are lost."""

    at: int
    until: int
    entry: int
    next_entry: int
    first_lost: int
    next_offset: int


@dataclass(slots=True)
class Inspection:
    """The content of a file. ``tail`` is where the last whole entry ends."""

    size: int
    header_is_whole: bool
    runs: list[Run] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    gaps: list[tuple[int, int, int]] = field(default_factory=list)
    """(position, entry id, offset that was due) of entries whose offset does not follow the one before."""

    @property
    def tail(self) -> int:
        return self.runs[-1].index.end

    @property
    def entries(self) -> int:
        """The number of entries that there are, were, or must have been."""
        return self.runs[-1].index.entries

    @property
    def next_offset(self) -> int:
        return self.runs[-1].index.next_offset


def inspect(data: memoryview, ledger_id: int, first_offset: int) -> Inspection:
    """Walk the whole file ``data``; damage is noted, stepped over, and never raised.

    Raises ``LedgerCorrupt`` only for a ledger whose entries have no index: see `magnetar.ledger.formats.packed`.
    """
    found = Inspection(len(data), is_header(bytes(data[:HEADER_BYTES]), ledger_id))
    run = _begin(found, ledger_id, HEADER_BYTES, 0, first_offset)
    while True:
        at = run.index.end
        frame = read_frame(data, at, ledger_id, run.index.entries)
        if frame is None:
            frame = _whole_frame_after(data, at, ledger_id, run.index.entries)
            if frame is None:
                return found
            last, messages, _ = _facts(frame)
            base = last - messages + 1
            found.damages.append(
                Damage(at, frame.at, run.index.entries, frame.entry_id, run.index.next_offset, base)
            )
            run = _begin(found, ledger_id, frame.at, frame.entry_id, base)
        last, messages, latest = _facts(frame)
        if last - messages + 1 != run.index.next_offset:
            found.gaps.append((frame.at, frame.entry_id, run.index.next_offset))
        run.add(FRAME_BYTES + len(frame.entry), last + 1 - run.index.next_offset, latest)


def frames(data: memoryview, ledger_id: int, start: int, entry_id: int, until: int) -> Iterator[LedgerFrame]:
    """Yield the whole frames of a run."""
    while start < until:
        frame = read_frame(data, start, ledger_id, entry_id)
        if frame is None:
            return
        yield frame
        start += FRAME_BYTES + len(frame.entry)
        entry_id += 1


def _begin(found: Inspection, ledger_id: int, at: int, entry_id: int, offset: int) -> Run:
    index = SparseIndex(ledger_id, offset)
    index.end, index.entries = at, entry_id
    run = Run(at, entry_id, offset, index)
    found.runs.append(run)
    return run


def _facts(frame: LedgerFrame) -> tuple[int, int, int]:
    """Return last offset, number of messages and latest timestamp; a frame that is whole holds an entry."""
    if frame.entry[:2] != _ENTRY_MAGIC[:2]:
        raise LedgerCorrupt(
            f"entry {frame.entry_id} at byte {frame.at} has no index: it was written before KoP 2.8",
            at=frame.at,
        )
    entry = decode_entry(frame.entry)
    return entry.broker.index, entry.message.num_messages_in_batch, latest_timestamp(frame.entry)


def _whole_frame_after(data: memoryview, at: int, ledger_id: int, min_entry: int) -> LedgerFrame | None:
    """Return the nearest whole frame of a later entry after ``at``."""
    window = bytes(data[at:])
    found = window.find(_ENTRY_MAGIC, FRAME_BYTES)
    while found >= 0:
        start = at + found - FRAME_BYTES
        entry_id = FRAME.unpack_from(data, start)[2]
        if start > at and min_entry <= entry_id < 1 << 62:
            frame = read_frame(data, start, ledger_id, entry_id)
            if frame is not None and _is_entry(frame):
                return frame
        found = window.find(_ENTRY_MAGIC, found + 1)
    return None


def _is_entry(frame: LedgerFrame) -> bool:
    try:
        _facts(frame)
    except RecordsError:
        return False
    return True
