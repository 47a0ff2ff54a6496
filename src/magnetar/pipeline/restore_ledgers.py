"""One piece of a table becomes one sealed ledger: what a task of a restore does, a batch of rows at a time.

Int64s stay as they are. A record batch of Kafka's may span more offsets than it has records (that is how Kafka keeps a
compacted log), so a gap belongs to the batch before it: its last offset delta reaches to where the next batch begins.
Where no record comes before the gap, a batch without records spans it. Either way each entry begins where the one
before ended: the index has no gaps, and recovery, verification, Fetch and Spark read such a ledger like any other.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from magnetar.ledger.files.disk import RealDisk
from magnetar.ledger.formats.layout import FRAME_BYTES, encode_header, frame_head, index_path, ledger_path
from magnetar.ledger.formats.sparse import SparseIndex
from magnetar.records.batch import HEADER_BYTES, LOG_APPEND_TIME, gap, read_header, seal
from magnetar.records.compression import Buffer, Codec
from magnetar.records.encoder import Columns, Int64s
from magnetar.records.entry import broker_entry_head, kafka_message_head

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES = 256 << 10
_MAX_DELTA = (1 << 31) - 2
_NO_RECORD = (1 << 63) - 1  # the earliest time where there is none
_WRITE_BYTES = 4 << 20


class RowUnfit(ValueError):
    """A row of the table that no topic can hold as it is."""


@dataclass(frozen=True, slots=True)
class RestoredPiece:
    """Int64s ``[low, high)`` of one partition, and the ledger that they become."""

    partition: int
    low: int
    high: int
    ledger_id: int


class Made(NamedTuple):
    """One ledger as it was written."""

    ledger_id: int
    partition: int
    first_offset: int
    last_offset: int
    entries: int
    size: int
    max_timestamp: int
    records: int
    min_timestamp: int


def write_piece(
    root: Path, piece: RestoredPiece, rows: Iterable[pa.RecordBatch], *, codec: Codec, now_ms: int
) -> Made:
    """Write the ledger of ``rows``, sorted by offset, and its index; whole and on disk when this returns.

    Tasks may be tried twice, at the same time too: each writes a draft of its own, and the last one to end stays.
    """
    path = ledger_path(root, piece.ledger_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{uuid.uuid4().hex}.draft")
    try:
        with draft.open("xb", buffering=_WRITE_BYTES) as file:
            ledger = _Ledger(piece, file.write, codec, now_ms)
            for batch in rows:
                ledger.add(batch)
            ledger.end()
            file.flush()
            os.fsync(file.fileno())
        RealDisk().replace({index_path(root, piece.ledger_id): ledger.index.encode()})
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    index = ledger.index
    return Made(
        piece.ledger_id, piece.partition, piece.low, index.next_offset - 1, index.entries, index.end,
        index.max_timestamp, ledger.records, index.min_timestamp,
    )  # fmt: skip


class _Ledger:
    """Grows entry by entry; the last batch waits until it is known how far it must reach."""

    def __init__(
        self, piece: RestoredPiece, write: Callable[[Buffer], object], codec: Codec, now_ms: int
    ) -> None:
        self.index = SparseIndex(piece.ledger_id, piece.low)
        self.records = 0
        self._piece = piece
        self._write = write
        self._codec = codec
        self._now_ms = now_ms
        self._next = piece.low
        self._waiting: tuple[bytes, int] | None = None
        self._write(encode_header(piece.ledger_id, now_ms))

    def add(self, rows: pa.RecordBatch) -> None:
        offsets, times, kinds = _numbers(rows, self._piece)
        self._check_order(offsets)
        columns = Columns(
            len(offsets), key=_column(rows, "key"), value=_column(rows, "value"), times=times,
            headers=_column(rows, "headers"),
        )  # fmt: skip
        for first, stop in _runs(offsets, times, kinds):
            at = int(offsets[first])
            for batch, count in columns.batches_of(
                np.arange(first, stop), target_bytes=BATCH_BYTES, codec=self._codec
            ):
                at_first = at - int(offsets[first]) + first
                earliest = int(times[at_first : at_first + count].min())
                self._put(placed(batch, at, int(times[first]) if kinds[first] else None), at, earliest)
                at += count
        self.records += len(offsets)
        self._next = int(offsets[-1]) + 1 if len(offsets) else self._next

    def end(self) -> None:
        """Reach to the end of the piece."""
        self._flush(self._piece.high)

    def _check_order(self, offsets: Int64s) -> None:
        before = np.concatenate(([self._next - 1], offsets[:-1]))
        if len(offsets) and (offsets <= before).any():
            twice = int(offsets[np.argmax(offsets <= before)])
            raise RowUnfit(
                f"offset {twice} of partition {self._piece.partition} is in the table more than once: "
                "'magnetar audit' names all such"
            )

    def _put(self, batch: bytes, base_offset: int, earliest_ms: int) -> None:
        self._flush(base_offset)
        self._waiting = batch, earliest_ms

    def _flush(self, until: int) -> None:
        """Write the batch that waits so that it reaches to ``until``, and batches without records for the rest."""
        at = self.index.next_offset
        if self._waiting is not None:
            (batch, earliest_ms), self._waiting = self._waiting, None
            header = read_header(batch)
            reach = min(until - 1 - at, _MAX_DELTA)
            if reach > header.last_offset_delta:
                batch = seal(header._replace(last_offset_delta=reach), memoryview(batch)[HEADER_BYTES:])
            self._append(batch, earliest_ms)
        while self.index.next_offset < until:
            at = self.index.next_offset
            self._append(gap(at, min(until - at, _MAX_DELTA + 1)), _NO_RECORD)

    def _append(self, batch: bytes, earliest_ms: int) -> None:
        header = read_header(batch)
        messages = header.last_offset_delta + 1
        head = broker_entry_head(self._now_ms, header.last_offset)
        head += kafka_message_head(self._now_ms, messages)
        length = len(head) + len(batch)
        self._write(frame_head(self._piece.ledger_id, self.index.entries, head, [batch], length))
        self._write(batch)
        self.index.add(FRAME_BYTES + length, messages, header.max_timestamp, earliest_ms)


def placed(batch: bytes, base_offset: int, append_time: int | None) -> bytes:
    """Return the batch at its offset; with ``append_time`` (ms) as one that the broker's clock stamped."""
    header = read_header(batch)._replace(base_offset=base_offset, partition_leader_epoch=0)
    if append_time is not None:
        header = header._replace(attributes=header.attributes | LOG_APPEND_TIME, max_timestamp=append_time)
    return seal(header, memoryview(batch)[HEADER_BYTES:])


def _numbers(rows: pa.RecordBatch, piece: RestoredPiece) -> tuple[Int64s, Int64s, Int64s]:
    """Return offsets, times in ms, and timestamp types; raise `RowUnfit`."""
    import pyarrow as pa

    place = f"in partition {piece.partition}, offsets {piece.low} to {piece.high - 1}"
    for name in ("offset", "timestamp", "timestampType"):
        if rows.column(name).null_count:
            raise RowUnfit(f"a record has no {name}, {place}")
    offsets = rows.column("offset").cast(pa.int64()).to_numpy()
    micros = rows.column("timestamp").cast(pa.timestamp("us", tz="UTC")).view(pa.int64()).to_numpy()
    times, left = np.divmod(micros, 1000)
    if left.any():
        odd = int(offsets[np.argmax(left != 0)])
        raise RowUnfit(
            f"the timestamp of offset {odd} is finer than the milliseconds that a topic keeps, {place}"
        )
    kinds = rows.column("timestampType").cast(pa.int64()).to_numpy()
    if ((kinds < 0) | (kinds > 1)).any():
        raise RowUnfit(f"a timestampType is neither 0 (CreateTime) nor 1 (LogAppendTime), {place}")
    return offsets, times, kinds


def _runs(offsets: Int64s, times: Int64s, kinds: Int64s) -> Iterator[tuple[int, int]]:
    """Yield (first, after the last) of rows that may share a batch: no gap, one type, one append time."""
    if not len(offsets):
        return
    breaks = (np.diff(offsets) != 1) | (np.diff(kinds) != 0) | ((np.diff(times) != 0) & (kinds[1:] == 1))
    ends = [*(np.flatnonzero(breaks) + 1).tolist(), len(offsets)]
    yield from zip([0, *ends[:-1]], ends, strict=True)


def _column(rows: pa.RecordBatch, name: str) -> pa.Array | None:
    return rows.column(name) if name in rows.schema.names else None
