"""The snapshot of a partition's producers and transactions: what a log keeps, so that it need not be read again.

Big-endian:

    offset  size  field
         0     4  magic "MGPS"
         4     1  version: 1, or 2 where transactions are open or were aborted
         5     3  zero
         8     4  number of producers
        12        one row for each
                  in version 2: number of aborted transactions (4), and for each, by the offsets of their markers,
                  producer id (8), first offset (8), the marker's offset (8), last stable offset then (8)
               4  CRC32C of all before

    row  0     2  n, bytes of the row that follow
         2     8  producer id
        10     2  producer epoch
        12     1  number of batches, at most 5
        13  24*b  of each, oldest first: first sequence (4), last sequence (4), base offset (8), timestamp (8)
   13+24*b     8  first offset of the open transaction, -1 for none
                  } this and what follows is there for those who had transactions
               4  coordinator epoch of the last marker, -1 for none
               8  when that was written, ms; -1 for never
               4  the sequence that is due; of those alone whose batches that were kept last were taken back

What a row has behind that is passed over: a later version may put there what else it knows. The version changes when an
earlier one must not read on: one that knows nothing of transactions would serve what is not decided.

Data directories of before have rows without magic, checksum and n, the id first. No such id begins with the magic.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from magnetar.ledger.transactions import AbortedTransaction
from magnetar.records.crc import crc32c

PLAIN, TRANSACTIONAL = 1, 2
_MAGIC = b"MGPS"
_HEAD = struct.Struct(">4sB3xI")
_LENGTH = struct.Struct(">H")
_PRODUCER = struct.Struct(">qhB")
_BATCH = struct.Struct(">iiqq")
_TRANSACTION = struct.Struct(">qiq")
_DUE = struct.Struct(">i")
_COUNT = struct.Struct(">I")
_ABORTED = struct.Struct(">qqqq")
_CRC = struct.Struct(">I")
_NONE = -1


class SnapshotUnreadable(Exception):
    """A snapshot that is damaged, or of a later version: what it says has to be read from the log."""


class Kept(NamedTuple):
    """One batch that is already in the log."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    timestamp: int


class Row(NamedTuple):
    """What a snapshot says of one producer."""

    producer_id: int
    epoch: int
    batches: Sequence[Kept]
    first_offset: int | None = None
    """Of its open transaction."""
    coordinator_epoch: int = _NONE
    marked_ms: int = _NONE
    first_due: int = 0
    """The sequence that is due where no batch tells it."""


def encode(rows: Iterable[Row], aborted: Iterable[AbortedTransaction] = ()) -> bytes:
    """Return the snapshot of these producers, and of aborted transactions."""
    parts = [b""]
    version = PLAIN
    for producer_id, epoch, batches, first_offset, coordinator_epoch, marked_ms, first_due in rows:
        row = _PRODUCER.pack(producer_id, epoch, len(batches))
        row += b"".join(_BATCH.pack(*kept) for kept in batches)
        if first_offset is not None:
            version = TRANSACTIONAL
        if first_offset is not None or coordinator_epoch != _NONE or marked_ms != _NONE or first_due:
            row += _TRANSACTION.pack(
                _NONE if first_offset is None else first_offset, coordinator_epoch, marked_ms
            )
        if first_due:
            row += _DUE.pack(first_due)
        parts += (_LENGTH.pack(len(row)), row)
    count = len(parts) // 2
    tail = [_ABORTED.pack(*each) for each in aborted]
    if tail:
        version = TRANSACTIONAL
    if version == TRANSACTIONAL:
        parts += (_COUNT.pack(len(tail)), *tail)
    parts[0] = _HEAD.pack(_MAGIC, version, count)
    data = b"".join(parts)
    return data + _CRC.pack(crc32c(data))


def decode(data: bytes) -> tuple[list[Row], list[AbortedTransaction]]:
    """Return the producers of a snapshot, and the aborted transactions; raise ``SnapshotUnreadable``."""
    try:
        if data[:4] != _MAGIC:
            return list(_rows_of_before(data)), []
        return _read(data)
    except struct.error:
        raise SnapshotUnreadable("it ends within a row") from None


def _read(data: bytes) -> tuple[list[Row], list[AbortedTransaction]]:
    if len(data) < _HEAD.size + _CRC.size or _CRC.unpack(data[-4:])[0] != crc32c(memoryview(data)[:-4]):
        raise SnapshotUnreadable("its checksum does not match")
    _, version, count = _HEAD.unpack_from(data)
    if version not in (PLAIN, TRANSACTIONAL):
        raise SnapshotUnreadable(f"it is of version {version}, and this broker reads {TRANSACTIONAL}")
    at = _HEAD.size
    rows = []
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        row, end = _row(data, at)
        if length - (end - at) >= _TRANSACTION.size:
            first_offset, coordinator_epoch, marked_ms = _TRANSACTION.unpack_from(data, end)
            row = row._replace(
                first_offset=None if first_offset == _NONE else first_offset,
                coordinator_epoch=coordinator_epoch,
                marked_ms=marked_ms,
            )
            end += _TRANSACTION.size
            if length - (end - at) >= _DUE.size:
                row = row._replace(first_due=_DUE.unpack_from(data, end)[0])
        rows.append(row)
        at += length
    if version == PLAIN:
        return rows, []
    (count,) = _COUNT.unpack_from(data, at)
    at += _COUNT.size
    if count * _ABORTED.size != len(data) - _CRC.size - at:
        raise SnapshotUnreadable(f"it has no room for {count} aborted transactions")
    return rows, [
        AbortedTransaction._make(_ABORTED.unpack_from(data, at + each * _ABORTED.size))
        for each in range(count)
    ]


def _rows_of_before(data: bytes) -> Iterator[Row]:
    at = 0
    while at < len(data):
        row, at = _row(data, at)
        yield row


def _row(data: bytes, at: int) -> tuple[Row, int]:
    """Return the row at ``at``, and where its batches end."""
    producer_id, epoch, count = _PRODUCER.unpack_from(data, at)
    at += _PRODUCER.size
    end = at + count * _BATCH.size
    batches = [Kept._make(_BATCH.unpack_from(data, each)) for each in range(at, end, _BATCH.size)]
    return Row(producer_id, epoch, batches), end
