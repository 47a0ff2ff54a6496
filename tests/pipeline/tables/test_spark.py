"""Tables and Spark: its tasks write them, and Spark reads them as they are committed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as f

from magnetar.pipeline import tables
from magnetar.pipeline.audit import AuditRequest, audit
from magnetar.pipeline.options import TopicPartition
from magnetar.pipeline.tables import Layout, OffsetRange, Upkeep
from magnetar.pipeline.tables.engine import SparkEngine
from magnetar.pipeline.tables.files import attempt_of
from tests.pipeline.tables.conftest import TopicOnDisk, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_spark_tasks_write_what_the_topic_holds(
    spark: Any, topic: TopicOnDisk, table: tables.Table, kind: str
) -> None:
    engine = SparkEngine(spark)
    for _ in range(2):
        done = tables.sync("t", table, options=topic.options, engine=engine, max_offsets_per_commit=700)
        assert rows_of(table.to_arrow()) == topic.rows()
        assert done.rows > 0
        topic.grow(40)
    tables.sync("t", table, options=topic.options, engine=engine)
    found = audit(spark, AuditRequest("t", table.place.url, topic.data, kind))
    assert (found.is_equal, found.table_records) == (True, len(topic.rows()))
    assert table.to_spark(spark).count() == len(topic.rows())


def test_plain_spark_sees_what_is_committed_and_nothing_else(
    spark: Any, topic: TopicOnDisk, tmp_path: Path
) -> None:
    table = tables.open(tmp_path / "t", layout=Layout(target_bytes=100_000))
    where = str(tmp_path / "t")

    def places() -> list[tuple[int, int]]:
        rows = spark.read.parquet(where).select("partition", "offset").collect()
        return sorted((row[0], row[1]) for row in rows)

    assert places() == []
    seen: list[tuple[str, list[tuple[int, int]]]] = []
    table.steps.append(lambda step: seen.append((step, places())))
    tables.sync("t", table, options=topic.options, upkeep=Upkeep(compact=False))
    everything = [(row[0], row[1]) for row in topic.rows()]
    assert [(step, len(rows)) for step, rows in seen] == [
        ("noted", 0), ("written", 0), *((step, len(everything)) for step in ("committed", "done", "tidied")),
    ]  # fmt: skip
    table.steps.clear()
    for _ in range(9):
        topic.grow(3)
        tables.sync("t", table, options=topic.options, upkeep=Upkeep(keep_s=0))
    assert places() == [(row[0], row[1]) for row in topic.rows()]
    assert len([name for name in table.data.names() if attempt_of(name)]) < 10


def test_frames_are_added_with_their_offsets(
    spark: Any, topic: TopicOnDisk, tmp_path: Path, kind: str
) -> None:
    read = spark.read.format("magnetar").option("subscribe", "t").option("includeHeaders", "true")
    frame = read.load(str(topic.data)).withColumn("size", f.length("value"))
    ranges = [OffsetRange("t", each.partition, 0, each.next_offset) for each in topic.partitions]
    table = tables.open(tmp_path / "lake" / "made", kind, schema=tables.schema_of(frame.drop("size")))
    with table.writing():
        tables.append(table, frame, ranges, {"t": "id"})
        with pytest.raises(tables.OffsetsCommitted):
            tables.append(table, frame, ranges, {"t": "id"})
    assert rows_of(table.to_arrow()) == topic.rows()
    assert table.position() == {
        TopicPartition("t", each.partition): each.next_offset for each in topic.partitions
    }
    sizes = {row["size"] for row in table.to_spark(spark).select("size").collect()}
    assert sizes == {None if row[3] is None else len(row[3]) for row in topic.rows()}  # type: ignore[arg-type]
    if kind == "parquet":
        assert "size" in spark.read.parquet(table.place.url).columns
