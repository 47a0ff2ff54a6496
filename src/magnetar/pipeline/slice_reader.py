"""What a Spark task does with its slice: walk one ledger's frames, decode them, and judge damage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.ledger.errors import LedgerCorrupt, LedgerNotFound
from magnetar.pipeline.chunked import LedgerChunks
from magnetar.pipeline.formats import EntryUnreadable, in_kafka_format
from magnetar.pipeline.frames import WORDS
from magnetar.pipeline.ledger_part import LedgerPart
from magnetar.pipeline.mapped import MappedLedger
from magnetar.pipeline.offloaded import map_ledger
from magnetar.pipeline.options import HEADERS
from magnetar.pipeline.port import RecordQuery
from magnetar.pipeline.transactions import Transactions, without_aborted
from magnetar.records import batch_table
from magnetar.records.arrow import BatchUnreadable, Table, arrow_batches, damage_row
from magnetar.records.batch import CONTROL, LOG_APPEND_TIME
from magnetar.records.batch_table import ENTRY_ID, FRAME_AT, LAST_OFFSET

if TYPE_CHECKING:
    import pyarrow as pa

ARROW_ROWS = 1 << 16
ARROW_BYTES = 4 << 20


class SliceReader:
    """Walks one slice; knows up to which offset it has come."""

    def __init__(self, piece: LedgerPart, ask: RecordQuery, ledger: MappedLedger | None = None) -> None:
        """``ledger`` is the one that the piece is of, if it has been brought already."""
        self._piece = piece
        self._ledger = ledger
        self._ask = ask
        self._next = piece.low
        self._transactions = Transactions(Path(piece.root), piece) if ask.read_committed else None
        self._chunked: LedgerChunks | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        piece, skip = self._piece, self._ask.skip_damage
        try:
            ledger = self._ledger or map_ledger(Path(piece.root), piece.ledger_id, piece.offloaded)
        except (LedgerNotFound, LedgerCorrupt) as error:
            if not skip:
                raise
            yield from self._lost(piece.high, piece.entry_id, piece.start, str(error))
            return
        self._chunked = LedgerChunks(
            piece.chunked,
            ledger,
            lambda ledger_id: map_ledger(Path(piece.root), ledger_id, piece.offloaded),
        )
        at, entry_id = piece.start, piece.entry_id
        # Headers need room for the worst case beside that of the values.
        most_bytes = ARROW_BYTES // 2 if HEADERS in self._ask.columns else ARROW_BYTES
        while at < piece.end and self._next < piece.high:
            walk = ledger.walk(
                at, entry_id, piece.end, verify=True, max_rows=ARROW_ROWS, most_bytes=most_bytes
            )
            if len(walk.rows):
                yield from self._decoded(ledger, self._wanted(walk.rows))
                self._next = max(self._next, int(walk.rows[-1, LAST_OFFSET]) + 1)
                ledger.done_with(at, walk.at)
            stuck = walk.at == at and not walk.fault
            at, entry_id = walk.at, walk.entry_id
            if (walk.fault or stuck) and self._next < piece.high:
                why = WORDS[walk.fault] if walk.fault else "the file ends before it"
                damage = ledger.damage(entry_id, at, why)
                if not skip:
                    raise damage
                later = ledger.next_whole_frame(at, entry_id, piece.end)
                next_offset = piece.high if later is None else _first_offset(ledger, *later)
                yield from self._lost(next_offset, entry_id, at, str(damage))
                if later is None:
                    return
                at, entry_id = later

    def _wanted(self, rows: Table) -> Table:
        """Return the batches that may hold wanted records; the coordinators' own marks are none."""
        piece, ask, attributes = self._piece, self._ask, rows[:, batch_table.ATTRIBUTES]
        keep = (rows[:, LAST_OFFSET] >= piece.low) & (rows[:, batch_table.BASE_OFFSET] < piece.high)
        keep &= attributes & CONTROL == 0
        if ask.times_ms is not None:
            low, high = ask.times_ms
            times = rows[:, batch_table.MAX_TIME]
            keep &= (times >= low) & ((times <= high) | (attributes & LOG_APPEND_TIME == 0))
        wanted: Table = rows if keep.all() else rows[keep]
        if self._transactions is not None:
            wanted = wanted[without_aborted(wanted, self._transactions)]
        return wanted

    def _decoded(self, ledger: MappedLedger, rows: Table) -> Iterator[pa.RecordBatch]:
        """Yield the records of these batches, and a row for each batch that cannot be read, if that is no error."""
        while len(rows):
            try:
                found = self._arrow(ledger, rows)
                # Where damage is no error, nothing may be given before all is known to be readable.
                yield from list(found) if self._ask.skip_damage else found
                return
            except _EntryUnreadable as error:
                bad = int(_index_of(rows, error.entry_id))
                row = rows[bad]
                told = ledger.damage(error.entry_id, int(row[FRAME_AT]), error)
                if not self._ask.skip_damage:
                    raise told from None
                yield from self._arrow(ledger, rows[:bad])
                self._next = max(self._piece.low, int(row[batch_table.BASE_OFFSET]))
                yield from self._lost(
                    int(row[LAST_OFFSET]) + 1, error.entry_id, int(row[FRAME_AT]), str(told)
                )
                rows = rows[bad + 1 :]

    def _arrow(self, ledger: MappedLedger, rows: Table) -> Iterator[pa.RecordBatch]:
        piece, ask = self._piece, self._ask
        if not len(rows):
            return
        kafka = rows
        try:
            for data, kafka in in_kafka_format(ledger.data, rows, self._chunked):
                yield from arrow_batches(
                    data, kafka, topic=piece.topic, partition=piece.partition, low=piece.low, high=piece.high,
                    columns=ask.columns, times_ms=ask.times_ms, ledger_id=piece.ledger_id,
                )  # fmt: skip
        except EntryUnreadable as error:
            raise _EntryUnreadable(int(rows[error.batch, ENTRY_ID]), error) from None
        except BatchUnreadable as error:
            raise _EntryUnreadable(int(kafka[error.batch, ENTRY_ID]), error) from None

    def _lost(self, next_offset: int, entry_id: int, position: int, why: str) -> Iterator[pa.RecordBatch]:
        """Yield the row for what cannot be read from here to ``next_offset``; none if that is nothing."""
        piece, first = self._piece, self._next
        self._next = max(first, min(next_offset, piece.high))
        if self._next == first:
            return
        yield damage_row(
            self._ask.columns, topic=piece.topic, partition=piece.partition, offset=first,
            damage={
                "reason": why, "last_offset": self._next - 1,
                "ledger_id": piece.ledger_id, "entry_id": entry_id, "position": position,
            },
        )  # fmt: skip


class _EntryUnreadable(Exception):
    def __init__(self, entry_id: int, why: object) -> None:
        super().__init__(str(why))
        self.entry_id = entry_id


def _index_of(rows: Table, entry_id: int) -> int:
    """Return which row is that of an entry."""
    return int((rows[:, ENTRY_ID] == entry_id).argmax())


def _first_offset(ledger: MappedLedger, at: int, entry_id: int) -> int:
    walk = ledger.walk(at, entry_id, verify=True, max_rows=1)
    return int(walk.rows[0, batch_table.BASE_OFFSET])
