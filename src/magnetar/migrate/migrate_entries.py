"""One entry from before the index, as it is written with one: the broker's entry metadata is put in front of it.

    before   [0x0e01, CRC32C] metadata size, MessageMetadata, payload
    after    0x0e02, size, BrokerEntryMetadata (publish time, offset of the last message), then the same bytes

A Kafka record batch gets its base offset and leader epoch filled in, which its CRC leaves out (decision 5); every other
byte stays. Each entry is checked whole: what could not be read afterwards is refused before anything is changed.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from magnetar.records.check import check_batch
from magnetar.records.crc import crc32c
from magnetar.records.entry import BROKER_ENTRY_MAGIC, CHECKSUM_MAGIC, broker_entry_head, latest_timestamp
from magnetar.records.errors import CorruptBatch, EntryCorrupt, InvalidRecord
from magnetar.records.pulsar_entries import to_kafka
from magnetar.records.pulsar_metadata import MessageMetadata, decode_metadata
from magnetar.records.pulsar_plain import count_of

_MAGIC = struct.Struct(">H")
_SIZE = struct.Struct(">I")
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_EPOCH_AT = 12


class OldEntry(NamedTuple):
    """An entry taken apart. ``framed`` is all of it; the metadata's size stands at ``at``, the payload behind."""

    framed: memoryview
    at: int
    payload_at: int
    message: MessageMetadata
    messages: int

    @property
    def is_kafka(self) -> bool:
        return self.message.entry_format != "pulsar"


class Indexed(NamedTuple):
    """An entry with its index, and its latest timestamp in ms."""

    data: bytes
    timestamp_ms: int


def has_index(entry: memoryview) -> bool:
    """Return whether an entry begins with the broker's entry metadata."""
    return len(entry) >= 2 and _MAGIC.unpack_from(entry)[0] == BROKER_ENTRY_MAGIC


def open_old(entry: memoryview) -> OldEntry:
    """Check an entry as far as it can be without its offset; raise ``RecordsError``."""
    if has_index(entry):
        raise InvalidRecord("it has an index already, unlike the entries before it")
    at = _behind_checksum(entry)
    if at + 4 > len(entry):
        raise EntryCorrupt(f"{len(entry)} bytes are too few for a message")
    start = at + 4
    end = start + int(_SIZE.unpack_from(entry, at)[0])
    if end > len(entry):
        raise EntryCorrupt(f"its metadata claims {end - start} bytes; {len(entry) - start} are there")
    message = decode_metadata(entry, start, end)
    if message.entry_format == "pulsar":
        return OldEntry(entry, at, end, message, count_of(message, len(entry) - end))
    header = check_batch(entry[end:])
    if header.records_count != message.num_messages_in_batch:
        raise EntryCorrupt(
            f"its metadata speaks of {message.num_messages_in_batch} records, its batch has {header.records_count}"
        )
    return OldEntry(entry, at, end, message, header.records_count)


def indexed(old: OldEntry, first_offset: int) -> Indexed:
    """Return the entry with its index; raise ``RecordsError`` if it could not be read afterwards."""
    head = broker_entry_head(old.message.publish_time, first_offset + old.messages - 1)
    body: bytes | bytearray | memoryview = old.framed
    if old.is_kafka:
        body = bytearray(old.framed)
        _BASE_OFFSET.pack_into(body, old.payload_at, first_offset)
        _LEADER_EPOCH.pack_into(body, old.payload_at + _EPOCH_AT, 0)
        if old.at:
            _SIZE.pack_into(body, 2, crc32c(memoryview(body)[6:]))
    data = head + bytes(body)
    if not old.is_kafka:
        to_kafka(data)
    return Indexed(data, latest_timestamp(memoryview(data)))


def _behind_checksum(entry: memoryview) -> int:
    """Return where the metadata's size stands, behind a checksum that holds if there is one."""
    if len(entry) < 6 or _MAGIC.unpack_from(entry)[0] != CHECKSUM_MAGIC:
        return 0
    if crc32c(entry[6:]) != _SIZE.unpack_from(entry, 2)[0]:
        raise CorruptBatch("its checksum does not match")
    return 6
