"""Large messages that a Pulsar producer sent in pieces, put together for the rows of one slice.

`magnetar.records.chunks` says what a reader gets at each piece. What lies before the slice counts too, in its ledger
and in those before; so a slice that holds pieces walks its ledger from as far before them as counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from magnetar.ledger.errors import LedgerCorrupt, LedgerNotFound
from magnetar.ledger.formats.layout import FRAME_BYTES, HEADER_BYTES
from magnetar.pipeline.ledger_part import ChunkedLog
from magnetar.pipeline.mapped import STEP_BYTES, MappedLedger
from magnetar.records import batch_table
from magnetar.records.arrow import Table
from magnetar.records.batch_table import ENTRY_ID, FOREIGN, FRAME_AT, LAST_OFFSET
from magnetar.records.chunks import Chunks, Gets, nothing, piece_in, whole
from magnetar.records.errors import EntryCorrupt


class _Place(NamedTuple):
    ledger: MappedLedger
    at: int
    entry_id: int


class LedgerChunks:
    """What becomes of the pieces of one ledger, asked in their order. ``open_ledger`` gives the ledgers before."""

    def __init__(
        self, log: ChunkedLog, ledger: MappedLedger, open_ledger: Callable[[int], MappedLedger]
    ) -> None:
        self._log = log
        self._ledger = ledger
        self._open_ledger = open_ledger
        self._chunks: Chunks[_Place] | None = None
        self._at, self._entry_id = HEADER_BYTES, 0
        self._counts_from = 0

    def batch_of(self, row: Table, content: memoryview) -> bytes | None:
        """Return the record batch for the entry of ``row``; None if it is to be given as it is.

        Raises ``EntryCorrupt`` where a piece of it is damaged.
        """
        piece = piece_in(content, self._log.most_bytes) if self._log.most_bytes else None
        if piece is None:
            return None
        place = _Place(self._ledger, int(row[FRAME_AT]), int(row[ENTRY_ID]))
        if self._chunks is None or place.at < self._at:  # rows are asked for again where some were damaged
            self._chunks = Chunks(self._log.most_bytes, looked_back=True)
            self._at, self._entry_id = HEADER_BYTES, 0
            self._counts_from = place.at - 2 * self._chunks.reach  # in the file; frames take room there too
            self._look_back(place.at)
        self._go_on(self._ledger, self._at, self._entry_id, place.at)
        gets, places = self._chunks.take(piece, place, len(content))
        self._at, self._entry_id = place.at + FRAME_BYTES + len(content), place.entry_id + 1
        if gets is Gets.MARKED:
            return None
        return (
            whole(content, [_content(each) for each in places[:-1]])
            if gets is Gets.WHOLE
            else nothing(content)
        )

    def _look_back(self, end: int) -> None:
        """Take note of the ledgers before, as far as they count."""
        assert self._chunks is not None
        left = self._chunks.reach - end
        counting: list[MappedLedger] = []
        for ledger_id in reversed(self._log.earlier):
            if left <= 0:
                break
            try:
                counting.insert(0, self._open_ledger(ledger_id))
            except (LedgerNotFound, LedgerCorrupt):
                break  # retention has taken it, or what it held is lost: nothing before it can be put together
            left -= len(counting[0])
        for ledger in counting:
            self._go_on(ledger, HEADER_BYTES, 0, len(ledger))

    def _go_on(self, ledger: MappedLedger, at: int, entry_id: int, end: int) -> None:
        """Take note of the entries in ``[at, end)``."""
        assert self._chunks is not None
        while at < end:
            walk = ledger.walk(at, entry_id, end, verify=False, most_bytes=STEP_BYTES)
            if not len(walk.rows):
                return
            self._note(ledger, walk.rows, walk.at)
            ledger.done_with(at, walk.at)
            at, entry_id = walk.at, walk.entry_id

    def _note(self, ledger: MappedLedger, rows: Table, end: int) -> None:
        assert self._chunks is not None
        there = rows[:, LAST_OFFSET] >= self._log.log_start_offset
        if ledger is self._ledger:
            there &= rows[:, FRAME_AT] >= self._counts_from
        sizes = np.diff(rows[:, FRAME_AT], append=end) - FRAME_BYTES
        rows, sizes = rows[there], sizes[there]
        done = 0
        for number in np.flatnonzero(rows[:, FOREIGN]):
            row = rows[number]
            content = ledger.data[row[batch_table.START] : row[batch_table.END]].data
            piece = piece_in(content, self._log.most_bytes)
            if piece is not None:
                self._chunks.pass_by(int(sizes[done:number].sum()))
                place = _Place(ledger, int(row[FRAME_AT]), int(row[ENTRY_ID]))
                self._chunks.take(piece, place, int(sizes[number]))
                done = int(number) + 1
        self._chunks.pass_by(int(sizes[done:].sum()))


def _content(place: _Place) -> memoryview:
    """Return an entry that a walk without checksums has found; raise ``EntryCorrupt`` if it is damaged."""
    walk = place.ledger.walk(place.at, place.entry_id, verify=True, max_rows=1)
    if not len(walk.rows):
        raise EntryCorrupt(f"a piece of it is damaged: {place.ledger.fault(walk)}")
    row = walk.rows[0]
    return place.ledger.data[row[batch_table.START] : row[batch_table.END]].data
