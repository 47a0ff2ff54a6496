"""ListOffsets: which offset stands for a moment, or for one of the named places of a log."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from magnetar.auth import Right
from magnetar.kafka.handlers.asked import check_epoch, find_partition, refusal_of
from magnetar.kafka.partitions.conversions import batch_of
from magnetar.kafka.partitions.partition import Partition
from magnetar.ledger.looking import has_large_metadata
from magnetar.ledger.port import ManagedLedger, StoredEntry
from magnetar.records.batch import PlainRecord, each_record
from magnetar.records.pulsar_plain import unpacked_bytes
from magnetar.serving.pace import paced
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest
from magnetar.wire.kafka.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from magnetar.wire.kafka.primitives import ZERO_UUID

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

READ_COMMITTED = 1
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
_FIRST_WITH_LEADER_EPOCH = 4
_INLINE_BYTES = 64 << 10  # more than this is looked through in a thread
_FIRST_WITH = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


async def list_offsets(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    """Answer for each partition; nothing past what the client may read is ever told."""
    committed = request.isolation_level == READ_COMMITTED
    if (ahead := context.kafka.partitions.ahead) is not None:
        named = (
            (topic.name, ZERO_UUID, row.partition_index)
            for topic in request.topics
            for row in topic.partitions
        )
        ahead.want_all(named, context.access, Right.see)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    await _answer_one(topic.name, each, context, committed)
                    async for each in paced(topic.partitions)
                ],
            )
            async for topic in paced(request.topics)
        ]
    )


async def _answer_one(
    name: str, asked: ListOffsetsPartition, context: RequestContext, committed: bool
) -> ListOffsetsPartitionResponse:
    row = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    try:
        partition = await find_partition(context, name, ZERO_UUID, asked.partition_index)
        row.error_code = check_epoch(asked.current_leader_epoch, partition)
        if asked.timestamp < 0 and context.api_version < _FIRST_WITH.get(asked.timestamp, 0):
            row.error_code = ErrorCode.UNSUPPORTED_VERSION
        if not row.error_code:
            end = partition.log.last_stable_offset if committed else partition.log.high_watermark
            await _look_up(row, partition, asked.timestamp, end)
            if (
                asked.timestamp >= 0 or asked.timestamp == MAX_TIMESTAMP
            ) and row.offset >= end:  # what was found is not decided yet
                row.offset = row.timestamp = row.leader_epoch = -1
        if context.api_version < _FIRST_WITH_LEADER_EPOCH:
            row.leader_epoch = -1
    except Exception as error:
        row.error_code = refusal_of(name, row.partition_index, error)
    return row


async def _look_up(row: ListOffsetsPartitionResponse, partition: Partition, timestamp: int, end: int) -> None:
    log, epochs = partition.log, partition.epochs
    if timestamp == LATEST:
        row.offset, row.leader_epoch = end, epochs.latest
    elif timestamp == EARLIEST:
        row.offset, row.leader_epoch = log.log_start_offset, epochs.of(log.log_start_offset)
    elif timestamp in _OF_TIERS:
        row.offset = _OF_TIERS[timestamp](log)
        row.leader_epoch = epochs.of(row.offset) if row.offset >= 0 else -1
    elif timestamp == MAX_TIMESTAMP:
        await _fill(row, partition, await log.find_max_timestamp(), None)
    elif timestamp >= 0:
        await _fill(row, partition, await log.find_by_time(timestamp), timestamp)
    else:
        row.error_code = ErrorCode.UNSUPPORTED_VERSION


def _earliest_local(log: ManagedLedger) -> int:
    """Return the first offset that lies here, and not in tiered storage alone (KIP-405)."""
    behind = max((each.last_offset + 1 for each in log.ledgers() if each.offloaded), default=0)
    return max(log.log_start_offset, behind)


def _latest_tiered(log: ManagedLedger) -> int:
    """Return the last offset that tiered storage has, -1 where it has none (KIP-1005)."""
    there = (each.last_offset for each in log.ledgers() if each.offload and each.offload.complete)
    found = max(there, default=-1)
    return found if found >= log.log_start_offset else -1


def _earliest_pending(log: ManagedLedger) -> int:
    """Return the first offset that is still to go to tiered storage, -1 where nothing does (KIP-1023)."""
    latest = _latest_tiered(log)
    return -1 if latest < 0 else latest + 1


_OF_TIERS = {
    EARLIEST_LOCAL: _earliest_local,
    LATEST_TIERED: _latest_tiered,
    EARLIEST_PENDING_UPLOAD: _earliest_pending,
}


async def _fill(
    row: ListOffsetsPartitionResponse, partition: Partition, entry: StoredEntry | None, timestamp: int | None
) -> None:
    """Find the record within the entry: the first one of that time or later, or the latest of all.

    Batches of Pulsar's producers are found by when they were published; their records' event times may lie before
    that, and then a later entry holds the record.
    """
    log = partition.log
    while entry is not None:
        if not has_large_metadata(entry) and unpacked_bytes(entry.data) <= _INLINE_BYTES:
            wanted = _wanted(entry, log.log_start_offset, timestamp)
        else:  # a few KB may hold a million records, or thousands of properties
            loop = asyncio.get_running_loop()
            wanted = await loop.run_in_executor(None, _wanted, entry, log.log_start_offset, timestamp)
        if wanted is not None:
            row.offset, row.timestamp = wanted.offset, wanted.timestamp
            row.leader_epoch = partition.epochs.of(wanted.offset)
            return
        following = max(entry.last_offset + 1, log.log_start_offset)
        entry = next(iter(await log.read(following, max_bytes=1)), None) if timestamp is not None else None


def _wanted(entry: StoredEntry, first_offset: int, timestamp: int | None) -> PlainRecord | None:
    """Return the first record of that time or later or, without one, the latest of all; None for none."""
    records = (record for record in each_record(batch_of(entry)) if record.offset >= first_offset)
    if timestamp is None:
        return max(records, key=lambda record: record.timestamp, default=None)
    return next((record for record in records if record.timestamp >= timestamp), None)
