"""Entry formats at work: what a producer's batch is stored as; for what consumers get see `conversions`."""

from __future__ import annotations

import asyncio
from typing import NamedTuple, TypeAlias

from magnetar.records.batch import BatchHeader
from magnetar.records.check import check_and_open
from magnetar.records.compression import Buffer, Codec
from magnetar.records.mixed_kafka import with_relative_offsets
from magnetar.records.tuples import maker

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


_checked_batch = maker(CheckedBatch)


def checked(data: memoryview, entry_format: str, *, hurried: bool = False) -> CheckedBatch:
    """Check a producer's batch for a topic of this format; raise ``RecordsError``.

    ``hurried`` raises ``TakesLong`` rather than spend more than a few milliseconds.
    """
    if entry_format == MIXED_KAFKA:
        return CheckedBatch(*with_relative_offsets(data, hurried=hurried))
    data, header, body, earliest_ms = check_and_open(data, hurried=hurried)
    return _checked_batch((data, header, earliest_ms, body if entry_format == PULSAR else None))


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
