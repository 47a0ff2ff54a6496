"""The entry: what one append writes, readable by Pulsar itself (PIP-70).

    offset  size  field
         0     2  magic 0x0e02
         2     4  metadata size, n
         6     n  BrokerEntryMetadata: 1 broker_timestamp (ms), 2 index
       6+n     2  magic 0x0e01   } only where Pulsar's own producers wrote it
       8+n     4  CRC32C         }
       6+n     4  metadata size, m
      10+n     m  MessageMetadata: see `magnetar.records.pulsar_metadata`
    10+n+m        payload: in format ``kafka`` one record batch, byte for byte as the producer sent it;
                ``mixed_kafka`` one, with its relative offsets put right; ``pulsar`` what Pulsar's metadata says

``index`` is the offset of the *last* message, so a reader can skip an entry unopened. The format is marked on
every entry by the property ``entry.format``, as KoP marks it; an entry without the property is Pulsar's own.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from magnetar.records.batch import read_header
from magnetar.records.compression import Buffer
from magnetar.records.errors import EntryCorrupt
from magnetar.records.pulsar_metadata import MessageMetadata, decode_metadata, fields
from magnetar.records.varint import encode_unsigned

BROKER_ENTRY_MAGIC = 0x0E02
CHECKSUM_MAGIC = 0x0E01
_BROKER_HEAD = struct.Struct(">HI")
_SIZE = struct.Struct(">I")

# producer_name "", sequence_id 0, then publish_time follows
_METADATA_HEAD = b"\x0a\x00\x10\x00\x18"
_METADATA_FORMAT = b"\x22\x15\x0a\x0centry.format\x12\x05kafka\x58"
_KAFKA_HEAD_BYTES = len(_METADATA_HEAD) + 6 + len(_METADATA_FORMAT)
_METADATA_MIXED = b"\x22\x1b\x0a\x0centry.format\x12\x0bmixed_kafka\x58"


# Six bytes of a time, the tag of field 2, and the lowest byte of what that holds: which bits are known, and what they
# are. A timestamp of our century takes six bytes: five that go on, and one that does not.
_TIMED_MASK = int.from_bytes(b"\x80" * 6 + b"\xff\x00", "little")
_TIMED_BITS = int.from_bytes(b"\x80" * 5 + b"\x00\x10\x00", "little")
# The end of _METADATA_HEAD, and such a time.
_PUBLISHED_MASK = int.from_bytes(b"\xff\xff" + b"\x80" * 6, "little")
_PUBLISHED_BITS = int.from_bytes(_METADATA_HEAD[3:] + b"\x80" * 5 + b"\x00", "little")


class _Form(NamedTuple):
    """How the head of an entry looks that was written here in format ``kafka``, by how long its index is."""

    unpack: Callable[[Buffer], tuple[Any, ...]]
    """What begins it; what `_TIMED_MASK` is of; more of field 2; the metadata's size and what begins it; what
    `_PUBLISHED_MASK` is of; the format."""
    begin: bytes
    metadata_at: int


def _form(index_bytes: int) -> _Form:
    size = 8 + index_bytes
    unpack = struct.Struct(f"<7sQ{index_bytes - 1}s7sQ{len(_METADATA_FORMAT)}s").unpack_from
    return _Form(unpack, _BROKER_HEAD.pack(BROKER_ENTRY_MAGIC, size) + b"\x08", 6 + size)


_FORMS = {8 + index_bytes: _form(index_bytes) for index_bytes in range(1, 6)}
"""By the size of the broker's metadata."""
_METADATA_SIZES = {
    _SIZE.pack(_KAFKA_HEAD_BYTES + count_bytes) + _METADATA_HEAD[:3]: 4 + _KAFKA_HEAD_BYTES + count_bytes
    for count_bytes in range(1, 6)
}


class BrokerEntryMetadata(NamedTuple):
    """What the broker notes of every entry: when it was appended (ms), and the offset of its last message."""

    broker_timestamp: int
    index: int  # type: ignore[assignment]  # PIP-70 has this name; tuple.index is not missed


class Entry(NamedTuple):
    """One entry, taken apart. ``payload`` is a view into the bytes that were read."""

    broker: BrokerEntryMetadata
    message: MessageMetadata
    payload: memoryview

    @property
    def base_offset(self) -> int:
        return self.broker.index - self.message.num_messages_in_batch + 1


# Entries come by the thousand within a millisecond.
_encode_time = lru_cache(maxsize=4)(encode_unsigned)


def broker_entry_head(broker_timestamp: int, index: int) -> bytes:
    """Return what stands before Pulsar's own bytes: magic, size, BrokerEntryMetadata."""
    body = b"\x08" + _encode_time(broker_timestamp) + b"\x10" + encode_unsigned(index)
    return _BROKER_HEAD.pack(BROKER_ENTRY_MAGIC, len(body)) + body


def kafka_message_head(publish_time: int, messages: int, *, mixed: bool = False) -> bytes:
    """Return what stands before a record batch in format ``kafka`` or ``mixed_kafka``: size and MessageMetadata."""
    marked = _METADATA_MIXED if mixed else _METADATA_FORMAT
    body = _METADATA_HEAD + _encode_time(publish_time) + marked + encode_unsigned(messages)
    return _SIZE.pack(len(body)) + body


def payload_at(data: Buffer, at: int = 0) -> int:
    """Return where the payload begins, reading sizes only; raise ``EntryCorrupt`` where no entry begins."""
    try:
        magic, size = _BROKER_HEAD.unpack_from(data, at)
        if magic != BROKER_ENTRY_MAGIC:
            raise EntryCorrupt(f"no entry begins with 0x{magic:04x}")
        at += 6 + size
        if data[at] == 0x0E and data[at + 1] == 0x01:
            at += 6
        (size,) = _SIZE.unpack_from(data, at)
    except (struct.error, IndexError):
        raise EntryCorrupt("entry is shorter than its metadata") from None
    return int(at + 4 + size)


def index_of(data: Buffer, at: int = 0) -> BrokerEntryMetadata:
    """Return the broker's metadata alone."""
    try:
        magic, size = _BROKER_HEAD.unpack_from(data, at)
    except struct.error:
        raise EntryCorrupt("entry is cut short") from None
    if magic != BROKER_ENTRY_MAGIC:
        raise EntryCorrupt(f"no entry begins with 0x{magic:04x}")
    found = {n: value for n, value in fields(data, at + 6, at + 6 + size) if isinstance(value, int)}
    try:
        return BrokerEntryMetadata(found[1], found[2])
    except KeyError:
        raise EntryCorrupt("entry without timestamp or index") from None


def read_head(data: Buffer) -> tuple[int, int]:
    """Return what `last_offset` does and, where it sees that at a glance, what `kafka_payload_at` does, else -1.

    Called for every entry that is read: in those that are written most all is constant but times and numbers.
    """
    try:
        unpack, begin, metadata_at = _FORMS[data[5]]
        found, timed, rest, head, published, form = unpack(data)
        if (
            found == begin
            and form == _METADATA_FORMAT
            and timed & _TIMED_MASK == _TIMED_BITS
            and published & _PUBLISHED_MASK == _PUBLISHED_BITS
        ):
            byte = timed >> 56
            index, shift = byte & 0x7F, 7
            for following in rest:
                if byte < 0x80:
                    break
                byte = following
                index |= (byte & 0x7F) << shift
                shift += 7
            else:
                if byte < 0x80:
                    return index, metadata_at + _METADATA_SIZES[head]
    except (IndexError, KeyError, struct.error):
        pass
    return last_offset(data), -1


def last_offset(data: Buffer) -> int:
    """Return the offset of an entry's last message; the usual form is quick."""
    try:
        # A timestamp of our century takes six bytes: five that go on, and one that does not.
        if (
            data[13] == 0x10
            and data[6] == 0x08
            and data[12] < 0x80 <= data[7] & data[8] & data[9] & data[10] & data[11]
        ):
            value, shift, at = 0, 0, 14
            while True:
                byte = data[at]
                value |= (byte & 0x7F) << shift
                if byte < 0x80:
                    return value
                shift += 7
                at += 1
    except IndexError:
        raise EntryCorrupt("entry is cut short") from None
    return index_of(data).index


def kafka_payload_at(data: memoryview) -> int:
    """Return where the payload of an entry begins that is in format ``kafka`` as it is written here, otherwise -1.

    Quick, for entries of which `read_head` did not say it already, and exact: what a Pulsar producer puts into its
    metadata cannot look like it, since `magnetar.records.pulsar_entries.open_send` refuses the property.
    """
    try:
        magic, size = _BROKER_HEAD.unpack_from(data)
        (metadata_bytes,) = _SIZE.unpack_from(data, 6 + size)
        at = 10 + size
        head = data[at : at + _KAFKA_HEAD_BYTES].tobytes()
        if (
            magic == BROKER_ENTRY_MAGIC
            and head[11:] == _METADATA_FORMAT
            and head[:5] == _METADATA_HEAD
            # a timestamp of our century takes six bytes: five that go on, and one that does not
            and head[10] < 0x80 <= head[5] & head[6] & head[7] & head[8] & head[9]
        ):
            return int(at + metadata_bytes)
    except struct.error:
        pass
    return -1


def latest_timestamp(data: memoryview) -> int:
    """Return the latest timestamp (ms) of an entry's messages; of a batch of Pulsar's, when it was published."""
    at = kafka_payload_at(data)
    if at >= 0 and at + 43 <= len(data):
        return int.from_bytes(data[at + 35 : at + 43], "big", signed=True)
    entry = decode_entry(data)
    if entry.message.entry_format in ("kafka", "mixed_kafka"):
        return read_header(entry.payload).max_timestamp
    event_time = 0 if entry.message.batched else entry.message.event_time
    return event_time if event_time > 0 else entry.message.publish_time


def decode_entry(data: Buffer) -> Entry:
    """Take a whole entry apart; raise ``EntryCorrupt`` if its metadata cannot be read."""
    view = memoryview(data)
    broker = index_of(view)
    start = payload_at(view)
    if start > len(view):
        raise EntryCorrupt("entry is shorter than its metadata")
    at = 6 + int(_BROKER_HEAD.unpack_from(view)[1])
    at += 6 if view[at] == 0x0E and view[at + 1] == 0x01 else 0
    return Entry(broker, decode_metadata(view, at + 4, start), view[start:])
