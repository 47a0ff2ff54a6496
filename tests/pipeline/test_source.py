"""The source as Spark's users meet it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from magnetar.records.batch import Record
from magnetar.records.compression import Codec
from tests.pipeline.test_slices import everything, fill
from tests.pipeline.writer import Partition, Writer

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}


@pytest.fixture(scope="module")
def partitions(tmp_path_factory: pytest.TempPathFactory) -> list[Partition]:
    writer = Writer(tmp_path_factory.mktemp("data"))
    first, second, _third_has_nothing = made = writer.topic("t", 3)
    everything(first)
    for codec in Codec:
        fill(second, 30, codec=codec)
    second.close_ledger(sealed=False)
    writer.finish()
    return made


def expected(partitions: list[Partition]) -> list[tuple[Any, ...]]:
    return [
        (each.partition, r.offset, r.key, r.value, r.timestamp, kind, [tuple(h) for h in r.headers] or None)
        for each in partitions
        for r, kind in each.expected
    ]


def plain(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def collected(frame: Any) -> list[tuple[Any, ...]]:
    rows = frame.selectExpr(
        "partition", "offset", "key", "value", "unix_millis(timestamp)", "timestampType", "headers"
    ).collect()
    found = [
        (
            partition,
            offset,
            plain(key),
            plain(value),
            time,
            kind,
            headers and [(h[0], plain(h[1])) for h in headers],
        )
        for partition, offset, key, value, time, kind, headers in rows
    ]
    return sorted(found, key=lambda row: row[:2])


def test_columns_are_those_of_the_kafka_source(spark: Any, partitions: list[Partition]) -> None:
    read = spark.read.format("magnetar").option("subscribe", "t")
    assert dict(read.load(str(partitions[0].data)).dtypes) == COLUMNS
    with_headers = read.option("includeHeaders", "true").load(str(partitions[0].data))
    assert dict(with_headers.dtypes) == COLUMNS | {"headers": "array<struct<key:string,value:binary>>"}


def test_every_row_comes_as_it_was_written(spark: Any, partitions: list[Partition]) -> None:
    frame = (
        spark.read.format("magnetar")
        .option("subscribe", "t")
        .option("includeHeaders", "true")
        .option("sliceBytes", "40000")
        .load(str(partitions[0].data))
    )
    assert collected(frame) == expected(partitions)
    assert {row[0] for row in frame.select("topic").distinct().collect()} == {"t"}


def test_fewer_columns_by_option_or_schema(spark: Any, partitions: list[Partition]) -> None:
    read = spark.read.format("magnetar").option("subscribe", "t")
    data, count = str(partitions[0].data), len(expected(partitions))
    assert read.option("columns", "offset,value").load(data).columns == ["offset", "value"]
    assert read.schema("partition int, offset bigint").load(data).distinct().count() == count


def test_a_topic_without_records_is_an_empty_frame(spark: Any, tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.topic("none", 2)
    frame = spark.read.format("magnetar").option("subscribe", "none").load(str(writer.finish()))
    assert frame.count() == 0


def test_available_now_reads_all_in_admitted_steps_and_goes_on_later(spark: Any, tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data")
    (tmp_path / "data").mkdir()
    first, second = writer.topic("t", 2)
    fill(first, 60)
    fill(second, 20, codec=Codec.zstd)
    for each in (first, second):
        each.close_ledger()
    writer.finish()

    def run() -> list[dict[str, Any]]:
        stream = (
            spark.readStream.format("magnetar")
            .option("subscribe", "t")
            .option("startingOffsets", "earliest")
            .option("includeHeaders", "true")
            .option("maxOffsetsPerTrigger", "100")
            .load(str(tmp_path / "data"))
        )
        query = (
            stream.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "table"))
        )
        assert query.awaitTermination(120)
        return [json.loads(progress.json) for progress in query.recentProgress]

    steps = [step["numInputRows"] for step in run() if step["numInputRows"]]
    assert len(steps) >= 3
    assert max(steps) <= 101
    assert collected(spark.read.parquet(str(tmp_path / "table"))) == expected([first, second])
    for each in (first, second):
        each.append([Record(b"later", b"on", (), 1)] * 3)
        each.close_ledger(sealed=False)
    writer.finish()
    assert sum(step["numInputRows"] for step in run()) == 6
    assert sum(step["numInputRows"] for step in run()) == 0
    assert collected(spark.read.parquet(str(tmp_path / "table"))) == expected([first, second])


def test_damage_reaches_the_user_with_its_place(spark: Any, tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    (partition,) = writer.topic("t")
    fill(partition, 10)
    path = partition.close_ledger()
    data = writer.finish()
    frame = spark.read.format("magnetar").option("subscribe", "t").load(str(data))
    assert frame.count() == len(partition.expected)
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(Exception, match=r"entry 9 of ledger 1 at byte .* is damaged: its checksum"):
        spark.read.format("magnetar").option("subscribe", "t").load(str(data)).collect()
