"""What compaction must know of an entry, whatever its format: each message's key, and whether it has a value.

The key is Pulsar's partition key, decoded, or for messages that have only that the ordering key.

Some entries stay or go as they are, undivided: the markers that end transactions, what an aborted transaction wrote,
the pieces of chunked messages, and what cannot be opened: batches encrypted by their producer, what cannot be read, and
what is of a transaction of which nobody knows how it ended.

Where numba is installed, rows are arrays that `magnetar.records.kernels.compaction` fills and reads, otherwise lists.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple

from magnetar.records.aborted import UNKNOWN, Decided
from magnetar.records.batch import CONTROL, HEADER_BYTES, NO_PRODUCER, TRANSACTIONAL, BatchHeader, batches
from magnetar.records.compression import Buffer, decompress
from magnetar.records.entry import Entry, decode_entry
from magnetar.records.mapping import decode_record, partition_key_of
from magnetar.records.pulsar_compression import decompress_payload
from magnetar.records.pulsar_metadata import MAX_MESSAGES, MessageMetadata, SingleMessageMetadata
from magnetar.records.pulsar_plain import singles, with_offsets
from magnetar.records.varint import decode_zigzag

START, END, DELTA, KEY_AT, KEY_SIZE, VALUE_SIZE, TIME = range(7)
NULL, GONE = -1, -2
_PAYLOAD_SIZE = struct.Struct(">I")
_SPECIAL = TRANSACTIONAL | CONTROL


class EntryBatch(NamedTuple):
    """One batch of an entry. ``rows`` tell of each message: see `magnetar.records.kernels.compaction`."""

    data: Buffer
    """What the rows' places are in."""
    rows: Any
    base_offset: int
    header: BatchHeader | None
    """Of a Kafka batch."""
    batch: Buffer
    """As it is stored."""


class OpenedEntry(NamedTuple):
    """An entry with its messages laid open."""

    entry: Entry
    parts: tuple[EntryBatch, ...]
    producer_id: int = NO_PRODUCER
    """Whose transaction, which is committed, it is of; `NO_PRODUCER` for none."""


class EntryKind(Enum):
    """Why an entry stays or goes as it is."""

    HELD = auto()
    """Nobody knows which keys are in it, or whether they count."""
    ABORTED = auto()
    """An aborted transaction wrote it: it goes."""
    MARKER = auto()
    """It ends a transaction."""
    PIECE = auto()
    """A piece of a chunked message."""
    OTHER = auto()
    """What brokers write for each other: no consumer gets it."""


class MessagePiece(NamedTuple):
    """Which piece of which chunked message an entry is; the whole message has the key that each piece says."""

    uuid: bytes
    number: int
    of: int
    said: tuple[int, int, int]
    """What its producer says of the whole message in each piece: its sequence id, its size, its size uncompressed."""
    key: bytes | None


class UndividedEntry(NamedTuple):
    """An entry that stays or goes as it is."""

    kind: EntryKind
    messages: int
    producer_id: int = NO_PRODUCER
    """Whose transaction it is of, or ends."""
    piece: MessagePiece | None = None


def open_entry(data: Buffer, decided: Decided = UNKNOWN, machine: Any = None) -> OpenedEntry | UndividedEntry:
    """Lay an entry's messages open, unless it stays or goes as it is; raise ``RecordsError``."""
    entry = decode_entry(data)
    if entry.message.entry_format == "pulsar":
        return _open_pulsar(entry, decided, machine)
    payload = memoryview(with_offsets(entry.payload, entry.base_offset))
    parts: list[EntryBatch] = []
    producer_id = NO_PRODUCER
    for header, batch in batches(payload):
        if header.attributes & _SPECIAL:
            found = _undivided(header.attributes, header.producer_id, header.base_offset, decided)
            is_whole = len(batch) == len(payload)
            if found is not None or not is_whole:  # what is of several writers at once cannot be told apart
                messages = entry.message.num_messages_in_batch
                kind = found if found is not None and is_whole else EntryKind.HELD
                return UndividedEntry(kind, messages, header.producer_id)
            producer_id = header.producer_id
        body = decompress(header.codec, batch[HEADER_BYTES:])
        parts.append(EntryBatch(body, _record_rows(body, header, machine), header.base_offset, header, batch))
    if not parts:
        return UndividedEntry(EntryKind.HELD, entry.message.num_messages_in_batch)
    return OpenedEntry(entry, tuple(parts), producer_id)


def _undivided(attributes: int, producer_id: int, offset: int, decided: Decided) -> EntryKind | None:
    """Return what a batch of these attributes is, or None for one of a committed transaction."""
    if attributes & CONTROL:
        return EntryKind.MARKER if attributes & TRANSACTIONAL else EntryKind.OTHER
    aborted = decided.is_aborted(producer_id, offset)
    if aborted is None:
        return EntryKind.HELD
    return EntryKind.ABORTED if aborted else None


def _record_rows(body: memoryview, header: BatchHeader, machine: Any) -> Any:
    if machine is not None and 0 <= header.records_count <= len(body):
        rows = machine.np.empty((header.records_count, machine.ROW_FIELDS), machine.np.int64)
        if machine.record_rows(machine.np.frombuffer(body, machine.np.uint8), rows):
            return rows
    return as_rows(list(_plain_record_rows(bytes(body), header)), machine)


def _plain_record_rows(body: bytes, header: BatchHeader) -> Iterator[tuple[int, ...]]:
    at = 0
    for _ in range(header.records_count):
        size, first = decode_zigzag(body, at)
        end = first + size
        record = decode_record(body[first:end], 0)
        _, behind = decode_zigzag(body, first + 1, most_bytes=10)
        _, behind = decode_zigzag(body, behind)
        key_size, key = decode_zigzag(body, behind)
        value_size = NULL if record.value is None else len(record.value)
        yield at, end, record.delta, key, key_size, value_size, record.timestamp
        at = end


def _open_pulsar(entry: Entry, decided: Decided, machine: Any) -> OpenedEntry | UndividedEntry:
    metadata, producer_id = entry.message, NO_PRODUCER
    messages = metadata.num_messages_in_batch
    # Most messages are single ones of no transaction: they say nothing of the kind.
    kept = metadata.kafka_batch if metadata.batched or metadata.txnid_least_bits is not None else None
    if metadata.marker_type is not None:
        if kept is None or not metadata.ends_transaction:
            return UndividedEntry(EntryKind.OTHER, messages)
        return UndividedEntry(EntryKind.MARKER, messages, kept.producer_id)
    if kept is not None and kept.attributes & _SPECIAL:
        producer_id = kept.producer_id
        found = _undivided(kept.attributes, producer_id, entry.base_offset, decided)
        if found is not None:
            return UndividedEntry(found, messages, producer_id)
    if metadata.is_chunk and not metadata.batched:
        return UndividedEntry(EntryKind.PIECE, messages, producer_id, _piece(metadata))
    if metadata.is_chunk or (
        metadata.batched and (metadata.encryption_keys or metadata.num_messages_in_batch > MAX_MESSAGES)
    ):
        return UndividedEntry(EntryKind.HELD, messages, producer_id)
    return OpenedEntry(entry, (_pulsar_batch(entry, machine),), producer_id)


def _piece(metadata: MessageMetadata) -> MessagePiece:
    said = metadata.sequence_id, metadata.total_chunk_msg_size, metadata.uncompressed_size
    number, of = metadata.chunk_id, metadata.num_chunks_from_msg
    return MessagePiece(metadata.uuid, number, of, said, _key_of(metadata))


def _pulsar_batch(entry: Entry, machine: Any) -> EntryBatch:
    metadata = entry.message
    if not metadata.batched:
        key = _key_of(metadata)
        size = NULL if metadata.null_value else len(entry.payload)
        return EntryBatch(key or b"", key_rows(key, size, machine), entry.base_offset, None, entry.payload)
    body = decompress_payload(metadata.compression, entry.payload, metadata.uncompressed_size)
    messages = metadata.num_messages_in_batch
    if machine is not None and 0 < messages <= len(body):
        rows = machine.np.empty((messages, machine.ROW_FIELDS), machine.np.int64)
        if machine.single_rows(machine.np.frombuffer(body, machine.np.uint8), rows):
            return EntryBatch(body, rows, entry.base_offset, None, entry.payload)
    return _plain_singles(bytes(body), messages, entry, machine)


def key_rows(key: bytes | None, size: int, machine: Any) -> Any:
    """Return the row of one message by itself, whose batch is its key alone."""
    return as_rows([(0, 0, 0, 0, NULL if key is None else len(key), size, 0)], machine)


def _plain_singles(body: bytes, messages: int, entry: Entry, machine: Any) -> EntryBatch:
    rows, keys, at, behind = [], [], 0, len(body)
    for number, single, payload in singles(body, messages):
        end = at + 4 + int(_PAYLOAD_SIZE.unpack_from(body, at)[0]) + single.payload_size
        key = _key_of(single)
        size = GONE if single.compacted_out else NULL if single.null_value else len(payload)
        rows.append((at, end, number, behind, NULL if key is None else len(key), size, 0))
        keys.append(key or b"")
        at, behind = end, behind + len(key or b"")
    return EntryBatch(body + b"".join(keys), as_rows(rows, machine), entry.base_offset, None, entry.payload)


def _key_of(message: MessageMetadata | SingleMessageMetadata) -> bytes | None:
    if message.partition_key is None or message.null_partition_key:
        return message.ordering_key
    return partition_key_of(message)


def as_rows(rows: Sequence[tuple[int, ...]], machine: Any) -> Any:
    """Return rows as machine code takes them, or as they are."""
    if machine is None:
        return rows
    return machine.np.array(rows, machine.np.int64).reshape(len(rows), machine.ROW_FIELDS)
