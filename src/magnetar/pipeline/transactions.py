"""What became of transactions, from the marks that the coordinator left in the log itself.

A producer's transactional batches are decided by the next control batch of the same producer: its one record's key is
two 16-bit numbers, a version and the kind of the mark (0 abort, 1 commit). A transaction of Pulsar's counts as that of
a producer of its own, and its mark is a marker of Pulsar's. Below the last stable offset every one is
decided, so whoever reads up to there finds the mark by reading on.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from magnetar.ledger.errors import LedgerCorrupt
from magnetar.ledger.formats.layout import HEADER_BYTES
from magnetar.pipeline.mapped import STEP_BYTES, MappedLedger
from magnetar.pipeline.offloaded import OffloadedAt, map_ledger
from magnetar.records import batch_table
from magnetar.records.arrow import Table
from magnetar.records.batch import CONTROL, TRANSACTIONAL, decode_records
from magnetar.records.batch import HEADER_BYTES as BATCH_HEADER_BYTES
from magnetar.records.batch_table import ENTRY_ID, FRAME_AT, MARKER, PRODUCER_ID
from magnetar.records.errors import RecordsError
from magnetar.records.pulsar_transactions import ABORT_MARKER

if TYPE_CHECKING:
    from magnetar.pipeline.ledger_part import LedgerPart

_ABORT, _COMMIT = 0, 1
_KEY = struct.Struct(">hh")


class Transactions:
    """Tells of each batch of a slice whether it was aborted; reads on behind the slice as far as that takes."""

    def __init__(self, root: Path, piece: LedgerPart) -> None:
        self._root = root
        self._name = f"{piece.topic}-{piece.partition}"
        self._ledgers = [piece.ledger_id, *piece.later]
        self._offloaded = piece.offloaded
        self._at, self._entry_id = piece.start, piece.entry_id
        self._mapped: MappedLedger | None = None
        self._marks: dict[int, list[tuple[int, bool]]] = {}

    def is_aborted(self, producer_id: int, offset: int) -> bool:
        """Tell what became of a producer's transactional batch; raise ``LedgerCorrupt`` if nothing says."""
        while True:
            marks = self._marks.get(producer_id, [])
            place = bisect_right(marks, (offset, True))
            if place < len(marks):
                return marks[place][1]
            if not self._read_on():
                raise LedgerCorrupt(
                    f"{self._name}: the transaction of producer {producer_id} at offset {offset} is neither "
                    "committed nor aborted, but lies below the last stable offset"
                )

    def _read_on(self) -> bool:
        """Note more marks; False at the end of all ledgers."""
        if not self._ledgers:
            return False
        if self._mapped is None:
            self._mapped = map_ledger(self._root, self._ledgers[0], self._offloaded)
        ledger = self._mapped
        walk = ledger.walk(self._at, self._entry_id, verify=True, most_bytes=STEP_BYTES)
        if not len(walk.rows):
            # What cannot be read at the end of the last ledger may be what a broker is writing right now.
            if walk.fault and len(self._ledgers) > 1:
                raise ledger.fault(walk)
            self._ledgers.pop(0)
            self._mapped, self._at, self._entry_id = None, HEADER_BYTES, 0
            return bool(self._ledgers)
        for producer_id, offset, aborted in marks(ledger, walk.rows):
            self._marks.setdefault(producer_id, []).append((offset, aborted))
        ledger.done_with(self._at, walk.at)
        self._at, self._entry_id = walk.at, walk.entry_id
        return True


def without_aborted(rows: Table, transactions: Transactions) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Tell of each batch whether a reader of committed records may see it."""
    keep = np.ones(len(rows), np.bool_)
    attributes = rows[:, batch_table.ATTRIBUTES]
    for number in np.flatnonzero((attributes & TRANSACTIONAL != 0) & (attributes & CONTROL == 0)):
        row = rows[number]
        keep[number] = not transactions.is_aborted(int(row[PRODUCER_ID]), int(row[batch_table.BASE_OFFSET]))
    return keep


def marks(ledger: MappedLedger, rows: Table) -> Iterable[tuple[int, int, bool]]:
    """Yield (producer id, offset, whether it aborts) of the ends of transactions among these batches."""
    for row in rows[rows[:, batch_table.ATTRIBUTES] & CONTROL != 0]:
        if row[MARKER]:
            yield int(row[PRODUCER_ID]), int(row[batch_table.BASE_OFFSET]), int(row[MARKER]) == ABORT_MARKER
            continue
        start = int(row[batch_table.START]) - BATCH_HEADER_BYTES
        try:
            (record,) = decode_records(ledger.data[start : row[batch_table.END]].data)
            _, kind = _KEY.unpack_from(record.key or b"")
        except (RecordsError, ValueError, struct.error) as error:
            why = f"it is no control batch: {error}"
            raise ledger.damage(int(row[ENTRY_ID]), int(row[FRAME_AT]), why) from None
        if kind in (_ABORT, _COMMIT):
            yield int(row[PRODUCER_ID]), int(row[batch_table.BASE_OFFSET]), kind == _ABORT


def first_undecided(
    root: Path, ledger_ids: Iterable[int], offloaded: Sequence[OffloadedAt] = ()
) -> int | None:
    """Return the offset at which the oldest open transaction of a log begins, if there is one. Reads all heads."""
    began: dict[int, int] = {}
    for ledger_id in ledger_ids:
        ledger = map_ledger(root, ledger_id, offloaded)
        at, entry_id = HEADER_BYTES, 0
        while at < len(ledger):
            walk = ledger.walk(at, entry_id, verify=False, most_bytes=STEP_BYTES)
            ended = list(marks(ledger, walk.rows))
            attributes = walk.rows[:, batch_table.ATTRIBUTES]
            events = [(offset, producer, True) for producer, offset, _ in ended]
            for row in walk.rows[(attributes & TRANSACTIONAL != 0) & (attributes & CONTROL == 0)]:
                events.append((int(row[batch_table.BASE_OFFSET]), int(row[PRODUCER_ID]), False))
            for offset, producer, ends in sorted(events):
                if ends:
                    began.pop(producer, None)
                else:
                    began.setdefault(producer, offset)
            if walk.fault or walk.at == at:
                break
            ledger.done_with(at, walk.at)
            at, entry_id = walk.at, walk.entry_id
    return min(began.values(), default=None)
