"""What Pulsar says of a message: MessageMetadata, and SingleMessageMetadata for each message of a batch.

Both are protobuf messages (proto2); the numbers below are the fields'. Text stays bytes here: storage has no use for
it as text, and a producer may send what is not UTF-8. Fields that neither storage nor Kafka need are skipped when
read; what Pulsar's own consumers get are the stored bytes, so they miss nothing.

Where Kafka asks for more than Pulsar's fields can say, properties carry it. Their names begin with ``__kafka.``:

    __kafka.headers    of a message: its headers, in Kafka's own layout and base64, where properties cannot hold them
                       (a name twice, a value that is null or not UTF-8); it counts, the properties beside it are copies
    __kafka.timestamp  of a message: its timestamp, where that is 0 or negative, which Pulsar takes for none
    __kafka.batch      of a batch: attributes, producer id, producer epoch and base sequence of the record batch, as
                       decimals with colons between them
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from magnetar.records.compression import Buffer
from magnetar.records.errors import CorruptBatch, EntryCorrupt
from magnetar.records.pulsar_transactions import ABORT_MARKER, COMMIT_MARKER, TxnId
from magnetar.records.varint import decode_unsigned, encode_unsigned

FORMAT_PROPERTY = "entry.format"
HEADERS_PROPERTY = b"__kafka.headers"
TIMESTAMP_PROPERTY = b"__kafka.timestamp"
BATCH_PROPERTY = b"__kafka.batch"
MAX_MESSAGES = 1 << 20
"""How many messages a batch may have: such a batch is more than 6 MB unpacked, even if all of them are empty."""
_ENTRY_FORMAT = FORMAT_PROPERTY.encode()
_INT64 = 1 << 64
_TRANSACTIONAL, _CONTROL = 0x10, 0x20  # of a record batch's attributes

Property = tuple[bytes, bytes]


class Compression(IntEnum):
    """How Pulsar's producers compress, by its number in the metadata."""

    NONE = 0
    LZ4 = 1
    ZLIB = 2
    ZSTD = 3
    SNAPPY = 4


class KafkaBatch(NamedTuple):
    """What a record batch says besides its records, kept in ``__kafka.batch``."""

    attributes: int
    producer_id: int
    producer_epoch: int
    base_sequence: int

    def encode(self) -> bytes:
        """Return the property's value."""
        return b"%d:%d:%d:%d" % self

    @classmethod
    def decode(cls, value: bytes) -> KafkaBatch:
        """Read the property's value; raise ``EntryCorrupt``."""
        try:
            return cls(*map(int, value.split(b":")))
        except (TypeError, ValueError):
            raise EntryCorrupt(f"{BATCH_PROPERTY.decode()} cannot be {value[:80]!r}") from None


@dataclass(frozen=True, slots=True)
class MessageMetadata:
    """What stands before a payload. Times in ms since 1970, 0 for none."""

    producer_name: bytes = b""
    sequence_id: int = 0
    publish_time: int = 0
    properties: tuple[Property, ...] = ()
    partition_key: bytes | None = None
    compression: int = Compression.NONE
    uncompressed_size: int = 0
    num_messages_in_batch: int = 1
    batched: bool = False
    """Whether the payload is a batch, which may be of one message: ``num_messages_in_batch`` was written."""
    event_time: int = 0
    encryption_keys: tuple[bytes, ...] = ()
    encryption_algo: bytes = b""
    partition_key_b64_encoded: bool = False
    ordering_key: bytes | None = None
    marker_type: int | None = None
    """Set on what brokers write for each other (transactions' ends, snapshots), which no consumer gets."""
    highest_sequence_id: int = 0
    null_value: bool = False
    uuid: bytes = b""
    num_chunks_from_msg: int = 1
    total_chunk_msg_size: int = 0
    chunk_id: int = 0
    null_partition_key: bool = False
    schema_version: bytes = b""
    """Which version of the topic's schema the producer wrote with; empty for none."""
    txnid_least_bits: int | None = None
    txnid_most_bits: int | None = None

    @property
    def txn(self) -> TxnId | None:
        """The transaction that the message is of, or that the marker ends."""
        if self.txnid_least_bits is None or self.txnid_most_bits is None:
            return None
        return TxnId(self.txnid_most_bits % _INT64, self.txnid_least_bits % _INT64)

    @property
    def ends_transaction(self) -> bool:
        """Whether it is the marker that ends one."""
        return self.marker_type in (COMMIT_MARKER, ABORT_MARKER) and self.txn is not None

    @property
    def entry_format(self) -> str:
        """``kafka``, ``mixed_kafka``, or ``pulsar`` where nothing is marked."""
        marked = dict(self.properties).get(_ENTRY_FORMAT)
        return "pulsar" if marked is None else str(marked, "utf-8", "replace")

    @property
    def kafka_batch(self) -> KafkaBatch | None:
        """What the record batch said that a Kafka producer's batch of messages was made from, or that a transaction's
        message would be.
        """
        txn = self.txn
        if txn is not None:
            attributes = _TRANSACTIONAL | (_CONTROL if self.ends_transaction else 0)
            return KafkaBatch(attributes, txn.producer_id, 0, -1)
        if not self.batched:
            return None
        found = dict(self.properties).get(BATCH_PROPERTY)
        return None if found is None else KafkaBatch.decode(found)

    @property
    def is_chunk(self) -> bool:
        """Whether the payload is a piece of a larger message."""
        return self.num_chunks_from_msg > 1


@dataclass(frozen=True, slots=True)
class SingleMessageMetadata:
    """What stands before each message's payload in a batch."""

    properties: tuple[Property, ...] = ()
    partition_key: bytes | None = None
    payload_size: int = 0
    compacted_out: bool = False
    event_time: int = 0
    partition_key_b64_encoded: bool = False
    ordering_key: bytes | None = None
    sequence_id: int | None = None
    null_value: bool = False
    null_partition_key: bool = False


_NAMES = {
    1: "producer_name", 2: "sequence_id", 3: "publish_time", 6: "partition_key", 8: "compression",
    9: "uncompressed_size", 11: "num_messages_in_batch", 12: "event_time", 14: "encryption_algo", 16: "schema_version",
    17: "partition_key_b64_encoded", 18: "ordering_key", 20: "marker_type", 22: "txnid_least_bits",
    23: "txnid_most_bits", 24: "highest_sequence_id",
    25: "null_value", 26: "uuid", 27: "num_chunks_from_msg", 28: "total_chunk_msg_size",
    29: "chunk_id", 30: "null_partition_key",
}  # fmt: skip
_SINGLE_NAMES = {
    2: "partition_key", 3: "payload_size", 4: "compacted_out", 5: "event_time", 6: "partition_key_b64_encoded",
    7: "ordering_key", 8: "sequence_id", 9: "null_value", 10: "null_partition_key",
}  # fmt: skip
_BYTES = frozenset(
    ("producer_name", "partition_key", "encryption_algo", "ordering_key", "uuid", "schema_version")
)
_BOOLS = frozenset(("partition_key_b64_encoded", "null_value", "null_partition_key", "compacted_out"))
_PROPERTIES, _ENCRYPTION_KEYS, _NUM_MESSAGES = 4, 13, 11
_SINGLE_PROPERTIES = 1
_NAME_TAG, _VALUE_TAG = 0x0A, 0x12
_PLAIN_BYTES = 4 + 2 * 0x80


def decode_metadata(
    data: Buffer, at: int = 0, end: int | None = None, max_fields: int | None = None
) -> MessageMetadata:
    """Read MessageMetadata from ``data[at:end]``; raise ``EntryCorrupt``, which names the byte, or too many fields."""
    properties: list[Property] = []
    keys: list[bytes] = []
    values: dict[str, bytes | int | bool] = {}
    left = -1 if max_fields is None else max_fields
    for number, value in fields(data, at, len(data) if end is None else end):
        left -= 1
        if number == _PROPERTIES and left:
            said = _plain_property(value)
            if said is None:
                said, left = _property(value, left)
            properties.append(said)
        elif number == _ENCRYPTION_KEYS and not isinstance(value, int):
            keys.append(bytes(value))
        elif number in _NAMES:
            _take(values, _NAMES[number], value)
            if number == _NUM_MESSAGES:
                values["batched"] = True
        if not left:
            raise EntryCorrupt(f"metadata of {max_fields} fields or more")
    return MessageMetadata(properties=tuple(properties), encryption_keys=tuple(keys), **values)  # type: ignore[arg-type]


def decode_single(data: Buffer, at: int = 0, end: int | None = None) -> SingleMessageMetadata:
    """Read SingleMessageMetadata from ``data[at:end]``; raise ``EntryCorrupt``, which names the byte."""
    properties: list[Property] = []
    values: dict[str, bytes | int | bool] = {}
    for number, value in fields(data, at, len(data) if end is None else end):
        if number == _SINGLE_PROPERTIES:
            properties.append(_plain_property(value) or _property(value)[0])
        elif number in _SINGLE_NAMES:
            _take(values, _SINGLE_NAMES[number], value)
    return SingleMessageMetadata(properties=tuple(properties), **values)  # type: ignore[arg-type]


def _take(values: dict[str, bytes | int | bool], name: str, value: int | memoryview) -> None:
    if (name in _BYTES) is isinstance(value, int):
        raise EntryCorrupt(f"metadata field {name} has the wrong type")
    if not isinstance(value, int):
        values[name] = bytes(value)
    elif name in _BOOLS:
        values[name] = bool(value)
    else:
        value &= _INT64 - 1  # ten bytes could say more, and whoever reads protobuf lets go of it
        values[name] = value - _INT64 if value >= _INT64 >> 1 else value


def _plain_property(value: int | memoryview) -> Property | None:
    """Return a property as all clients write it: a name, then a value, both of few bytes; None for any other."""
    if isinstance(value, int):
        raise EntryCorrupt("a property that is a number")
    if not 4 <= len(value) < _PLAIN_BYTES:
        return None
    said = bytes(value)
    if said[0] == _NAME_TAG:
        at = 2 + said[1]
        if (
            at < len(said) - 1
            and said[at] == _VALUE_TAG
            and said[at + 1] == len(said) - at - 2 < 0x80 > said[1]
        ):
            return said[2:at], said[at + 2 :]
    return None


def _property(value: int | memoryview, most: int = -1) -> tuple[Property, int]:
    """Return a property that has ``most`` fields, at most, and how many less it has; without end where negative."""
    assert not isinstance(value, int)
    name = said = b""
    for number, each in fields(value, 0, len(value)):
        most -= 1
        if not most:
            break
        if isinstance(each, int):
            continue
        if number == 1:
            name = bytes(each)
        elif number == 2:
            said = bytes(each)
    return (name, said), most


def fields(data: Buffer, at: int, end: int) -> Iterator[tuple[int, int | memoryview]]:
    """Yield (number, value) of a protobuf message's fields; raise ``EntryCorrupt``, groups are refused too."""
    view = memoryview(data)
    if at > end or end > len(view):
        raise EntryCorrupt("metadata claims more bytes than the entry holds")
    try:
        while at < end:
            start = at
            key, at = (view[at], at + 1) if view[at] < 0x80 else decode_unsigned(view, at)
            value: int | memoryview
            if key & 7 == 0:
                value, at = decode_unsigned(view, at)
            elif key & 7 == 2:
                size, at = (view[at], at + 1) if at < end and view[at] < 0x80 else decode_unsigned(view, at)
                value, at = view[at : at + size], at + size
            elif key & 7 in (1, 5):
                size = 8 if key & 7 == 1 else 4
                value, at = int.from_bytes(view[at : at + size], "little"), at + size
            else:
                raise EntryCorrupt(f"metadata field of unknown wire type {key & 7} at byte {start}")
            if at > end:
                raise EntryCorrupt(f"metadata field at byte {start} runs past its message")
            yield key >> 3, value
    except CorruptBatch as error:
        raise EntryCorrupt(str(error)) from None


def encode_metadata(metadata: MessageMetadata) -> bytes:
    """Write MessageMetadata; the three required fields always, others where they say something."""
    m = metadata
    parts = [_text(1, m.producer_name), _number(2, m.sequence_id), _number(3, m.publish_time)]
    parts += [_text(_PROPERTIES, _text(1, name) + _text(2, value)) for name, value in m.properties]
    if m.partition_key is not None:
        parts.append(_text(6, m.partition_key))
    if m.compression:
        parts += (_number(8, m.compression), _number(9, m.uncompressed_size))
    if m.batched:
        parts.append(_number(_NUM_MESSAGES, m.num_messages_in_batch))
    if m.event_time:
        parts.append(_number(12, m.event_time))
    parts += [_text(_ENCRYPTION_KEYS, key) for key in m.encryption_keys]
    if m.encryption_algo:
        parts.append(_text(14, m.encryption_algo))
    if m.schema_version:
        parts.append(_text(16, m.schema_version))
    if m.partition_key_b64_encoded:
        parts.append(_number(17, 1))
    if m.ordering_key is not None:
        parts.append(_text(18, m.ordering_key))
    if m.marker_type is not None:
        parts.append(_number(20, m.marker_type))
    if m.txn is not None:
        parts.append(encode_txn(m.txn))
    if m.highest_sequence_id:
        parts.append(_number(24, m.highest_sequence_id))
    if m.null_value:
        parts.append(_number(25, 1))
    if m.is_chunk:
        parts += (_text(26, m.uuid), _number(27, m.num_chunks_from_msg))
        parts += (_number(28, m.total_chunk_msg_size), _number(29, m.chunk_id))
    if m.null_partition_key:
        parts.append(_number(30, 1))
    return b"".join(parts)


def encode_txn(txn: TxnId) -> bytes:
    """Write what MessageMetadata says of a transaction."""
    return _number(22, txn.least) + _number(23, txn.most)


def encode_single(single: SingleMessageMetadata) -> bytes:
    """Write SingleMessageMetadata."""
    s = single
    parts = [_text(_SINGLE_PROPERTIES, _text(1, name) + _text(2, value)) for name, value in s.properties]
    if s.partition_key is not None:
        parts.append(_text(2, s.partition_key))
    parts.append(_number(3, s.payload_size))
    if s.compacted_out:
        parts.append(_number(4, 1))
    if s.event_time:
        parts.append(_number(5, s.event_time))
    if s.partition_key_b64_encoded:
        parts.append(_number(6, 1))
    if s.ordering_key is not None:
        parts.append(_text(7, s.ordering_key))
    if s.sequence_id is not None:
        parts.append(_number(8, s.sequence_id))
    if s.null_value:
        parts.append(_number(9, 1))
    if s.null_partition_key:
        parts.append(_number(10, 1))
    return b"".join(parts)


def _number(field: int, value: int) -> bytes:
    return encode_unsigned(field << 3) + encode_unsigned(value % _INT64)


def _text(field: int, value: bytes) -> bytes:
    return encode_unsigned(field << 3 | 2) + encode_unsigned(len(value)) + value
