"""`explain`: everything that is known of one record, from where it lies to who has read past it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from magnetar.admin.partition_name import PartitionName
from magnetar.records.batch import LOG_APPEND_TIME, BatchHeader, PlainRecord, decode_records, read_header
from magnetar.records.entry import Entry, decode_entry
from magnetar.records.pulsar_entries import to_kafka
from magnetar.records.pulsar_metadata import Compression, MessageMetadata

if TYPE_CHECKING:
    from magnetar.kafka.coordinators.facts import Committed
    from magnetar.ledger.port import StoredEntry

PREVIEW = 200
"""How many bytes of a key, a value or a header are shown."""


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Where an entry's frame lies on disk."""

    path: str
    position: int
    size: int
    """Bytes of the frame: the entry and 16 before it."""


@dataclass(frozen=True, slots=True)
class Preview:
    """The beginning of some bytes as text; what is not UTF-8 is shown as ``\\xNN``. ``text`` None stands for null."""

    text: str | None
    size: int


@dataclass(frozen=True, slots=True)
class HeaderPreview:
    """One header of a record."""

    key: str
    value: Preview


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """What the producer's batch says about all its records. Times in ms, -1 for none."""

    base_offset: int
    last_offset: int
    records: int
    size: int
    codec: str
    timestamp_type: str
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool
    control: bool


@dataclass(frozen=True, slots=True)
class MessageFacts:
    """What Pulsar's metadata say of an entry in format ``pulsar``; ``sequence_id`` is the first message's."""

    producer_name: str
    sequence_id: int
    compression: str
    messages: int
    batched: bool
    chunk: str
    """``uuid/number/of`` of a piece of a larger message, otherwise empty."""
    encrypted: str
    """The algorithm, or empty."""
    marker: bool
    schema_version: int = -1
    """Which version of the topic's schema the producer named; -1 for none."""


@dataclass(frozen=True, slots=True)
class RecordFacts:
    """The record itself. ``sequence`` is its own number among its producer's, -1 for none."""

    timestamp: int
    sequence: int
    key: Preview
    value: Preview
    headers: tuple[HeaderPreview, ...]


@dataclass(frozen=True, slots=True)
class GroupAt:
    """How far a group has committed in the record's partition."""

    group: str
    committed: int
    commit_time: int


@dataclass(frozen=True, slots=True)
class Explained:
    """One record. Times in ms since 1970."""

    topic: str
    partition: int
    offset: int
    ledger: int
    entry: int
    batch_index: int
    entry_format: str
    append_time: int
    """When the broker took the entry."""
    publish_time: int
    entry_size: int
    file: FilePlace | None
    batch: BatchFacts | None
    """As Kafka's consumers get it; ``codec`` and ``size`` are those of what is stored."""
    record: RecordFacts | None
    """None if the batch holds no record of this offset any more."""
    transaction: str
    """``none``, or the outcome of the record's transaction."""
    groups_past: tuple[GroupAt, ...]
    groups_before: tuple[GroupAt, ...]
    message_id: str = ""
    """The record's id for Pulsar: ledger:entry:partition:batch index."""
    message: MessageFacts | None = None
    """None for an entry that Kafka's record batch fills."""


def explain(
    place: PartitionName,
    offset: int,
    stored: StoredEntry,
    file: FilePlace | None,
    committed: Mapping[str, Committed],
) -> Explained:
    """Return what the entry that holds ``offset`` says; raise ``RecordsError`` if it cannot be read.

    ``committed`` is what each group committed for this partition.
    """
    entry = decode_entry(stored.data)
    converted = entry.message.entry_format == "pulsar"
    batch = memoryview(to_kafka(stored.data))
    header = read_header(batch)
    groups = [GroupAt(group, each.offset, each.commit_timestamp) for group, each in sorted(committed.items())]
    batch_index = offset - entry.base_offset
    return Explained(
        topic=place.topic,
        partition=place.partition,
        offset=offset,
        ledger=stored.ledger_id,
        entry=stored.entry_id,
        batch_index=batch_index,
        entry_format=entry.message.entry_format,
        append_time=entry.broker.broker_timestamp,
        publish_time=entry.message.publish_time,
        entry_size=len(stored.data),
        file=file,
        batch=_pulsar_batch(header, entry) if converted else _batch(header, entry),
        record=_record(header, batch, offset),
        transaction="unknown" if header.is_transactional else "none",
        groups_past=tuple(each for each in groups if each.committed > offset),
        groups_before=tuple(each for each in groups if each.committed <= offset),
        message_id=f"{stored.ledger_id}:{stored.entry_id}:{place.partition}:{batch_index}",
        message=_message(entry.message) if converted else None,
    )


def _pulsar_batch(header: BatchHeader, entry: Entry) -> BatchFacts:
    compression = compression_name(entry.message)
    return replace(_batch(header, entry), size=len(entry.payload), codec=compression)


def compression_name(message: MessageMetadata) -> str:
    """Return the name of Pulsar's codec."""
    known = message.compression in Compression.__members__.values()
    return Compression(message.compression).name.lower() if known else str(message.compression)


def _message(message: MessageMetadata) -> MessageFacts:
    chunk = f"{_text(message.uuid)}/{message.chunk_id}/{message.num_chunks_from_msg}"
    encrypted = _text(message.encryption_algo) or "unknown"
    return MessageFacts(
        producer_name=_text(message.producer_name),
        sequence_id=message.sequence_id,
        compression=compression_name(message),
        messages=message.num_messages_in_batch,
        batched=message.batched,
        chunk=chunk if message.is_chunk else "",
        encrypted=encrypted if message.encryption_keys else "",
        marker=message.marker_type is not None,
        schema_version=int.from_bytes(message.schema_version, "big", signed=True)
        if message.schema_version
        else -1,
    )


def _text(data: bytes) -> str:
    return preview(data).text or ""


def _batch(header: BatchHeader, entry: Entry) -> BatchFacts:
    return BatchFacts(
        base_offset=entry.base_offset,
        last_offset=entry.broker.index,
        records=header.records_count,
        size=header.size,
        codec=header.codec.name,
        timestamp_type="LogAppendTime" if header.attributes & LOG_APPEND_TIME else "CreateTime",
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
    )


def _record(header: BatchHeader, batch: memoryview, offset: int) -> RecordFacts | None:
    found = next((record for record in decode_records(batch) if record.offset == offset), None)
    if found is None:
        return None
    sequence = -1
    if header.base_sequence >= 0:
        sequence = (header.base_sequence + offset - header.base_offset) & 0x7FFFFFFF
    return RecordFacts(
        timestamp=found.timestamp,
        sequence=sequence,
        key=preview(found.key),
        value=preview(found.value),
        headers=_headers(found),
    )


def _headers(record: PlainRecord) -> tuple[HeaderPreview, ...]:
    return tuple(HeaderPreview(key, preview(value)) for key, value in record.headers)


def preview(data: bytes | None) -> Preview:
    """Return the beginning of ``data`` as text that a terminal takes without harm."""
    if data is None:
        return Preview(None, 0)
    text = data[:PREVIEW].decode("utf-8", "backslashreplace")
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return Preview(shown, len(data))
