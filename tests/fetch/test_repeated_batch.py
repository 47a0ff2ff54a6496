"""A batch that a producer sends twice is answered as the first time, its append time included."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from magnetar.kafka.partitions.partition import Partition
from magnetar.ledger.memory import MemoryEngine
from magnetar.ledger.port import LedgerPolicy
from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.topics.topic_config import TopicConfig
from tests.admin.house import drafted
from tests.ledger.entries import prepared

NOW_MS = 1_790_000_000_000


async def test_the_append_time_is_that_of_the_first() -> None:
    engine = MemoryEngine()
    log = await prepared(await engine.open("public/default/persistent/t-partition-0", LedgerPolicy()))
    config = replace(TopicConfig(), message_timestamp_type="LogAppendTime")
    topic: Any = SimpleNamespace(config=config, internal=False, kafka_name="t")
    now_ms = NOW_MS
    partition = Partition(topic, 0, log, lambda: now_ms)
    data = memoryview(
        encode_batch([PlainRecord(None, b"v", (), 5)], producer_id=7, producer_epoch=0, base_sequence=0)
    )
    first = partition.produce(await drafted(partition, data))
    now_ms += 1000
    again = partition.produce(await drafted(partition, data))
    assert (again.base_offset, again.log_append_time_ms) == (first.base_offset, NOW_MS)
    assert log.log_end_offset == 1
    await engine.close()
