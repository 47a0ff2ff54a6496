"""A ledger's file, mapped into memory to be read; nobody ever writes through it."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from magnetar.ledger.errors import LedgerCorrupt, LedgerNotFound
from magnetar.ledger.formats.layout import FRAME_BYTES, HEADER_BYTES, check_header, ledger_path
from magnetar.pipeline.object_store import at_hand

if TYPE_CHECKING:
    from magnetar.pipeline.frames import Walk
    from magnetar.records.arrow import Bytes

_ENTRY_BEGINS = b"\x0e\x02\x00\x00"
_DONE_WITH = getattr(mmap, "MADV_DONTNEED", None)
_MANY = 1 << 62
STEP_BYTES = 16 << 20
"""Who walks far goes in steps of about so much, and lets go of each: pages that were looked at count as memory."""


class Cut(NamedTuple):
    """A part of a ledger: offsets ``[low, high)`` lie in bytes ``[start, end)``, which begin with ``entry_id``."""

    low: int
    high: int
    start: int
    end: int
    entry_id: int


class MappedLedger:
    """The bytes of one ledger, its header checked. Raises ``LedgerNotFound`` or ``LedgerCorrupt``."""

    def __init__(self, root: Path, ledger_id: int) -> None:
        self.ledger_id = ledger_id
        self.path = at_hand(ledger_path(root, ledger_id))
        try:
            with self.path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise LedgerNotFound(f"the file of ledger {ledger_id} is gone: {self.path}") from None
        except ValueError:
            raise LedgerCorrupt(f"{self.path}: it is empty") from None
        self.data: Bytes = np.frombuffer(self._map, np.uint8)
        check_header(self._map[:HEADER_BYTES], ledger_id, self.path)

    def __len__(self) -> int:
        return len(self.data)

    def walk(
        self, at: int, entry_id: int, end: int | None = None, *,
        verify: bool, max_rows: int = _MANY, most_bytes: int = _MANY,
    ) -> Walk:  # fmt: skip
        """Return the frames from ``at`` on, which must be that of ``entry_id``; see `walk_frames`."""
        from magnetar.pipeline.frames import walk_frames  # planning needs no numpy tables

        stop = len(self.data) if end is None else min(end, len(self.data))
        return walk_frames(
            self.data, at, stop, ledger_id=self.ledger_id, entry_id=entry_id, verify=verify,
            max_rows=max_rows, most_bytes=most_bytes,
        )  # fmt: skip

    def next_whole_frame(self, at: int, entry_id: int, end: int | None = None) -> tuple[int, int] | None:
        """Return (place, entry id) of the first whole frame behind ``at`` that holds an entry after ``entry_id``."""
        stop = len(self.data) if end is None else min(end, len(self.data))
        found = self._map.find(_ENTRY_BEGINS, at + FRAME_BYTES + 1, stop)
        while found >= 0:
            start = found - FRAME_BYTES
            size = int.from_bytes(self._map[start : start + 4], "big")
            held = int.from_bytes(self._map[found - 8 : found], "big")
            whole = entry_id < held < _MANY and found + size <= stop
            if whole and len(self.walk(start, held, found + size, verify=True, max_rows=1).rows):
                return start, held
            found = self._map.find(_ENTRY_BEGINS, found + 1, stop)
        return None

    def done_with(self, start: int, end: int) -> None:
        """Let go of the memory of ``[start, end)``; the page cache keeps the bytes."""
        if _DONE_WITH is not None:
            first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
            size = end // mmap.PAGESIZE * mmap.PAGESIZE - first
            if size > 0:
                self._map.madvise(_DONE_WITH, first, size)

    def damage(self, entry_id: int, at: int, why: object) -> LedgerCorrupt:
        """Return the error that names the place."""
        return LedgerCorrupt(
            f"{self.path}: entry {entry_id} of ledger {self.ledger_id} at byte {at} is damaged: {why}"
        )

    def fault(self, walk: Walk) -> LedgerCorrupt:
        """Return the error for what ended a walk."""
        from magnetar.pipeline.frames import WORDS

        return self.damage(walk.entry_id, walk.at, WORDS[walk.fault])
