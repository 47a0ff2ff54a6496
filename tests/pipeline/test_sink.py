"""The sink as Spark's users meet it: what a stock consumer finds afterwards."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.topics import consumed, create
from tests.process import BrokerProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_columns_of_a_frame_become_records(spark: Any, broker: BrokerProcess) -> None:
    create(broker, "columns", 3)
    when = datetime.datetime(2026, 1, 2, 3, 4, 5, 678_000, datetime.UTC)
    rows = [
        ("columns", b"k1", b"v1", [("a", b"1"), ("a", None)], 2, when),
        ("columns", None, None, None, 0, when),
        ("columns", b"", b"", [], 1, when),
    ]
    frame = spark.createDataFrame(
        rows,
        "topic string, key binary, value binary, headers array<struct<key string, value binary>>, partition int, "
        "timestamp timestamp",
    )
    frame.write.format("magnetar").option("kafka.bootstrap.servers", broker.address).mode("append").save()
    found = [
        (m.partition(), m.key(), m.value(), m.headers(), m.timestamp()[1])
        for m in consumed(broker, "columns")
    ]
    at = int(when.timestamp() * 1000)
    assert found == [
        (0, None, None, None, at),
        (1, b"", b"", None, at),
        (2, b"k1", b"v1", [("a", b"1"), ("a", None)], at),
    ]


def stream(spark: Any, broker: BrokerProcess, source: Path, checkpoint: Path, topic: str) -> None:
    frame = spark.readStream.schema("key string, value string").json(str(source))
    query = (
        frame.writeStream.format("magnetar")
        .option("kafka.bootstrap.servers", broker.address)
        .option("topic", topic)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)


def test_a_stream_writes_each_row_once(spark: Any, broker: BrokerProcess, tmp_path: Path) -> None:
    create(broker, "stream", 2)
    source = tmp_path / "in"
    source.mkdir()
    for run in range(2):
        (source / f"{run}.json").write_text(
            "\n".join(f'{{"key": "k{i}", "value": "{run}-{i}"}}' for i in range(500))
        )
        stream(spark, broker, source, tmp_path / "checkpoint", "stream")
    values = sorted(m.value().decode() for m in consumed(broker, "stream"))
    assert values == sorted(f"{run}-{i}" for run in range(2) for i in range(500))
    assert [p.name for p in (tmp_path / "checkpoint" / "magnetar-sink").glob("*/*")] == ["1.done"]
