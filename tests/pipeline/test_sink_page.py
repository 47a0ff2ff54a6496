"""The examples of docs/spark-sink.md do what the page says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.topics import consumed
from tests.process import BrokerProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PAGE = Path(__file__).parents[2] / "docs" / "spark-sink.md"


def test_the_page(spark: Any, start_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    broker = start_broker(tmp_path / "data", "--set", "group.initial.rebalance.delay.ms=0")
    known: dict[str, Any] = {
        "spark": spark,
        "broker": broker.address,
        "checkpoint": str(tmp_path / "one"),
        "other_checkpoint": str(tmp_path / "two"),
        "staging": str(tmp_path / "staging"),
    }
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(block, known)
    for _ in range(2):
        known["write"](spark.sql("SELECT 'x' AS value"), 7)
    assert [m.value() for m in consumed(broker, "twice-a-day")] == [b"x"]
    shouted = sorted(m.value().decode() for m in consumed(broker, "shouted"))
    assert shouted == sorted(f"ORDER {i}" for i in range(1000))


def test_a_checkpoint_goes_on_through_brokers(
    spark: Any, start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = start_broker(tmp_path / "data")

    def write(first: int) -> None:
        rows = spark.range(first, first + 50).selectExpr("CAST(id AS STRING) AS value")
        write = rows.write.format("magnetar").option("kafka.bootstrap.servers", broker.address)
        write.option("topic", "t").mode("append").save()

    def follow(**where: str) -> None:
        stream = spark.readStream.format("magnetar").option("subscribe", "t").options(**where)
        stream = stream.option("startingOffsets", "earliest").load()
        query = stream.writeStream.format("parquet").option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        )
        assert query.trigger(availableNow=True).start(str(tmp_path / "table")).awaitTermination(120)

    for turn, where in enumerate(
        ({"path": str(broker.data)}, {"kafka.bootstrap.servers": broker.address}) * 2
    ):
        write(50 * turn)
        follow(**where)
    table = spark.read.parquet(str(tmp_path / "table"))
    assert sorted(int(row[0]) for row in table.selectExpr("CAST(value AS STRING)").collect()) == list(
        range(200)
    )
