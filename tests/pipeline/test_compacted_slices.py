"""A topic that is being compacted while somebody looks at it: rows are those of Fetch, each once."""

from __future__ import annotations

from pathlib import Path

from magnetar.ledger.files.disk import RealDisk
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.files.managed import FilesManagedLedger
from magnetar.ledger.port import CompactionRules, Flush, LedgerPolicy
from magnetar.metadata import SqliteStore
from magnetar.node.broker import Broker
from magnetar.records.batch import PlainRecord, decode_records, encode_batch
from magnetar.records.conversion import kafka_batch
from magnetar.records.entry import kafka_message_head
from magnetar.settings.node import NodeSettings
from magnetar.settings.settings import Settings
from tests.pipeline.test_slices import rows
from tests.pipeline.writer import NOW_MS

FEW_KEYS = CompactionRules(replaces=True, tombstones_ms=1000, buffer_bytes=24 * 40)
"""Room for so few that one run ends within a ledger."""


async def test_what_lies_behind_a_compaction_that_ended_within_a_ledger_is_read_once(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "metadata.sqlite")
    engine = FilesEngine(tmp_path, store, RealDisk(), clock=lambda: NOW_MS)
    await engine.start()
    broker = Broker(Settings(NodeSettings(data_dir=str(tmp_path))), store, engine)
    await broker.start()
    topic = await broker.create_topic("t", partitions=1)
    log = await engine.open(topic.name.ledger_name(0), LedgerPolicy(flush=Flush.always, max_ledger_entries=8))
    assert isinstance(log, FilesManagedLedger)
    for number in range(100):
        record = PlainRecord(b"%d" % (number % 45), b"%d" % number, (), NOW_MS)
        message = [kafka_message_head(NOW_MS, 1), encode_batch([record], base_offset=log.log_end_offset)]
        appended = log.append(message, messages=1, timestamp_ms=NOW_MS)
        assert appended.done is not None
        await appended.done
    assert (
        await log._compactor._compact_once(FEW_KEYS) is not None
    )  # and it is asked for no more: a kill, or a busy broker
    compacted = log.compacted
    assert compacted is not None
    replaced = [each for each in log.ledgers() if each.compacted]
    assert replaced[-1].last_offset < compacted.horizon_offset < log.log_end_offset - 1, (
        "ended within a ledger"
    )

    due, offset = [], log.log_start_offset
    while entries := await log.read(offset, max_bytes=1 << 20):
        due += [each.offset for entry in entries for each in decode_records(kafka_batch(entry.data))]
        offset = entries[-1].last_offset + 1
    await engine.close()
    store.blocking.close()
    for slice_bytes in (1, 64 << 20):
        assert [row[0] for row in rows(tmp_path, sliceBytes=slice_bytes)] == due
