"""Entry formats at work: what a producer's batch is stored as; for what consumers get see `conversions`."""

from __future__ import annotations

import asyncio
from typing import NamedTuple, TypeAlias

from magnetar.ledger.port import StoredEntry
from magnetar.records.batch import BatchHeader, read_header
from magnetar.records.check import check_and_open
from magnetar.records.compression import Buffer, Codec
from magnetar.records.entry import decode_entry, kafka_payload_at
from magnetar.records.mixed_kafka import with_relative_offsets

Batch: TypeAlias = bytes | memoryview
KAFKA, MIXED_KAFKA, PULSAR = "kafka", "mixed_kafka", "pulsar"
_INLINE_BYTES = 64 << 10  # more than this is converted in a thread, while the event loop goes on
_INLINE_RECORDS = 1000


class CheckedBatch(NamedTuple):
    """A producer's batch that may be stored, its header, the earliest timestamp (ms) of its records, and these.

    ``body`` has them decompressed, if that may be of use.
    """

    data: memoryview
    header: BatchHeader
    earliest_ms: int
    body: memoryview | None = None


def checked(data: memoryview, entry_format: str, *, hurried: bool = False) -> CheckedBatch:
    """Check a producer's batch for a topic of this format; raise ``RecordsError``.

    ``hurried`` raises ``TakesLong`` rather than spend more than a few milliseconds.
    """
    if entry_format == MIXED_KAFKA:
        return CheckedBatch(*with_relative_offsets(data, hurried=hurried))
    header, body, earliest_ms = check_and_open(data, hurried=hurried)
    return CheckedBatch(data, header, earliest_ms, body if entry_format == PULSAR else None)


async def pulsar_framed(batch: CheckedBatch, now_ms: int, codec: Codec) -> Buffer:
    """Return what a batch is stored as in format ``pulsar``, behind the broker's entry metadata."""
    from magnetar.records.conversion import framed_batch  # most brokers never convert anything

    data, header, _, body = batch
    size = len(data if body is None else body)
    if size <= _INLINE_BYTES and header.records_count <= _INLINE_RECORDS:
        return framed_batch(data, header, now_ms, codec, body)
    return await asyncio.get_running_loop().run_in_executor(
        None, framed_batch, data, header, now_ms, codec, body
    )


def producer_header(entry: StoredEntry) -> BatchHeader | None:
    """Return the header of the batch that a Kafka producer sent, or None if it was another's. No record is read."""
    at = kafka_payload_at(entry.data)
    if at >= 0:
        return read_header(entry.data, at)
    found = decode_entry(entry.data)
    if found.message.entry_format != PULSAR:
        return read_header(found.payload)._replace(base_offset=found.base_offset)
    kept = found.message.kafka_batch
    if kept is None:
        return None
    return BatchHeader(
        base_offset=found.base_offset,
        length=0,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=kept.attributes,
        last_offset_delta=found.message.num_messages_in_batch - 1,
        base_timestamp=found.message.publish_time,
        max_timestamp=found.message.publish_time,
        producer_id=kept.producer_id,
        producer_epoch=kept.producer_epoch,
        base_sequence=kept.base_sequence,
        records_count=found.message.num_messages_in_batch,
    )
