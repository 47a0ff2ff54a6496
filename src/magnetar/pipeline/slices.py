"""What one Spark task reads: a slice of one ledger. Cut on the driver, read on the executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from magnetar.pipeline.catalog import PartitionLog
from magnetar.pipeline.frames import ENTRY_ID, FRAME_AT, LAST_OFFSET, WORDS, Walk, walk_frames
from magnetar.pipeline.ledgers import damage, map_ledger
from magnetar.pipeline.options import SLICE_BYTES
from magnetar.records import kernel
from magnetar.records.arrow import BatchUnreadable, Table, arrow_batches

if TYPE_CHECKING:
    import pyarrow as pa

ARROW_ROWS = 1 << 16
ARROW_BYTES = 64 << 20
_CONTROL = 0x20


@dataclass(frozen=True)
class LedgerSlice(InputPartition):  # type: ignore[misc]
    """The records of ``[low, high)`` in bytes ``[start, end)`` of one ledger, which begin with entry ``entry_id``."""

    path: str
    ledger_id: int
    entry_id: int
    start: int
    end: int
    low: int
    high: int
    topic: str
    partition: int


def slices(log: PartitionLog, low: int, high: int, *, slice_bytes: int = SLICE_BYTES) -> list[LedgerSlice]:
    """Cut ``[low, high)`` of one partition into slices of about ``slice_bytes``, never across two ledgers."""
    return [
        LedgerSlice(
            str(ledger.path),
            ledger.ledger_id,
            entry_id,
            start,
            end,
            low,
            high,
            log.which.topic,
            log.which.partition,
        )
        for ledger in log.overlapping(low, high)
        for start, end, entry_id in ledger.cuts(low, high, slice_bytes)
    ]


def read_slice(piece: LedgerSlice, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Give the slice's records; raise ``LedgerCorrupt`` naming ledger, entry and byte of what is damaged."""
    path = Path(piece.path)
    data = map_ledger(path, piece.ledger_id)
    at, entry_id = piece.start, piece.entry_id
    while at < piece.end:
        walk = walk_frames(
            data,
            at,
            min(piece.end, len(data)),
            ledger_id=piece.ledger_id,
            entry_id=entry_id,
            verify=True,
            most_rows=ARROW_ROWS,
            most_bytes=ARROW_BYTES,
        )
        rows = _wanted(walk, piece)
        try:
            if len(rows):
                yield from arrow_batches(
                    data, rows, topic=piece.topic, partition=piece.partition, low=piece.low, high=piece.high,
                    columns=columns,
                )  # fmt: skip
        except BatchUnreadable as error:
            bad = rows[error.batch]
            raise damage(path, piece.ledger_id, int(bad[ENTRY_ID]), int(bad[FRAME_AT]), error) from None
        if walk.fault:
            if len(walk.rows) and walk.rows[-1, LAST_OFFSET] + 1 >= piece.high:
                return  # what follows is not ours; a broker may be writing it right now
            raise damage(path, piece.ledger_id, walk.entry_id, walk.at, WORDS[walk.fault])
        if walk.at == at:
            raise damage(path, piece.ledger_id, walk.entry_id, at, "the file ends before it")
        at, entry_id = walk.at, walk.entry_id


def _wanted(walk: Walk, piece: LedgerSlice) -> Table:
    """Give the batches that hold wanted offsets and are not the coordinators' own marks."""
    rows = walk.rows
    inside = (rows[:, LAST_OFFSET] >= piece.low) & (rows[:, kernel.BASE_OFFSET] < piece.high)
    wanted: Table = rows[inside & (rows[:, kernel.ATTRIBUTES] & _CONTROL == 0)]
    return wanted
