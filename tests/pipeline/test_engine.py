"""What the broker's own storage engine writes, the source reads: open, rolled over, trimmed and closed ledgers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from magnetar.ledger.files.disk import RealDisk
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.port import LedgerPolicy, ManagedLedger
from magnetar.metadata import MemoryStore, SqliteFile
from magnetar.records.batch import PlainRecord, encode_batch, read_header
from magnetar.records.compression import Codec
from magnetar.records.entry import kafka_message_head
from magnetar.topics.names import Naming
from tests.pipeline.test_kernel import expected
from tests.pipeline.test_slices import rows
from tests.pipeline.writer import NOW_MS

POLICY = LedgerPolicy(max_ledger_bytes=8_000)


@asynccontextmanager
async def opened(
    data: Path, store: MemoryStore, policy: LedgerPolicy = POLICY
) -> AsyncIterator[ManagedLedger]:
    """Return the log of the one partition there is; all is closed behind the block."""
    store.blocking.put(
        "/admin/partitioned-topics/public/default/persistent/t", json.dumps({"partitions": 1}).encode()
    )
    engine = FilesEngine(data, store, RealDisk())
    await engine.start()
    try:
        yield await engine.open(Naming().parse("t").ledger_name(0), policy)
    finally:
        await engine.close()


def found(data: Path, store: MemoryStore, **options: object) -> list[tuple[object, ...]]:
    """Return what the source reads now, as if the broker had been killed at this moment."""
    kept = SqliteFile(data / "metadata.sqlite")
    for path, stored in store.blocking.scan("/"):
        kept.put(path, stored.value)
    kept.close()
    return rows(data, **options)


async def append(log: ManagedLedger, count: int) -> list[tuple[object, ...]]:
    """Append ``count`` batches of all codecs; give the rows that must come back."""
    written = []
    for number in range(count):
        records = [PlainRecord(b"%d" % i, bytes(i * 20), (), NOW_MS + i) for i in range(1 + number % 9)]
        batch = bytearray(encode_batch(records, base_offset=log.log_end_offset, codec=Codec(number % 5)))
        parts = [kafka_message_head(NOW_MS, len(records)), bytes(batch)]
        appended = log.append(parts, messages=len(records), timestamp_ms=read_header(batch).max_timestamp)
        if appended.done is not None:
            await appended.done
        written += expected(bytes(batch))
    return written


async def test_ledgers_being_written_rolled_over_trimmed_and_closed(tmp_path: Path) -> None:
    store = MemoryStore()
    async with opened(tmp_path, store) as log:
        written = await append(log, 200)
        assert len(log.ledgers()) > 3
        assert found(tmp_path, store) == written
        written += await append(log, 7)
        assert found(tmp_path, store, sliceBytes=1) == written
        await log.trim(423)
        written = [row for row in written if row[0] >= 423]  # type: ignore[operator]
        assert found(tmp_path, store) == written
    assert found(tmp_path, store) == written
