"""Entry format ``mixed_kafka``: record batches whose relative offsets the broker puts right, as KoP's did.

Some clients count the records of a batch wrongly, or not at all. Format ``kafka`` refuses such a batch, since it is
stored as it was sent; this one lays its records out anew, with offset deltas 0, 1, 2 ... A batch that is right already
is not touched. The mark on the entry says ``mixed_kafka``; its payload is a record batch like any other.
"""

from __future__ import annotations

from magnetar.records.batch import HEADER_BYTES, BatchHeader, check_crc, read_header, seal
from magnetar.records.check import check_and_open
from magnetar.records.compression import compress, decompress
from magnetar.records.errors import InvalidRecord
from magnetar.records.mapping import decode_record, encode_record
from magnetar.records.varint import decode_zigzag


def with_relative_offsets(data: memoryview, *, hurried: bool = False) -> tuple[memoryview, BatchHeader, int]:
    """Return the batch to store, its header and its earliest timestamp, as `check_and_open` does.

    Raises ``RecordsError`` for one that is damaged beyond its counting.

    ``hurried`` raises ``TakesLong`` rather than spend more than a few milliseconds.
    """
    try:
        data, header, _, earliest_ms = check_and_open(data, hurried=hurried)
    except InvalidRecord:
        data = memoryview(_counted_anew(data))
        data, header, _, earliest_ms = check_and_open(data, hurried=hurried)
    return data, header, earliest_ms


def _counted_anew(data: memoryview) -> bytes:
    header = read_header(data)
    if len(data) > header.size:
        raise InvalidRecord("a partition's records must be exactly one batch")
    check_crc(data, header)
    body = bytes(decompress(header.codec, data[HEADER_BYTES:]))
    parts: list[bytes] = []
    at = 0
    while at < len(body):
        size, at = decode_zigzag(body, at)
        if size <= 0 or at + size > len(body):
            raise InvalidRecord(f"record {len(parts)} at byte {at} claims more bytes than its batch holds")
        record = decode_record(body[at : at + size], header.base_timestamp)
        parts.append(encode_record(record._replace(delta=len(parts)), header.base_timestamp))
        at += size
    count = len(parts)
    header = header._replace(records_count=count, last_offset_delta=max(count - 1, 0))
    return seal(header, compress(header.codec, b"".join(parts)))
