"""Kafka's record batch, version 2 (KIP-98), and the records in it.

    offset  size  field
         0     8  base offset                     } the broker owns these two; the CRC leaves them out
         8     4  length of what follows          }
        12     4  partition leader epoch          } and this
        16     1  magic, 2
        17     4  CRC32C of all that follows
        21     2  attributes: 0-2 codec, 3 log append time, 4 transactional, 5 control
        23     4  last offset delta
        27     8  base timestamp, ms
        35     8  max timestamp, ms
        43     8  producer id, -1 for none
        51     2  producer epoch
        53     4  base sequence
        57     4  number of records
        61        records, compressed together

A record: length, attributes (1 byte), timestamp delta, offset delta, key, value, headers; all numbers
zigzag varints, -1 as a length for null.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from magnetar.records.compression import Buffer, Codec, compress, decompress
from magnetar.records.crc import crc32c
from magnetar.records.errors import CorruptBatch, InvalidRecord
from magnetar.records.tuples import maker
from magnetar.records.varint import decode_zigzag, encode_zigzag

HEADER_BYTES = 61
MAGIC = 2
CODEC = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
NO_PRODUCER = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1
"""Of a batch that no leader of this cluster took in: it came as it is from another one."""
MAX_GAP = 1 << 31
"""So many offsets a batch can span."""
UNKNOWN_TIME = -(1 << 63)
"""Stands for an earliest timestamp that nobody knows: no timestamp is earlier."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH_OFFSET = 12  # the length field counts from behind itself
_CRC_FROM = 21
ATTRIBUTES_LOW = 22
"""The byte of a batch that holds codec and transactional bit."""


def is_transactional(batch: Buffer) -> bool:
    """Tell whether what may be a batch says that it is of a transaction; nothing else of it is looked at."""
    seen = memoryview(batch)
    return len(seen) > ATTRIBUTES_LOW and bool(seen[ATTRIBUTES_LOW] & TRANSACTIONAL)


class BatchHeader(NamedTuple):
    """The fixed part of a batch, field by field."""

    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size(self) -> int:
        """How many bytes the whole batch takes."""
        return self.length + _LENGTH_OFFSET

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> Codec:
        return Codec.of(self.attributes)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; sequences wrap from 2^31-1 to 0."""
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


_header_of = maker(BatchHeader)


class Header(NamedTuple):
    """One header of a record."""

    key: str
    value: bytes | None


class PlainRecord(NamedTuple):
    """One record as people think of it: timestamp in ms, offset absolute."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()
    timestamp: int = NO_TIMESTAMP
    offset: int = 0


def read_header(data: Buffer, at: int = 0) -> BatchHeader:
    """Return the header at ``at``; raise ``CorruptBatch`` if it is not all there or not version 2."""
    try:
        header = _header_of(_HEADER.unpack_from(data, at))
    except struct.error:
        raise CorruptBatch("record batch header is cut short") from None
    if header.magic != MAGIC:
        raise InvalidRecord(f"record batch has magic {header.magic}; only {MAGIC} is accepted")
    if header.length < HEADER_BYTES - _LENGTH_OFFSET:
        raise CorruptBatch(f"record batch claims only {header.length} bytes")
    return header


def check_crc(data: Buffer, header: BatchHeader) -> None:
    """Raise ``CorruptBatch`` unless ``data`` is exactly this batch and its CRC holds."""
    size = header.length + _LENGTH_OFFSET
    if len(data) != size:
        raise CorruptBatch(f"record batch claims {size} bytes, and {len(data)} are there")
    if crc32c(memoryview(data)[_CRC_FROM:]) != header.crc:
        raise CorruptBatch("record batch CRC does not match")


def batches(data: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Walk whole batches laid end to end; a cut last one (as Fetch may answer) ends the walk."""
    view = memoryview(data)
    at = 0
    while len(view) - at >= HEADER_BYTES:
        header = read_header(view, at)
        if at + header.size > len(view):
            return
        yield header, view[at : at + header.size]
        at += header.size


def encode_batch(
    records: Sequence[PlainRecord],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.none,
    attributes: int = 0,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    leader_epoch: int = 0,
    level: int | None = None,
) -> bytes:
    """Lay out ``records`` as one batch; their offsets are counted from ``base_offset`` anew."""
    base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    body = b"".join(_encode_record(r, i, base_timestamp) for i, r in enumerate(records))
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes | codec,
        last_offset_delta=max(len(records) - 1, 0),
        base_timestamp=base_timestamp,
        max_timestamp=max((r.timestamp for r in records), default=NO_TIMESTAMP),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=len(records),
    )
    return seal(header, compress(codec, body, level=level))


def gap(base_offset: int, offsets: int) -> bytes:
    """Return a batch that spans so many offsets, and has no records."""
    header = BatchHeader(
        base_offset=base_offset, length=0, partition_leader_epoch=0, magic=MAGIC, crc=0, attributes=0,
        last_offset_delta=offsets - 1, base_timestamp=NO_TIMESTAMP, max_timestamp=NO_TIMESTAMP,
        producer_id=NO_PRODUCER, producer_epoch=-1, base_sequence=NO_SEQUENCE, records_count=0,
    )  # fmt: skip
    return seal(header, b"")


def seal(header: BatchHeader, body: Buffer) -> bytes:
    """Return the batch of ``header`` and ``body`` with its length and CRC put right."""
    draft = bytearray(_HEADER.pack(*header._replace(length=HEADER_BYTES - _LENGTH_OFFSET + len(body))))
    draft += body
    struct.pack_into(">I", draft, 17, crc32c(memoryview(draft)[_CRC_FROM:]))
    return bytes(draft)


def with_log_append_time(data: Buffer, header: BatchHeader, now_ms: int) -> bytes:
    """Return the batch stamped with the broker's clock, as topics with LogAppendTime want it."""
    stamped = header._replace(attributes=header.attributes | LOG_APPEND_TIME, max_timestamp=now_ms)
    return seal(stamped, memoryview(data)[HEADER_BYTES:])


def recompressed(data: Buffer, header: BatchHeader, codec: Codec, *, level: int | None = None) -> bytes:
    """Return the same records under another codec."""
    body = decompress(header.codec, memoryview(data)[HEADER_BYTES:])
    return seal(
        header._replace(attributes=header.attributes & ~CODEC | codec), compress(codec, body, level=level)
    )


def _encode_record(record: PlainRecord, delta: int, base_timestamp: int) -> bytes:
    parts = [
        b"\0",
        encode_zigzag(record.timestamp - base_timestamp),
        encode_zigzag(delta),
        _encode_bytes(record.key),
        _encode_bytes(record.value),
        encode_zigzag(len(record.headers)),
    ]
    for key, value in record.headers:
        parts += (_encode_bytes(key.encode()), _encode_bytes(value))
    body = b"".join(parts)
    return encode_zigzag(len(body)) + body


def _encode_bytes(value: bytes | None) -> bytes:
    return b"\1" if value is None else encode_zigzag(len(value)) + value


def decode_records(data: Buffer) -> list[PlainRecord]:
    """Return the records of one whole batch with absolute offsets; for tools and coordinators, not for Fetch."""
    return list(each_record(data))


def each_record(data: Buffer) -> Iterator[PlainRecord]:
    """Return the records of `decode_records` one after the other."""
    header = read_header(data)
    body = decompress(header.codec, memoryview(data)[HEADER_BYTES : header.size])
    return records_in(body, header)


def records_in(body: memoryview, header: BatchHeader) -> Iterator[PlainRecord]:
    """Return the records of a batch whose ``body``, what follows its header, is decompressed."""
    at = 0
    for _ in range(header.records_count):
        length, at = decode_zigzag(body, at)
        end = at + length
        if length < 0 or end > len(body):
            raise InvalidRecord("a record claims more bytes than its batch holds")
        yield _decode_record(body[at:end], header)
        at = end
    if at != len(body):
        raise InvalidRecord(f"{len(body) - at} bytes follow the last record")


def last_record_before(data: Buffer, offset: int) -> PlainRecord | None:
    """Return the last record of one whole batch whose offset is below ``offset``; the others are passed over."""
    header = read_header(data)
    body = decompress(header.codec, memoryview(data)[HEADER_BYTES : header.size])
    places, at = [], 0
    for _ in range(header.records_count):
        length, at = decode_zigzag(body, at)
        if length < 0 or at + length > len(body):
            raise InvalidRecord("a record claims more bytes than its batch holds")
        places.append((at, at + length))
        at += length
    for start, end in reversed(places):
        record = _decode_record(body[start:end], header)
        if record.offset < offset:
            return record
    return None


def keys_and_values(data: Buffer) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Return the same of `decode_records` without anything else, for who has millions of small ones to look at.

    Those of one time, without headers and with fields below 8 KB are taken apart right here.
    """
    header = read_header(data)
    body = bytes(decompress(header.codec, memoryview(data)[HEADER_BYTES : header.size]))
    at, size = 0, len(body)
    for _ in range(header.records_count):
        try:
            fields = _small(body, at)
        except IndexError:  # of what is cut short, which is for the other way to say
            fields = None
        if fields is None:
            length, start = decode_zigzag(memoryview(body), at)
            at = start + length
            if length < 0 or at > size:
                raise InvalidRecord("a record claims more bytes than its batch holds")
            record = _decode_record(memoryview(body)[start:at], header)
            yield record.key, record.value
        else:
            key, value, at = fields
            yield key, value
    if at != size:
        raise InvalidRecord(f"{size - at} bytes follow the last record")


def _small(body: bytes, at: int) -> tuple[bytes | None, bytes | None, int] | None:
    """Return key and value of a record and where it ends, or None unless it is a small one of the usual kind.

    Varints of one or two bytes are read as they lie: half of an even one is a length, and 1 says that there is nothing.
    """
    code = body[at]
    if code < 0x80:
        at += 1
    else:
        more = body[at + 1]
        if more >= 0x80:
            return None
        code += (more << 7) - 0x80
        at += 2
    end = at + (code >> 1)
    if code & 1 or body[at + 1]:  # a length below 0, a time of its own
        return None
    at += 2
    if body[at] >= 0x80:
        at += 1
        if body[at] >= 0x80:
            return None
    at += 1
    code = body[at]
    if code < 0x80:
        at += 1
    else:
        more = body[at + 1]
        if more >= 0x80:
            return None
        code += (more << 7) - 0x80
        at += 2
    key = value = None
    if not code & 1:
        start = at
        at += code >> 1
        key = body[start:at]
    elif code > 1:
        return None
    code = body[at]
    if code < 0x80:
        at += 1
    else:
        more = body[at + 1]
        if more >= 0x80:
            return None
        code += (more << 7) - 0x80
        at += 2
    if not code & 1:
        start = at
        at += code >> 1
        value = body[start:at]
    elif code > 1:
        return None
    return (key, value, end) if not body[at] and at + 1 == end else None


def _decode_record(body: memoryview, header: BatchHeader) -> PlainRecord:
    timestamp_delta, at = decode_zigzag(body, 1, most_bytes=10)
    offset_delta, at = decode_zigzag(body, at)
    key, at = _decode_bytes(body, at)
    value, at = _decode_bytes(body, at)
    count, at = decode_zigzag(body, at)
    if count < 0 or count > len(body):
        raise InvalidRecord(f"a record claims {count} headers")
    headers = []
    for _ in range(count):
        name, at = _decode_bytes(body, at)
        if name is None:
            raise InvalidRecord("a header has no key")
        content, at = _decode_bytes(body, at)
        headers.append(Header(name.decode(errors="replace"), content))
    if at != len(body):
        raise InvalidRecord("a record's fields do not fill its length")
    timestamp = header.base_timestamp + timestamp_delta
    if header.attributes & LOG_APPEND_TIME:
        timestamp = header.max_timestamp
    return PlainRecord(key, value, headers, timestamp, header.base_offset + offset_delta)


def _decode_bytes(body: memoryview, at: int) -> tuple[bytes | None, int]:
    length, at = decode_zigzag(body, at)
    if length == -1:
        return None, at
    if length < 0 or at + length > len(body):
        raise InvalidRecord("a field claims more bytes than its record holds")
    return bytes(body[at : at + length]), at + length
