"""Whether a batch that another broker has kept may be stored here as it is.

A producer's batch has no holes (`magnetar.records.check`). One that a broker compacted has, up to having no records at
all; and a broker's own batches are the markers with which transactions end.
"""

from __future__ import annotations

from typing import NamedTuple

from magnetar.records.batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    UNKNOWN_TIME,
    BatchHeader,
    check_crc,
    read_header,
)
from magnetar.records.check import MAX_TIME, check_one, check_records
from magnetar.records.compression import Codec, decompress
from magnetar.records.control import read_marker
from magnetar.records.errors import CorruptBatch, InvalidRecord
from magnetar.records.varint import decode_zigzag


class KeptBatch(NamedTuple):
    """A batch of another broker's that may be stored, its header, and the earliest timestamp (ms) of its records."""

    data: memoryview
    header: BatchHeader
    earliest_ms: int


def check_kept(data: memoryview) -> list[KeptBatch]:
    """Return the batches that lie here end to end; raise ``RecordsError`` unless all of them are whole and well-formed.

    Takes as long as they are large: it is for threads.
    """
    found, at, due = [], 0, 0
    while at < len(data):
        header = read_header(data, at)
        batch = data[at : at + header.size]
        check_crc(batch, header)
        if header.base_offset < due or header.last_offset_delta < 0:
            raise InvalidRecord(f"a batch begins at offset {header.base_offset}, where {due} is due")
        due = header.last_offset + 1
        found.append(KeptBatch(batch, header, _earliest_ms(batch, header)))
        at += header.size
    if not found:
        raise InvalidRecord("a partition without a whole record batch")
    return found


def _earliest_ms(batch: memoryview, header: BatchHeader) -> int:
    """Look at every record; give the earliest of their times, as `magnetar.records.check.check_and_open` does."""
    count = header.records_count
    if not 0 <= count <= header.last_offset_delta + 1:
        raise InvalidRecord(f"batch of {count} records ends at offset delta {header.last_offset_delta}")
    codec = Codec.of(header.attributes)
    body = decompress(codec, batch[HEADER_BYTES:]) if count or codec is Codec.none else memoryview(b"")
    full = count == header.last_offset_delta + 1
    least = check_records(body, count) if full else _check_with_holes(bytes(body), header)
    if header.is_control:
        read_marker(batch)
    if not count:
        return UNKNOWN_TIME
    base, latest = header.base_timestamp, header.max_timestamp
    if header.attributes & LOG_APPEND_TIME:
        return latest
    if least <= -MAX_TIME or not -MAX_TIME < base < MAX_TIME or base == NO_TIMESTAMP:
        return UNKNOWN_TIME
    return min(base + least, latest)


def _check_with_holes(body: bytes, header: BatchHeader) -> int:
    """Raise ``InvalidRecord`` unless the records are well-formed, and their offset deltas only grow."""
    at, due, least = 0, 0, 0
    try:
        for number in range(header.records_count):
            _, first = decode_zigzag(body, at)
            _, offset_at = decode_zigzag(body, first + 1, most_bytes=10)
            delta, _ = decode_zigzag(body, offset_at)
            if not due <= delta <= header.last_offset_delta:
                raise InvalidRecord(f"offset delta {delta} where {due} is due")
            shape = check_one(body, at, delta)
            least = shape[7] if not number else min(least, shape[7])
            at, due = at + shape[0], delta + 1
    except (IndexError, CorruptBatch):
        raise InvalidRecord("a record is cut short") from None
    if at != len(body):
        raise InvalidRecord(f"{len(body) - at} bytes follow the last record")
    return least
