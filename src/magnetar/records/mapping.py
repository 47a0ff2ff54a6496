"""What a Kafka record and a Pulsar message are to each other, field by field. The plain form of the rules.

    Pulsar -> Kafka                                           Kafka -> Pulsar
    ordering key, or partition key (base64 undone)            key, as ordering key and as partition key: as text if
        -> key; null partition key or neither -> null             it is UTF-8, else in base64 and marked; null -> none
    payload -> value; null_value -> null                      value -> payload; null -> null_value
    event time, or publish time -> timestamp                  timestamp -> event time; 0 or less -> a property
    properties -> headers, in order, as UTF-8                 headers -> properties, in order; a name twice, a null or
                                                                  what is not UTF-8 -> also ``__kafka.headers``

`magnetar.records.kernels.pulsar` does the same to whole batches in machine code; tests hold the two equal.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from magnetar.records.compression import Buffer
from magnetar.records.errors import CorruptBatch, InvalidRecord
from magnetar.records.pulsar_metadata import (
    HEADERS_PROPERTY,
    TIMESTAMP_PROPERTY,
    MessageMetadata,
    Property,
    SingleMessageMetadata,
)
from magnetar.records.varint import decode_zigzag, encode_zigzag

_BASE64 = re.compile(rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_TIMESTAMP = re.compile(rb"0|-[1-9][0-9]{0,18}")

_HEAD_BYTES = 5 + 1 + 10 + 5 + 5
"""What stands before a record's key, at most: lengths, attributes, time and offset."""

RawHeader = tuple[bytes, bytes | None]


class RawRecord(NamedTuple):
    """A Kafka record as its bytes; ``headers`` is their count and content, laid out as in the record."""

    delta: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: bytes


def record_of(
    message: MessageMetadata | SingleMessageMetadata, payload: bytes, delta: int, publish_time: int
) -> RawRecord:
    """Return the Kafka record of a Pulsar message."""
    timestamp = message.event_time if message.event_time > 0 else publish_time
    properties, packed = [], None
    for name, value in message.properties:
        if name == TIMESTAMP_PROPERTY and _TIMESTAMP.fullmatch(value) and int(value) >= -(1 << 63):
            timestamp = int(value)
        elif name == HEADERS_PROPERTY and (unpacked := _unpacked(value)) is not None:
            packed = unpacked
        else:
            properties.append((name, value))
    headers = encode_headers(properties if packed is None else _together(packed, properties))
    return RawRecord(delta, timestamp, key_of(message), None if message.null_value else payload, headers)


def _together(packed: list[RawHeader], properties: list[Property]) -> list[RawHeader]:
    """Return the packed headers, and the properties that are no copies of them: somebody added those on the way."""
    names = {name for name, _ in packed}
    return packed + [(name, value) for name, value in properties if name not in names]


def key_of(message: MessageMetadata | SingleMessageMetadata) -> bytes | None:
    """Return the Kafka key of a Pulsar message."""
    if message.ordering_key is not None:
        return message.ordering_key
    return None if message.null_partition_key else partition_key_of(message)


def partition_key_of(message: MessageMetadata | SingleMessageMetadata) -> bytes | None:
    """Return what a Pulsar message has as its key, out of base64 where it says so."""
    key = message.partition_key
    if key is not None and message.partition_key_b64_encoded and _BASE64.fullmatch(key):
        return base64.b64decode(key)
    return key


def partition_key_text(key: bytes | None) -> tuple[bytes | None, bool]:
    """Return a Kafka key as the partition key that it becomes, and whether that is in base64."""
    if key is None or _is_utf8(key):
        return key, False
    return base64.b64encode(key), True


def first_key(records: Buffer) -> bytes | None:
    """Return the key of the first of a batch's records, None where there is none, or no such record."""
    head = bytes(records[:_HEAD_BYTES])
    try:
        _, at = decode_zigzag(head, 0)
        _, at = decode_zigzag(head, at + 1, most_bytes=10)
        _, at = decode_zigzag(head, at)
        size, at = decode_zigzag(head, at)
    except CorruptBatch:
        return None
    return None if size < 0 else bytes(records[at : at + size])


def single_of(record: RawRecord, sequence_id: int | None) -> SingleMessageMetadata:
    """Return what Pulsar says of a Kafka record in a batch."""
    text, in_base64 = partition_key_text(record.key)
    properties = properties_of(record.headers)
    if record.timestamp <= 0:
        properties.append((TIMESTAMP_PROPERTY, b"%d" % record.timestamp))
    return SingleMessageMetadata(
        properties=tuple(properties),
        partition_key=text,
        payload_size=len(record.value or b""),
        event_time=max(record.timestamp, 0),
        partition_key_b64_encoded=in_base64,
        ordering_key=record.key,
        sequence_id=sequence_id,
        null_value=record.value is None,
    )


def properties_of(headers: bytes) -> list[Property]:
    """Return the properties that stand for headers, laid out as in a record."""
    pairs = decode_headers(headers)
    plain: list[Property] = []
    exact = True
    last = {name: number for number, (name, _) in enumerate(pairs)}
    for number, (name, value) in enumerate(pairs):
        if value is None or not _is_utf8(value) or not _is_utf8(name) or name.startswith(b"__kafka."):
            exact = False
        elif last[name] != number:
            exact = False  # Pulsar's clients keep one property of a name: let it be the last, as Kafka's lastHeader
        else:
            plain.append((name, value))
    if not exact:
        plain.append((HEADERS_PROPERTY, base64.b64encode(headers)))
    return plain


def encode_headers(pairs: Iterable[RawHeader]) -> bytes:
    """Lay headers out as a record does: their count, then each."""
    pairs = list(pairs)
    parts = [encode_zigzag(len(pairs))]
    for name, value in pairs:
        parts += (_sized(name), _sized(value))
    return b"".join(parts)


def decode_headers(data: Sequence[int] | bytes) -> list[RawHeader]:
    """Read headers laid out as in a record; raise ``InvalidRecord``."""
    body = bytes(data)
    try:
        count, at = decode_zigzag(body, 0)
        if not 0 <= count <= len(body):
            raise InvalidRecord(f"a record claims {count} headers")
        pairs: list[RawHeader] = []
        for _ in range(count):
            name, at = _take(body, at)
            value, at = _take(body, at)
            if name is None:
                raise InvalidRecord("a header has no key")
            pairs.append((name, value))
    except CorruptBatch as error:
        raise InvalidRecord(f"headers cannot be read: {error}") from None
    if at != len(body):
        raise InvalidRecord("headers do not fill their place")
    return pairs


def encode_record(record: RawRecord, base_timestamp: int) -> bytes:
    """Return the record as it stands in a batch."""
    body = b"".join(
        (
            b"\0",
            encode_zigzag(record.timestamp - base_timestamp),
            encode_zigzag(record.delta),
            _sized(record.key),
            _sized(record.value),
            record.headers,
        )
    )
    return encode_zigzag(len(body)) + body


def decode_record(body: bytes, base_timestamp: int) -> RawRecord:
    """Read one record, without the length before it; raise ``InvalidRecord``."""
    try:
        timestamp_delta, at = decode_zigzag(body, 1, most_bytes=10)
        delta, at = decode_zigzag(body, at)
        key, at = _take(body, at)
        value, at = _take(body, at)
    except CorruptBatch as error:
        raise InvalidRecord(f"a record cannot be read: {error}") from None
    headers = body[at:]
    decode_headers(headers)
    return RawRecord(delta, base_timestamp + timestamp_delta, key, value, headers)


def _unpacked(value: bytes) -> list[RawHeader] | None:
    """Return the headers in a ``__kafka.headers`` property, or None if a stranger wrote something else there."""
    if not _BASE64.fullmatch(value):
        return None
    try:
        return decode_headers(base64.b64decode(value))
    except InvalidRecord:
        return None


def _take(body: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = decode_zigzag(body, at)
    if length == -1:
        return None, at
    if length < 0 or at + length > len(body):
        raise InvalidRecord(f"a field at byte {at} claims more bytes than its record holds")
    return body[at : at + length], at + length


def _sized(value: bytes | None) -> bytes:
    return b"\1" if value is None else encode_zigzag(len(value)) + value


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
