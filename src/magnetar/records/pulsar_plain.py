"""Entries in one world's form, given in the other's, record by record: the plain form of `magnetar.records.conversion`.

It knows every case and words every fault; what is quick does the usual cases, and must come to the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from time import sleep
from typing import NamedTuple

from magnetar.records.batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    NO_LEADER_EPOCH,
    TRANSACTIONAL,
    BatchHeader,
    batches,
    seal,
)
from magnetar.records.compression import MAX_DECOMPRESSED_BYTES, Buffer, Codec, decompress
from magnetar.records.control import marker_batch
from magnetar.records.crc import crc32c
from magnetar.records.entry import Entry, decode_entry, payload_at
from magnetar.records.errors import CorruptBatch, EntryCorrupt, InvalidRecord, RecordsError, TooMuchInside
from magnetar.records.mapping import (
    RawRecord,
    decode_record,
    encode_headers,
    encode_record,
    key_of,
    partition_key_text,
    record_of,
    single_of,
)
from magnetar.records.pulsar_compression import OF_KAFKA, compress_payload, decompress_payload
from magnetar.records.pulsar_metadata import (
    BATCH_PROPERTY,
    MAX_MESSAGES,
    KafkaBatch,
    MessageMetadata,
    SingleMessageMetadata,
    decode_single,
    encode_metadata,
    encode_single,
)
from magnetar.records.pulsar_transactions import ABORT_MARKER, COMMIT_MARKER
from magnetar.records.varint import decode_zigzag

CHECKSUM = b"\x0e\x01"
MIN_SINGLE_BYTES = 6
"""The shortest message in a batch: 4 bytes of size, and the required ``payload_size``."""
_SIZE = struct.Struct(">I")
_UNKNOWN_MARKER = 0
_MAX_OUTER_KEY_BYTES = 1024  # it is there twice, and a client takes messages of a certain size only
_OFFSET = struct.Struct(">q")
_NO_TIME = 1 << 63
# Large entries are converted in threads. One that never waits gives the interpreter up each 5 ms only, and an event
# loop asks for it several times a request.
_RECORDS_BETWEEN = 250
_BREATH_S = 0.00005
_MESSAGE_COST = 64  # bytes that are copied in the time that one message takes, at least


class PulsarMessage(NamedTuple):
    """One entry as Pulsar's consumers get it."""

    framed: Buffer
    """What follows the command in a MESSAGE frame: checksum, metadata and payload."""
    metadata: Buffer
    payload: Buffer
    messages: int
    """How many batch indexes, and offsets, the entry has."""
    control: bool
    """Whether it is no message at all but a marker, which a dispatcher acknowledges itself."""


class UnreadableBatch(bytes):
    """A record batch whose one record stands for a payload that cannot be read; ``why`` tells what is wrong with it."""

    why: str


def count_of(metadata: MessageMetadata, payload_bytes: int) -> int:
    """Return how many messages there are; a count that the payload cannot hold must not take offsets."""
    messages = metadata.num_messages_in_batch
    if not metadata.batched:
        return 1
    room = metadata.uncompressed_size if metadata.compression else payload_bytes
    if metadata.encryption_keys:  # the cipher adds some; what it hides cannot be looked at
        room = max(room, payload_bytes)
    if not 0 < messages <= max(room // MIN_SINGLE_BYTES, 1):
        raise InvalidRecord(f"a batch of {messages} messages cannot be in {room} bytes")
    return messages


# --- for Kafka -------------------------------------------------------------------------------------------------


def plain_kafka_batch(data: Buffer) -> bytes | memoryview:
    """Return the record batches of an entry of any format, with its offsets; raise ``RecordsError``.

    In format ``kafka`` they are a view into the entry.
    """
    entry = decode_entry(data)
    if entry.message.entry_format == "pulsar":
        return pulsar_to_kafka(data, entry)
    _check_format(entry)
    return with_offsets(entry.payload, entry.base_offset)


def _check_format(entry: Entry) -> None:
    entry_format = entry.message.entry_format
    if entry_format not in ("kafka", "mixed_kafka"):
        raise EntryCorrupt(f"it is in entry format {entry_format!r}; known are kafka, mixed_kafka, pulsar")


def with_offsets(payload: memoryview, base_offset: int) -> bytes | memoryview:
    """Return record batches with the offsets of their entry's index, which counts whatever a producer put there."""
    at, wrong = base_offset, False
    for header, _ in batches(payload):
        wrong |= header.base_offset != at
        at += header.last_offset_delta + 1
    if not wrong:
        return payload
    out, place, at = bytearray(payload), 0, base_offset
    for header, _ in batches(payload):
        _OFFSET.pack_into(out, place, at)
        place, at = place + header.size, at + header.last_offset_delta + 1
    return bytes(out)


def pulsar_to_kafka(data: Buffer, entry: Entry) -> bytes:
    """Return the one record batch of an entry in format ``pulsar``; ``data`` is all of it.

    It is an `UnreadableBatch` where the producer's payload is not what its metadata say.
    """
    metadata, payload = entry.message, entry.payload
    messages = count_of(metadata, len(payload))
    if metadata.ends_transaction:
        return _control_batch(entry)
    if metadata.marker_type is not None:
        return record_batch(entry, messages, [])
    if metadata.encryption_keys or metadata.is_chunk:
        return record_batch(entry, messages, [foreign_record(metadata, metadata_bytes(data), payload)])
    try:
        return record_batch(entry, messages, _opened(metadata, payload, messages))
    except RecordsError as error:
        stands_for_it = foreign_record(metadata, metadata_bytes(data), payload, unreadable=str(error))
        made = UnreadableBatch(record_batch(entry, messages, [stands_for_it]))
        made.why = str(error)
        return made


def _control_batch(entry: Entry) -> bytes:
    """Return Kafka's marker for one of Pulsar's: its readers learn from it that an aborted transaction is over."""
    metadata = entry.message
    kept = metadata.kafka_batch
    assert kept is not None
    made = marker_batch(
        kept.producer_id,
        kept.producer_epoch,
        metadata.publish_time,
        committed=metadata.marker_type == COMMIT_MARKER,
        coordinator_epoch=0,
        # With an epoch, even 0, readers ask the next leader where it ended, and take what came behind for lost.
        leader_epoch=NO_LEADER_EPOCH,
    )
    return bytes(with_offsets(memoryview(made), entry.base_offset))


def unpacked_bytes(data: Buffer) -> int:
    """Return about how much there is to go through in an entry, in bytes: its content unpacked, and its messages.

    Nothing is unpacked for that. Raises ``RecordsError``.
    """
    entry = decode_entry(data)
    metadata, size = entry.message, len(entry.payload)
    if metadata.entry_format != "pulsar":
        packed = any(header.codec for header, _ in batches(entry.payload))
        size = MAX_DECOMPRESSED_BYTES if packed else size  # no header says how much that will be
    elif metadata.compression and not metadata.encryption_keys:
        size = max(size, metadata.uncompressed_size)
    return size + _MESSAGE_COST * metadata.num_messages_in_batch


def _opened(metadata: MessageMetadata, payload: Buffer, messages: int) -> Iterable[RawRecord]:
    if messages > MAX_MESSAGES:
        raise TooMuchInside(f"a batch of {messages} messages; {MAX_MESSAGES} are allowed")
    body = decompress_payload(metadata.compression, payload, metadata.uncompressed_size)
    if metadata.batched:
        return _records(metadata, body, messages)
    return [record_of(metadata, bytes(body), 0, metadata.publish_time)]


def record_batch(entry: Entry, messages: int, records: Iterable[RawRecord]) -> bytes:
    """Lay records out as the batch of an entry, one by one. Its first timestamp is the entry's publish time."""
    metadata = entry.message
    kept = metadata.kafka_batch or KafkaBatch(0, -1, -1, -1)
    attributes = kept.attributes & (LOG_APPEND_TIME | TRANSACTIONAL)
    published = metadata.publish_time
    body, count, latest = bytearray(), 0, -_NO_TIME
    for record in records:
        body += encode_record(record, published)
        count += 1
        if not count % _RECORDS_BETWEEN:
            sleep(_BREATH_S)
        latest = max(latest, record.timestamp)
    latest = latest if count else published
    header = BatchHeader(
        base_offset=entry.broker.index - messages + 1,
        length=0,
        partition_leader_epoch=NO_LEADER_EPOCH,  # a message of Pulsar's does not say
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=messages - 1,
        base_timestamp=published,
        max_timestamp=published if attributes & LOG_APPEND_TIME else latest,
        producer_id=kept.producer_id,
        producer_epoch=kept.producer_epoch,
        base_sequence=kept.base_sequence,
        records_count=count,
    )
    return seal(header, body)


def _records(metadata: MessageMetadata, body: Buffer, messages: int) -> Iterator[RawRecord]:
    for delta, single, payload in singles(body, messages):
        if not single.compacted_out:
            yield record_of(single, payload, delta, metadata.publish_time)


def singles(body: Buffer, messages: int) -> Iterator[tuple[int, SingleMessageMetadata, bytes]]:
    """Yield (batch index, metadata, payload) of each message of an uncompressed batch; raise ``EntryCorrupt``."""
    view = memoryview(body)
    at = 0
    for number in range(messages):
        if at + 4 > len(view):
            raise EntryCorrupt(f"message {number} of {messages} is cut short at byte {at} of its batch")
        start = at + 4
        end = start + int(_SIZE.unpack_from(view, at)[0])
        if end > len(view):
            raise EntryCorrupt(f"message {number}: its metadata at byte {start} runs past its batch")
        single = decode_single(view, start, end)
        at = end + single.payload_size
        if single.payload_size < 0 or at > len(view):
            raise EntryCorrupt(
                f"message {number} claims {single.payload_size} bytes at byte {end} of its batch"
            )
        yield number, single, bytes(view[end:at])
    if at != len(view):
        raise EntryCorrupt(f"{len(view) - at} bytes follow the last of {messages} messages, at byte {at}")


def metadata_bytes(data: Buffer) -> bytes:
    """Return an entry's MessageMetadata as it was written."""
    end = payload_at(data)
    at = 6 + int(_SIZE.unpack_from(data, 2)[0])
    at += 6 if bytes(data[at : at + 2]) == CHECKSUM else 0
    return bytes(data[at + 4 : end])


def foreign_record(
    metadata: MessageMetadata, written: bytes, payload: Buffer, *, unreadable: str = ""
) -> RawRecord:
    """Return a record for what the broker cannot take apart: something encrypted, broken, or a piece of a large
    message.

    Its value is the payload as it was sent (compressed as ``pulsar.metadata`` says) and has the entry's first offset;
    a batch leaves its further offsets empty. Headers: ``pulsar.encrypted`` with the algorithm, ``pulsar.chunk`` with
    ``uuid/number/of``, or ``pulsar.unreadable`` with what is wrong; and ``pulsar.metadata``, Pulsar's MessageMetadata
    in protobuf, with which a consumer that has the key, or all pieces, can do what a Pulsar consumer does.
    """
    what: tuple[bytes, bytes] = (b"pulsar.encrypted", metadata.encryption_algo)
    if unreadable:
        what = (b"pulsar.unreadable", unreadable.encode())
    elif not metadata.encryption_keys:
        number = b"%d/%d" % (metadata.chunk_id, metadata.num_chunks_from_msg)
        what = (b"pulsar.chunk", metadata.uuid + b"/" + number)
    headers = [*metadata.properties, what, (b"pulsar.metadata", written)]
    timestamp = metadata.event_time if metadata.event_time > 0 else metadata.publish_time
    return RawRecord(0, timestamp, key_of(metadata), bytes(payload), encode_headers(headers))


# --- for Pulsar ------------------------------------------------------------------------------------------------


def plain_pulsar_message(data: Buffer) -> PulsarMessage:
    """Return an entry of any format as Pulsar's consumers expect it; raise ``RecordsError``."""
    entry = decode_entry(data)
    view = memoryview(data)
    messages = entry.message.num_messages_in_batch
    if entry.message.entry_format == "pulsar":
        framed = view[6 + int(_SIZE.unpack_from(view, 2)[0]) :]
        at = 10 if bytes(framed[:2]) == CHECKSUM else 4
        end = len(framed) - len(entry.payload)
        return PulsarMessage(
            framed, framed[at:end], framed[end:], messages, entry.message.marker_type is not None
        )
    _check_format(entry)
    found = [(header, memoryview(batch)) for header, batch in batches(entry.payload)]
    if not found:
        raise CorruptBatch("an entry without a record batch")
    metadata, payload = kafka_to_pulsar(found, entry.message.publish_time, messages)
    return framed_message(encode_metadata(metadata), payload, messages, metadata.marker_type is not None)


def framed_message(metadata: bytes, payload: Buffer, messages: int, control: bool = False) -> PulsarMessage:
    """Put metadata and payload together, with their checksum, as SEND and MESSAGE frames hold them."""
    framed = bytearray(10 + len(metadata) + len(payload))
    framed[:2] = CHECKSUM
    _SIZE.pack_into(framed, 6, len(metadata))
    framed[10 : 10 + len(metadata)] = metadata
    framed[10 + len(metadata) :] = payload
    view = memoryview(framed)
    _SIZE.pack_into(framed, 2, crc32c(view[6:]))
    view = view.toreadonly()
    return PulsarMessage(view, view[10 : 10 + len(metadata)], view[10 + len(metadata) :], messages, control)


def kafka_to_pulsar(
    found: Sequence[tuple[BatchHeader, memoryview]],
    append_time: int,
    messages: int,
    codec: Codec | None = None,
) -> tuple[MessageMetadata, Buffer]:
    """Return metadata and payload of record batches: one Pulsar batch, under ``codec`` or else that of the first."""
    header = found[0][0]
    codec = header.codec if codec is None else codec
    if header.is_control:
        return _marker(header, found[0][1], append_time, messages), b""
    body = bytearray()
    for each, batch in found:
        for number, single in enumerate(_singles_of(each, batch), 1):
            body += single
            if not number % _RECORDS_BETWEEN:
                sleep(_BREATH_S)
    latest = max(each.max_timestamp for each, _ in found)
    there = (single for _, single, _ in singles(body, messages) if not single.compacted_out)
    first = next(there, None)
    metadata = batch_metadata(
        header, messages, latest if latest > 0 else append_time, codec, len(body),
        key=None if first is None else first.ordering_key,
    )  # fmt: skip
    return metadata, compress_payload(metadata.compression, body)


def batch_metadata(
    header: BatchHeader, messages: int, publish_time: int, codec: Codec, size: int, *, key: bytes | None
) -> MessageMetadata:
    """Return the metadata of a batch of messages that Kafka's producer sent, ``size`` bytes uncompressed.

    ``key`` is that of its first message, which a batch carries outside as well, as those of Pulsar's clients do.
    """
    if key is not None and len(key) > _MAX_OUTER_KEY_BYTES:
        key = None  # whoever needs it opens the batch
    text, in_base64 = partition_key_text(key)
    idempotent = header.producer_id >= 0
    name = f"kafka-{header.producer_id}-{header.producer_epoch}" if idempotent else "kafka"
    kept = KafkaBatch(
        header.attributes & ~0x07, header.producer_id, header.producer_epoch, header.base_sequence
    )
    says_more = idempotent or kept.attributes
    compression = OF_KAFKA[codec]
    return MessageMetadata(
        producer_name=name.encode(),
        sequence_id=header.base_sequence if idempotent else 0,
        highest_sequence_id=header.last_sequence if idempotent else 0,
        publish_time=publish_time,
        properties=((BATCH_PROPERTY, kept.encode()),) if says_more else (),
        partition_key=text,
        partition_key_b64_encoded=in_base64,
        ordering_key=key,
        compression=compression,
        uncompressed_size=size if compression else 0,
        num_messages_in_batch=messages,
        batched=True,
    )


def _singles_of(header: BatchHeader, batch: memoryview) -> Iterator[bytes]:
    """Yield each record of a batch as a message; offsets without a record become messages compacted out."""
    due = 0
    for record in _raw_records(header, batch):
        if not due <= record.delta <= header.last_offset_delta:
            raise InvalidRecord(f"offset delta {record.delta} where {due} is due")
        for _ in range(due, record.delta):
            yield COMPACTED_OUT
        due = record.delta + 1
        sequence = (header.base_sequence + record.delta) & 0x7FFFFFFF if header.producer_id >= 0 else None
        yield _single(single_of(record, sequence)) + (record.value or b"")
    for _ in range(due, header.last_offset_delta + 1):
        yield COMPACTED_OUT


def _single(single: SingleMessageMetadata) -> bytes:
    written = encode_single(single)
    return _SIZE.pack(len(written)) + written


COMPACTED_OUT = _single(SingleMessageMetadata(compacted_out=True))
"""What stands in a batch for a message that is not there any more."""


def _raw_records(header: BatchHeader, batch: memoryview) -> Iterator[RawRecord]:
    body = bytes(decompress(header.codec, batch[HEADER_BYTES:]))
    at = 0
    for number in range(header.records_count):
        length, at = decode_zigzag(body, at)
        if length < 0 or at + length > len(body):
            raise InvalidRecord(f"record {number} at byte {at} claims more bytes than its batch holds")
        record = decode_record(body[at : at + length], header.base_timestamp)
        if header.attributes & LOG_APPEND_TIME:
            record = record._replace(timestamp=header.max_timestamp)
        yield record
        at += length
    if at != len(body):
        raise InvalidRecord(f"{len(body) - at} bytes follow the last record")


def _marker(header: BatchHeader, batch: memoryview, append_time: int, messages: int) -> MessageMetadata:
    """Return a transaction's end as Pulsar marks it; the producer id and epoch make the transaction's id, as in KoP."""
    kind = _UNKNOWN_MARKER
    for record in _raw_records(header, batch):
        if record.key is not None and len(record.key) >= 4:
            kind = COMMIT_MARKER if record.key[2:4] == b"\0\1" else ABORT_MARKER
    return MessageMetadata(
        producer_name=f"kafka-{header.producer_id}-{header.producer_epoch}".encode(),
        publish_time=header.max_timestamp if header.max_timestamp > 0 else append_time,
        num_messages_in_batch=messages,
        batched=True,
        marker_type=kind,
    )
