"""Entries as the Kafka handler appends them, for tests of storage."""

from __future__ import annotations

from magnetar.ledger.files.managed import FilesManagedLedger
from magnetar.ledger.port import ManagedLedger, Pending, StoredEntry
from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.records.entry import kafka_message_head, payload_at

NOW_MS = 1_790_000_000_000


def batch(*values: bytes, timestamp_ms: int = NOW_MS) -> bytes:
    return encode_batch([PlainRecord(None, value, (), timestamp_ms) for value in values])


def append(log: ManagedLedger, *values: bytes, timestamp_ms: int = NOW_MS) -> Pending:
    message = [kafka_message_head(NOW_MS, len(values)), batch(*values, timestamp_ms=timestamp_ms)]
    return log.append(message, messages=len(values), timestamp_ms=timestamp_ms)


async def append_durably(log: ManagedLedger, *values: bytes, timestamp_ms: int = NOW_MS) -> Pending:
    appended = append(log, *values, timestamp_ms=timestamp_ms)
    if appended.done is not None:
        await appended.done
    return appended


def payload(entry: StoredEntry) -> bytes:
    return bytes(entry.data[payload_at(entry.data) :])


async def read_all(log: ManagedLedger, *, max_bytes: int = 1 << 20) -> list[StoredEntry]:
    offset, found = log.log_start_offset, []
    while entries := await log.read(offset, max_bytes=max_bytes):
        found += entries
        offset = entries[-1].last_offset + 1
    return found


async def prepared(log: ManagedLedger) -> ManagedLedger:
    """Have a log of the files engine be ready for appends, so that the first one does not wait for its ledger."""
    assert isinstance(log, FilesManagedLedger)
    await log._appender._begin_roll(force=False)
    return log
