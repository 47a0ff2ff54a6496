"""Ledgers that lie in tiered storage alone, for Spark: tasks read what they need of them straight from there.

A ledger's bytes are shown at the places where its own file had them, in memory that is taken as blocks come and given
back as they are done with; so everything that reads mapped files reads these, too. Keys for S3 are looked for in the
environment of each process (``AWS_ACCESS_KEY_ID`` and so on), as Spark's own file systems do.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from magnetar.ledger.errors import LedgerCorrupt, LedgerNotFound
from magnetar.ledger.formats.layout import encode_header
from magnetar.ledger.port import LedgerSummary
from magnetar.ledger.tiers.offloaded import OffloadedObjects
from magnetar.ledger.tiers.place import place_in
from magnetar.ledger.tiers.tiers import TierSettings, open_store
from magnetar.pipeline.mapped import STEP_BYTES, MappedLedger

if TYPE_CHECKING:
    from magnetar.pipeline.frames import Walk

_MANY = 1 << 62
_BLOCKS_AT_ONCE = 8


class OffloadedAt(NamedTuple):
    """Where one ledger lies, and what must be there: a value that goes from the driver to executors."""

    ledger_id: int
    driver: str
    place: tuple[tuple[str, str], ...]
    uuid: str
    first_offset: int
    last_offset: int
    entries: int
    size: int
    created_ms: int


def offloaded_at(summary: LedgerSummary) -> OffloadedAt | None:
    """Return where a ledger lies that lies in tiered storage alone; None for others."""
    offload = summary.offload
    if offload is None or not summary.offloaded or summary.compacted:
        return None
    return OffloadedAt(
        summary.ledger_id, offload.driver, tuple(offload.place.items()), offload.uuid, summary.first_offset,
        summary.last_offset, summary.entries, summary.size, summary.created_ms,
    )  # fmt: skip


def map_ledger(root: Path, ledger_id: int, offloaded: Iterable[OffloadedAt] = ()) -> MappedLedger:
    """Return a ledger to read from, wherever it lies; raise ``LedgerError``."""
    found = next((each for each in offloaded if each.ledger_id == ledger_id), None)
    return MappedLedger(root, ledger_id) if found is None else OffloadedMap(found)


@lru_cache(maxsize=8)
def objects_at(at: OffloadedAt) -> OffloadedObjects:
    """Return the objects of a ledger, its index read; raise ``LedgerError``."""
    summary = LedgerSummary(
        at.ledger_id,
        at.first_offset,
        at.last_offset,
        at.entries,
        at.size,
        created_ms=at.created_ms,
        sealed=True,
    )
    store = open_store(place_in(at.driver, dict(at.place)), TierSettings())
    try:
        return OffloadedObjects(store, at.uuid, summary)
    except LedgerNotFound as error:
        raise LedgerCorrupt(f"ledger {at.ledger_id} is not where the metadata says: {error}") from error


class OffloadedMap(MappedLedger):
    """One of them. A walk brings the blocks that it may need, as many as it asks for at most and one more."""

    def __init__(self, at: OffloadedAt) -> None:
        self.ledger_id = at.ledger_id
        self._objects = objects_at(at)
        self.path = Path(self._objects.where)
        self._map = mmap.mmap(-1, max(at.size, 1))
        header = encode_header(at.ledger_id, at.created_ms)
        self._map[: len(header)] = header
        self.data = np.frombuffer(self._map, np.uint8)
        self._here: set[int] = set()

    def walk(
        self, at: int, entry_id: int, end: int | None = None, *,
        verify: bool, max_rows: int = _MANY, most_bytes: int = _MANY,
    ) -> Walk:  # fmt: skip
        stop = len(self.data) if end is None else min(end, len(self.data))
        reach = self._bring(at, min(stop, at + min(most_bytes, STEP_BYTES)))
        # Blocks hold whole entries, so a walk may end where one does, and be gone on with.
        return super().walk(
            at, entry_id, min(stop, reach), verify=True, max_rows=max_rows, most_bytes=most_bytes
        )

    def next_whole_frame(self, at: int, entry_id: int, end: int | None = None) -> tuple[int, int] | None:
        stop = len(self.data) if end is None else min(end, len(self.data))
        self._bring(at, stop)
        return super().next_whole_frame(at, entry_id, stop)

    def _bring(self, start: int, end: int) -> int:
        """Have ``[start, end)`` be here; return where the last block of it ends. Raises ``LedgerError``."""
        first, last = self._objects.covering(end - start, start)
        blocks = self._objects.found.blocks
        missing = [number for number in range(first, last + 1) if number not in self._here]
        while missing:
            run = 1
            while run < min(len(missing), _BLOCKS_AT_ONCE) and missing[run] == missing[0] + run:
                run += 1
            for number, frames in enumerate(self._objects.frames(missing[0], missing[run - 1]), missing[0]):
                block = blocks[number]
                self._map[block.own_start : block.own_end] = frames
                self._here.add(number)
            del missing[:run]
        return blocks[last].own_end

    def done_with(self, start: int, end: int) -> None:
        """Let go of the memory of the blocks that lie in ``[start, end)`` whole; they come again when needed."""
        blocks = self._objects.found.blocks
        gone = [n for n in self._here if start <= blocks[n].own_start and blocks[n].own_end <= end]
        self._here.difference_update(gone)
        if gone:
            super().done_with(blocks[min(gone)].own_start, blocks[max(gone)].own_end)
