"""The snapshot of a partition's producers: what the log keeps, so that opening it need not read all of it again.

Big-endian:

    offset  size  field
         0     4  magic "MGPS"
         4     1  version, 1
         5     3  zero
         8     4  number of producers
        12        one row for each
               4  CRC32C of all before

    row  0     2  n, bytes of the row that follow
         2     8  producer id
        10     2  producer epoch
        12     1  number of batches, at most 5
        13  24*b  of each, oldest first: first sequence (4), last sequence (4), base offset (8), timestamp (8)

What a row has behind its batches is passed over: a later version puts there what else it knows (an open transaction).
The version changes when an earlier one must not read on.

Data directories of before have rows without magic, checksum and n, the id first. No such id begins with the magic.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from magnetar.records.crc import crc32c

VERSION = 1
_MAGIC = b"MGPS"
_HEAD = struct.Struct(">4sB3xI")
_LENGTH = struct.Struct(">H")
_PRODUCER = struct.Struct(">qhB")
_BATCH = struct.Struct(">iiqq")
_CRC = struct.Struct(">I")


class SnapshotUnreadable(Exception):
    """A snapshot that is damaged, or of a later version: what it says has to be read from the log."""


class BatchMetadata(NamedTuple):
    """One batch that is already in the log."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    timestamp: int


class Row(NamedTuple):
    """What a snapshot says of one producer."""

    producer_id: int
    epoch: int
    batches: Sequence[BatchMetadata]


def encode(rows: Iterable[Row]) -> bytes:
    """Return the snapshot of these producers."""
    parts = [b""]
    for producer_id, epoch, batches in rows:
        row = _PRODUCER.pack(producer_id, epoch, len(batches))
        row += b"".join(_BATCH.pack(*kept) for kept in batches)
        parts += (_LENGTH.pack(len(row)), row)
    parts[0] = _HEAD.pack(_MAGIC, VERSION, len(parts) // 2)
    data = b"".join(parts)
    return data + _CRC.pack(crc32c(data))


def decode(data: bytes) -> list[Row]:
    """Return the producers of a snapshot; raise ``SnapshotUnreadable``."""
    try:
        if data[:4] != _MAGIC:
            return list(_rows_of_before(data))
        return list(_rows(data))
    except struct.error:
        raise SnapshotUnreadable("it ends within a row") from None


def _rows(data: bytes) -> Iterator[Row]:
    if len(data) < _HEAD.size + _CRC.size or _CRC.unpack(data[-4:])[0] != crc32c(memoryview(data)[:-4]):
        raise SnapshotUnreadable("its checksum does not match")
    _, version, count = _HEAD.unpack_from(data)
    if version != VERSION:
        raise SnapshotUnreadable(f"it is of version {version}, and this broker reads {VERSION}")
    at = _HEAD.size
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(data, at)
        yield _row(data, at + _LENGTH.size)[0]
        at += _LENGTH.size + length


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
    batches = [BatchMetadata._make(_BATCH.unpack_from(data, each)) for each in range(at, end, _BATCH.size)]
    return Row(producer_id, epoch, batches), end
