"""Entry formats at work: what a producer's batch is stored as, and what a consumer gets of entries of any format.

A batch in format ``kafka`` is neither copied nor looked at here. What has to be converted is, as a whole batch; large
ones away from the event loop, and what was converted for one consumer is kept for the next, up to a bound.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from magnetar.ledger.port import StoredEntry
from magnetar.records.batch import BatchHeader, read_header
from magnetar.records.check import TakesLong, check_and_open, check_batch
from magnetar.records.compression import Buffer, Codec
from magnetar.records.entry import decode_entry, kafka_payload_at
from magnetar.records.errors import CorruptBatch, RecordsError
from magnetar.records.mixed_kafka import with_relative_offsets

_log = logging.getLogger("magnetar.kafka")

Batch: TypeAlias = bytes | memoryview
KAFKA, MIXED_KAFKA, PULSAR = "kafka", "mixed_kafka", "pulsar"
CACHED_BYTES = 16 << 20
_INLINE_BYTES = 64 << 10  # more than this is converted in a thread, while the event loop goes on
_INLINE_RECORDS = 1000
_MOST_TOLD = 1000


class Checked(NamedTuple):
    """A producer's batch that may be stored, its header, and its records where they are at hand decompressed."""

    data: memoryview
    header: BatchHeader
    body: memoryview | None = None


async def checked(data: memoryview, entry_format: str) -> Checked:
    """Check a producer's batch for a topic of this format; raise ``RecordsError``."""
    check = {KAFKA: _check, MIXED_KAFKA: _check_mixed, PULSAR: _check_and_open}[entry_format]
    try:
        return check(data, hurried=True)
    except TakesLong:
        return await asyncio.get_running_loop().run_in_executor(None, check, data)


def _check(data: memoryview, *, hurried: bool = False) -> Checked:
    return Checked(data, check_batch(data, hurried=hurried))


def _check_and_open(data: memoryview, *, hurried: bool = False) -> Checked:
    return Checked(data, *check_and_open(data, hurried=hurried))


def _check_mixed(data: memoryview, *, hurried: bool = False) -> Checked:
    return Checked(*with_relative_offsets(data, hurried=hurried))


async def pulsar_framed(batch: Checked, now_ms: int, codec: Codec) -> Buffer:
    """Give what a batch is stored as in format ``pulsar``, behind the broker's entry metadata."""
    from magnetar.records.conversion import framed_batch  # most brokers never convert anything

    data, header, body = batch
    size = len(data if body is None else body)
    if size <= _INLINE_BYTES and header.records_count <= _INLINE_RECORDS:
        return framed_batch(data, header, now_ms, codec, body)
    return await asyncio.get_running_loop().run_in_executor(
        None, framed_batch, data, header, now_ms, codec, body
    )


class Conversions:
    """Record batches of entries in other formats than ``kafka``; the newest stay at hand, by ledger and entry id."""

    def __init__(self, most_bytes: int = CACHED_BYTES) -> None:
        self._most_bytes = most_bytes
        self._kept: OrderedDict[tuple[int, int], Batch] = OrderedDict()
        self._told: set[tuple[int, int]] = set()
        self.bytes = 0

    async def batches_of(self, entries: Sequence[StoredEntry], max_bytes: int = 1 << 62) -> list[Batch]:
        """Give each entry's record batches, up to ``max_bytes`` but one at least, or up to one that cannot be read.

        Raises ``RecordsError`` if it is the first that cannot be read.
        """
        found: list[Batch | None] = []
        missing: list[StoredEntry] = []
        for entry in entries:
            at = kafka_payload_at(entry.data)
            batch: Batch | None = entry.data[at:] if at >= 0 else self._take(entry)
            found.append(batch)
            if batch is None:
                missing.append(entry)
        made = iter(await self._made(missing, max_bytes)) if missing else iter(())
        out: list[Batch] = []
        size = 0
        for batch in found:
            result = next(made, None) if batch is None else batch
            if isinstance(result, RecordsError) and not out:
                raise result
            if result is None or isinstance(result, RecordsError) or (out and size + len(result) > max_bytes):
                break
            out.append(result)
            size += len(result)
        return out

    async def _made(self, entries: list[StoredEntry], max_bytes: int) -> list[Batch | RecordsError]:
        if sum(len(entry.data) for entry in entries) <= _INLINE_BYTES:
            made = convert(entries, max_bytes)
        else:
            made = await asyncio.get_running_loop().run_in_executor(None, convert, entries, max_bytes)
        for entry, result in zip(entries, made, strict=False):  # it ends where there is enough
            if isinstance(result, RecordsError):
                self._tell(entry, result)
            else:
                self._keep(entry, result)
        return made

    def _tell(self, entry: StoredEntry, error: RecordsError) -> None:
        """Log an entry that cannot be read, once: consumers ask for it again and again."""
        key = entry.ledger_id, entry.entry_id
        if key not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(key)
            _log.warning("offsets up to %d cannot be given to consumers: %s", entry.last_offset, error)

    def _take(self, entry: StoredEntry) -> Batch | None:
        key = entry.ledger_id, entry.entry_id
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
        return kept

    def _keep(self, entry: StoredEntry, batch: Batch) -> None:
        key = entry.ledger_id, entry.entry_id
        if key in self._kept:
            return
        self._kept[key] = batch
        self.bytes += len(batch)
        while self.bytes > self._most_bytes:
            self.bytes -= len(self._kept.popitem(last=False)[1])


def convert(entries: Sequence[StoredEntry], max_bytes: int) -> list[Batch | RecordsError]:
    """Give each entry's record batches, or why there are none, until there are ``max_bytes`` of them.

    The words of an error name ledger and entry.
    """
    from magnetar.records.conversion import kafka_batch

    results: list[Batch | RecordsError] = []
    for entry in entries:
        try:
            batch = kafka_batch(entry.data)
        except RecordsError as error:
            results.append(CorruptBatch(f"entry {entry.ledger_id}:{entry.entry_id} cannot be read: {error}"))
            break
        results.append(batch)
        max_bytes -= len(batch)
        if max_bytes <= 0:
            break
    return results


def batch_of(entry: StoredEntry) -> Batch:
    """Give the record batches of one entry; raise ``RecordsError``."""
    at = kafka_payload_at(entry.data)
    if at >= 0:
        return entry.data[at:]
    (result,) = convert([entry], 1)
    if isinstance(result, RecordsError):
        raise result
    return result


def producer_header(entry: StoredEntry) -> BatchHeader | None:
    """Give the header of the batch that a Kafka producer sent, or None if it was another's. No record is read."""
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
