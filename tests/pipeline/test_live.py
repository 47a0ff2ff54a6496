"""Beside a running broker: the rows from the ledgers are those that a stock consumer fetches."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from magnetar.ledger.files.leases import needed_offset
from magnetar.pipeline.options import parse_options
from magnetar.pipeline.plan import Plan
from magnetar.pipeline.source import BatchReader
from tests.pipeline.test_slices import rows

pytestmark = pytest.mark.slow

COUNT = 200


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    command = [
        Path(sys.executable).with_name("magnetar"),
        "standalone",
        "--data",
        tmp_path,
        "--kafka",
        "127.0.0.1:0",
    ]
    broker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert broker.stdout is not None
    yield broker.stdout.readline().removeprefix("ready kafka=").strip()
    broker.terminate()
    broker.wait(20)
    broker.stdout.close()


def produce(address: str) -> None:
    """Send ``COUNT`` records with each codec."""
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer({"bootstrap.servers": address, "compression.type": codec, "linger.ms": 5})
        for i in range(COUNT):
            headers = [("n", str(i).encode()), ("n", None), ("é", b"")] if i % 3 else []
            value = None if i % 7 == 0 else codec.encode() * i
            producer.produce(
                "t", value, key=None if i % 5 else b"k", headers=headers, partition=0, timestamp=1000 + i
            )
        assert producer.flush(30) == 0


def fetched(address: str) -> list[tuple[object, ...]]:
    """Return the topic's records in the shape of `rows`."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", 0, 0)])
    found: list[tuple[object, ...]] = []
    while len(found) < 5 * COUNT:
        for m in consumer.consume(1000, timeout=20):
            assert m.error() is None
            found.append((m.offset(), m.key(), m.value(), m.timestamp()[1], 0, list(m.headers() or ())))
    consumer.close()
    return found


def test_ledgers_give_what_fetch_gives(address: str, tmp_path: Path) -> None:
    produce(address)
    expected = fetched(address)
    assert rows(tmp_path) == expected
    assert rows(tmp_path, **{"kafka.bootstrap.servers": address}) == expected
    given = parse_options({"path": str(tmp_path), "subscribe": "t"}, streaming=False)
    plan = Plan(given)
    assert plan.latest() == {("t", 0): len(expected)}
    pieces = BatchReader(given).partitions()
    assert [each.value for each in pieces] == plan.slices(plan.starts(), plan.ends())
    # A batch that was planned beside a running broker is safe from its retention for a while.
    assert needed_offset(tmp_path, "public/default/persistent/t-partition-0") == 0
