"""The sink as Spark's users meet it: what a stock consumer finds afterwards."""

from __future__ import annotations

import datetime
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
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


def test_a_transaction_is_written_once(spark: Any, broker: BrokerProcess, tmp_path: Path) -> None:
    create(broker, "txn")
    for version in (0, 1, 1, 0, 2):
        frame = spark.range(100).selectExpr(f"CONCAT('{version}-', id) AS value")
        write = frame.write.format("magnetar").option("kafka.bootstrap.servers", broker.address)
        write = write.option("topic", "txn").option("stagingLocation", str(tmp_path))
        write.option("txnAppId", "a/job").option("txnVersion", version).mode("append").save()
    found = Counter(m.value().decode() for m in consumed(broker, "txn"))
    assert found == Counter(f"{version}-{i}" for version in range(3) for i in range(100))


@pytest.mark.parametrize(
    ("rows", "options", "told"),
    [
        ("1 AS key", {"topic": "t"}, "Required attribute 'value' not found"),
        ("'v' AS value", {}, "topic option required when no 'topic' attribute is present"),
        ("1 AS value", {"topic": "t"}, "value attribute type must be STRING or BINARY, not int"),
        ("'v' AS value, 1L AS partition", {"topic": "t"}, "partition attribute type must be INT, not bigint"),
        ("'v' AS value, 1 AS topic", {}, "topic attribute type must be STRING, not int"),
        (
            "'v' AS value, map('a', 'b') AS headers",
            {"topic": "t"},
            "headers attribute type must be ARRAY<STRUCT",
        ),
        ("'v' AS value", {"topic": "t", "topc": "t"}, "unknown option 'topc' of the sink"),
        ("'v' AS value", {"topic": "t", "kafka.acks": "2"}, "kafka.acks must be one of all, -1, 1"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_written(
    spark: Any, broker: BrokerProcess, rows: str, options: dict[str, str], told: str
) -> None:
    write = spark.sql(f"SELECT {rows}").write.format("magnetar").options(**options)
    with pytest.raises(Exception, match=re.escape(told)):
        write.option("kafka.bootstrap.servers", broker.address).mode("append").save()


def test_topics_are_not_overwritten(spark: Any, broker: BrokerProcess) -> None:
    write = spark.sql("SELECT 'v' AS value").write.format("magnetar").option("topic", "t")
    with pytest.raises(Exception, match="overwrite not allowed"):
        write.option("kafka.bootstrap.servers", broker.address).mode("overwrite").save()


def test_a_query_killed_at_any_moment_has_written_each_row_once(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    create(broker, "killed", 3)
    files, lines = 10, 3000
    (tmp_path / "in").mkdir()
    for number in range(files):
        (tmp_path / "in" / f"{number}.txt").write_text("".join(f"{number}-{i}\n" for i in range(lines)))
    commits = tmp_path / "checkpoint" / "commits"

    def done() -> int:
        return len([path for path in commits.glob("*") if path.name.isdigit()])

    command = [sys.executable, "-m", "tests.pipeline.sink_job", broker.address, str(tmp_path)]
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    for _ in range(2):
        job = subprocess.Popen(command, env=environment, start_new_session=True, stderr=subprocess.DEVNULL)
        before = done()
        while done() == before and job.poll() is None:
            time.sleep(0.01)
        time.sleep(random.random() * 1.5)
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    finished = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr[-3000:]
    # Each kill may come when Spark has noted a batch's file and not yet its offsets; the batch then has two files.
    assert done() >= files - 2
    found = Counter(message.value().decode() for message in consumed(broker, "killed"))
    assert found == Counter(f"{number}-{i}" for number in range(files) for i in range(lines))
