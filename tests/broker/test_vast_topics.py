"""A topic of 2,147,483,647 partitions, which one request of an earlier version could make: it stops nobody."""

from __future__ import annotations

import json
import logging

import pytest

from magnetar.base.errors import InvalidPartitions
from magnetar.ledger.memory import MemoryEngine
from magnetar.metadata import MUST_NOT_EXIST, MemoryStore, Put
from magnetar.node.broker import Broker
from magnetar.settings.settings import Settings
from magnetar.topics import topic as topics
from magnetar.topics.topic import MAX_PARTITIONS

PATH = "/admin/partitioned-topics/public/default/persistent/vast"


async def started() -> Broker:
    store = MemoryStore()
    await store.commit([Put(PATH, json.dumps({"partitions": 2**31 - 1}).encode(), MUST_NOT_EXIST)])
    broker = Broker(Settings(), store, MemoryEngine(store))
    await broker.engine.start()
    await broker.start()
    return broker


async def test_its_first_partitions_are_served_until_it_is_deleted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "MAX_PARTITIONS", 500)  # 200,000 are deleted in half a minute
    with caplog.at_level(logging.ERROR):
        broker = await started()
    assert "vast has 2147483647 partitions in the metadata store: the first 500" in caplog.text
    assert PATH in caplog.text
    topic = broker.topic("vast")
    assert topic.partitions == 500
    await broker.delete_topic("vast")
    assert await broker.store.get(PATH) is None


async def test_no_topic_grows_beyond_that() -> None:
    broker = await started()
    for more in (1, 10_001):
        with pytest.raises(InvalidPartitions, match="may have 200000 partitions"):
            broker.growable_topic("vast", MAX_PARTITIONS + more)
