"""Entries in one world's form, given in the other's: what Kafka's Fetch and Pulsar's dispatcher ask for.

An entry is one Pulsar message id; its messages have batch indexes 0 to n-1 and the offsets ``base_offset`` to
``last_offset``, so ``offset = base_offset + batch_index`` in both directions, whatever the format. A message that is no
longer there (compacted) or that only its own world can read keeps its offset all the same:

    entry                                   for Kafka                                   for Pulsar
    kafka, mixed_kafka                      its record batches                          one batch of messages
    ... with transaction markers            as they are                                 a marker, to be skipped
    pulsar: message, batch                  one record batch, not compressed            as it is
    ... of a transaction of Pulsar's        a transactional batch, see `pulsar_transactions`  as it is
    ... the marker that ends one            Kafka's marker                              as it is, to be skipped
    ... other markers of Pulsar's brokers   a record batch without records              as it is, to be skipped
    ... a chunk of a large message          a record of the piece, see `foreign_record`  as it is
        (its readers get it whole, see `magnetar.records.chunks`)
    ... encrypted by the producer           one record of the whole, see `foreign_record`  as it is
    ... with a payload that cannot be read  the same                                    as it is

What a Pulsar producer sends is stored byte for byte: `open_send` says whether it may be, and what to tell the ledger.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from magnetar.records.batch import UNKNOWN_TIME
from magnetar.records.compression import Buffer
from magnetar.records.conversion import kafka_batch, pulsar_message
from magnetar.records.crc import MIN_COMBINED_BYTES, crc32c
from magnetar.records.errors import CorruptBatch, EntryCorrupt, InvalidRecord
from magnetar.records.pulsar_metadata import (
    BATCH_PROPERTY,
    FORMAT_PROPERTY,
    TIMESTAMP_PROPERTY,
    MessageMetadata,
    decode_metadata,
)
from magnetar.records.pulsar_plain import CHECKSUM, PulsarMessage, count_of

UNCOUNTED = 6  # magic and checksum
_SIZE = struct.Struct(">I")
_MAX_TIME = 1 << 55  # arithmetic with later times could overflow
_RESERVED = (FORMAT_PROPERTY.encode(), BATCH_PROPERTY)


class Sent(NamedTuple):
    """What a Pulsar producer sent, checked. Append ``framed`` with the other numbers: see ``ManagedLedger.append``."""

    framed: memoryview
    metadata: MessageMetadata
    messages: int
    timestamp_ms: int
    earliest_ms: int = UNKNOWN_TIME
    crc: int | None = None
    """The CRC32C of what is behind the first `UNCOUNTED` bytes of ``framed``; None if it is not worth to know it."""

    @property
    def parts(self) -> tuple[Buffer, ...]:
        """``framed``, the last part of it what ``crc`` is of."""
        return (self.framed,) if self.crc is None else (self.framed[:UNCOUNTED], self.framed[UNCOUNTED:])


MAX_FIELDS = 5000
"""Of a message's metadata, and each property is one: 5 us, at a stretch, and for Kafka's consumers once more."""


def open_send(framed: Buffer, *, num_messages: int | None = None) -> Sent:
    """Look at what follows the command in a SEND frame. It is stored as it is: ``log.append(sent.parts, ...)``.

    ``num_messages`` is what the command said, if it did. Raises ``CorruptBatch`` for a wrong checksum and
    ``EntryCorrupt`` or ``InvalidRecord`` for metadata that cannot be, by the byte where it goes wrong.
    """
    view = memoryview(framed)
    crc = _checked(view)
    at = 0 if crc is None else UNCOUNTED
    if len(view) < MIN_COMBINED_BYTES:
        crc = None
    if at + 4 > len(view):
        raise EntryCorrupt(f"{len(view)} bytes are too few for a message")
    start = at + 4
    end = start + int(_SIZE.unpack_from(view, at)[0])
    if end > len(view):
        raise EntryCorrupt(
            f"metadata at byte {start} claims {end - start} bytes; {len(view) - start} are there"
        )
    metadata = decode_metadata(view, start, end, MAX_FIELDS)
    messages = count_of(metadata, len(view) - end)
    if num_messages is not None and num_messages != messages:
        raise InvalidRecord(f"the command speaks of {num_messages} messages, their metadata of {messages}")
    reserved = [name for name, _ in metadata.properties if name in _RESERVED]
    if reserved:
        raise InvalidRecord(f"the property {reserved[0].decode()} is the broker's own")
    latest = metadata.event_time if metadata.event_time > 0 else metadata.publish_time
    return Sent(view, metadata, messages, latest, _earliest(metadata, latest), crc)


def _earliest(metadata: MessageMetadata, latest_ms: int) -> int:
    """Return the time of a message that comes alone; what times a batch has only its payload tells."""
    alone = not metadata.batched and 0 <= latest_ms < _MAX_TIME
    if not alone or any(name == TIMESTAMP_PROPERTY for name, _ in metadata.properties):
        return UNKNOWN_TIME
    return latest_ms


def _checked(view: memoryview) -> int | None:
    """Return the checksum, which holds, of what is behind it; None if there is none."""
    if bytes(view[:2]) != CHECKSUM:
        return None
    if len(view) < UNCOUNTED:
        raise EntryCorrupt(f"{len(view)} bytes are too few for a message")
    crc = int(_SIZE.unpack_from(view, 2)[0])
    if crc32c(view[UNCOUNTED:]) != crc:
        raise CorruptBatch("the message's checksum does not match")
    return crc


def to_kafka(data: Buffer) -> bytes | memoryview:
    """Return the record batches of an entry of any format, with its offsets; raise ``RecordsError``.

    In format ``kafka`` they are a view into the entry.
    """
    return kafka_batch(data)


def to_pulsar(data: Buffer) -> PulsarMessage:
    """Return an entry of any format as Pulsar's consumers expect it; raise ``RecordsError``."""
    return pulsar_message(data)
