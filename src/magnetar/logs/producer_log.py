"""What a log says of Kafka's producers, and of transactions: by the snapshot that it keeps, and the entries since."""

from __future__ import annotations

import logging
from typing import Final

from magnetar.ledger.looking import each_looked_at
from magnetar.ledger.port import ManagedLedger, StoredEntry
from magnetar.ledger.transactions import LogTransactions
from magnetar.logs.producer_snapshot import SnapshotUnreadable
from magnetar.logs.producers import EndTransactionMarker, ProducerStates
from magnetar.records.batch import CONTROL, NO_LEADER_EPOCH, TRANSACTIONAL, BatchHeader, read_header
from magnetar.records.control import read_marker
from magnetar.records.entry import decode_entry, kafka_payload_at
from magnetar.records.pulsar_transactions import COMMIT_MARKER, is_transactions

PULSAR = "pulsar"
_READ_BYTES: Final = 4 << 20
_FEW_MARKERS: Final = 1000
"""So many are looked for one by one."""
_log = logging.getLogger("magnetar.broker")


async def load(log: ManagedLedger) -> ProducerStates:
    """Return the producers' states at the log's end, and have the log know its transactions; raises ``LedgerError``."""
    states, known_to = from_snapshot(log)
    await _forget_compacted(log, states.transactions, known_to)
    offset = max(known_to, log.log_start_offset)
    while offset < log.log_end_offset:
        entries = await log.read(offset, max_bytes=_READ_BYTES)
        if not entries:
            break
        async for entry, header in each_looked_at(entries, producer_header):
            # The first batch may begin before: DeleteRecords ends in the middle of one, and what is left counts.
            if header is not None and header.producer_id >= 0:
                replay(states, header, entry)
        offset = entries[-1].last_offset + 1
    states.transactions.stable(log.high_watermark)  # all that was read is durable
    # Others need not ask each time what their last stable offset is; one that was taken over may not say so itself.
    if log.has_transactions or not states.transactions.is_empty:
        log.transactions = states.transactions
    return states


def from_snapshot(log: ManagedLedger) -> tuple[ProducerStates, int]:
    """Return the producers' states as they were kept, and up to which offset that is all there is to know."""
    snapshot = log.snapshot
    if snapshot is None:
        return ProducerStates(), 0
    try:
        return ProducerStates.decode(snapshot.data), snapshot.offset
    except SnapshotUnreadable as error:
        _log.warning("the producers' snapshot of %s is not used, its log is read: %s", log.name, error)
        return ProducerStates(), 0


async def _forget_compacted(log: ManagedLedger, transactions: LogTransactions, known_to: int) -> None:
    """Forget what a snapshot says of transactions of which a compaction has since left neither messages nor markers.

    A compaction goes as far as all is decided. So what was open has ended if nothing of it is left; what has been left
    tells its end itself, for its marker is there still.
    """
    end = max((each.last_offset for each in log.ledgers() if each.compacted), default=-1)
    opened = {producer_id: first for producer_id, first in transactions.open().items() if first <= end}
    aborted = {each.last_offset for each in transactions.aborted() if each.last_offset <= end}
    if not opened and len(aborted) <= _FEW_MARKERS:
        there = {offset for offset in aborted if await _is_there(log, offset)}
        transactions.forget_ended(aborted - there)
        return
    offset = max(min((*opened.values(), *aborted)), log.log_start_offset)
    until = known_to if opened else end + 1  # what is behind the snapshot is replayed
    while offset < until:
        entries = await log.read(offset, max_bytes=_READ_BYTES, up_to=until)
        if not entries:
            break
        async for _, header in each_looked_at(entries, producer_header):
            if header is None:
                continue
            if header.is_control:
                aborted.discard(header.base_offset)
            elif header.base_offset >= opened.get(header.producer_id, until):
                del opened[header.producer_id]
        offset = entries[-1].last_offset + 1
    transactions.forget_ended(aborted)
    transactions.forget_open(opened)


async def _is_there(log: ManagedLedger, offset: int) -> bool:
    """Return whether the marker at an offset was not compacted away."""
    if offset < log.log_start_offset:
        return True  # what is let go of is forgotten elsewhere
    entries = await log.read(offset, max_bytes=1)
    return bool(entries) and entries[0].last_offset == offset


def replay(states: ProducerStates, header: BatchHeader, entry: StoredEntry) -> None:
    """Take in one batch of a producer's that is in the log, or one entry of a transaction of Pulsar's."""
    if is_transactions(header.producer_id) and kafka_payload_at(entry.data) < 0:
        if header.is_control:
            committed = decode_entry(entry.data).message.marker_type == COMMIT_MARKER
            states.transactions.end(header.producer_id, header.base_offset, committed=committed)
        else:
            states.transactions.begin(header.producer_id, header.base_offset)
    elif header.partition_leader_epoch == NO_LEADER_EPOCH:
        # It came from another cluster, whose ids of producers mean others here: its transactions alone count.
        if header.attributes & (TRANSACTIONAL | CONTROL) == TRANSACTIONAL:
            states.transactions.begin(header.producer_id, header.base_offset)
        elif header.attributes & TRANSACTIONAL:
            found = read_marker(decode_entry(entry.data).payload)
            if found is not None:
                states.transactions.end(header.producer_id, header.base_offset, committed=found.committed)
    elif not header.attributes & CONTROL:
        states.add(header, header.base_offset)
    elif header.attributes & TRANSACTIONAL:
        found = read_marker(decode_entry(entry.data).payload)
        if found is not None:
            marker = EndTransactionMarker(
                header.producer_id, header.producer_epoch, found.committed, found.coordinator_epoch
            )
            states.end(marker, header.base_offset, header.max_timestamp)


def producer_header(entry: StoredEntry) -> BatchHeader | None:
    """Return the header of the batch that a Kafka producer sent, or None if it was another's. No record is read.

    What is of a transaction of Pulsar's has the header that its batch would have.
    """
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
