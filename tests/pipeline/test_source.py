"""The source as Spark's users meet it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

from magnetar.records.batch import PlainRecord
from magnetar.records.compression import Codec
from tests.pipeline.test_slices import everything, fill
from tests.pipeline.test_stream import anew
from tests.pipeline.writer import NOW_MS, Partition, Writer

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
        each.append([PlainRecord(b"later", b"on", (), 1)] * 3)
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


@pytest.fixture
def pushing(spark: Any) -> Iterator[Any]:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield spark
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_filters_are_pushed_where_both_say_so(pushing: Any, partitions: list[Partition]) -> None:
    data = str(partitions[0].data)
    read = pushing.read.format("magnetar").option("subscribe", "t").option("pushFilters", "true")
    some = read.load(data).where("topic = 't' and partition = 1 and offset >= 20 and offset < 25")
    assert sorted(row[0] for row in some.select("offset").collect()) == list(range(20, 25))
    # Spark does not look at these rows again, and no task but that of the one partition was planned.
    assert "Filter (" not in some._jdf.queryExecution().executedPlan().toString()
    assert some.rdd.getNumPartitions() == 1
    late = read.load(data).where(f"timestamp >= timestamp_millis({NOW_MS + 100})").select("timestamp")
    everything = [r for each in partitions for r, _ in each.expected]
    assert late.count() == sum(r.timestamp >= NOW_MS + 100 for r in everything)
    assert read.load(data).count() == len(everything)


def test_a_frame_may_be_used_twice_with_sparks_push_down_on(
    pushing: Any, partitions: list[Partition]
) -> None:
    # With what Spark 4.2 remembers of the filter before, the second and third of these would be wrong.
    frame = pushing.read.format("magnetar").option("subscribe", "t").load(str(partitions[0].data))
    first, later = frame.where("offset < 2"), frame.where("offset >= 5 and offset < 8")
    assert first.count() == 4
    assert frame.count() == sum(len(each.expected) for each in partitions)
    assert first.union(later).count() == 4 + 6


def test_positions_and_damage_are_columns(spark: Any, tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    (partition,) = writer.topic("t")
    fill(partition, 10)
    path = partition.close_ledger()
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    frame = (
        spark.read.format("magnetar")
        .option("subscribe", "t")
        .option("onDamage", "skip")
        .option("includePositions", "true")
        .load(str(writer.finish()))
    )
    bad = frame.where("damage is not null").selectExpr("offset", "damage.*").collect()
    assert [(row.offset, row.last_offset, row.ledger_id, row.entry_id) for row in bad] == [(31, 33, 1, 9)]
    assert "its checksum does not match" in bad[0].reason
    places = frame.where("damage is null").select("ledger_id", "entry_id", "batch_index").distinct().count()
    assert places == 31


def test_wrong_options_reach_the_user_with_what_is_allowed(spark: Any, partitions: list[Partition]) -> None:
    data = str(partitions[0].data)
    read = spark.read.format("magnetar").option("subscribe", "t")
    with pytest.raises(AnalysisException, match=r"unknown option 'startingofsets'; there are: assign"):
        read.option("startingOfsets", "earliest").load(data)
    read = spark.read.format("magnetar").option("subscribe", "t")
    with pytest.raises(AnalysisException, match="onDamage must be one of fail, skip"):
        read.option("onDamage", "ignore").load(data)


def test_sql_reads_a_topic_by_a_view_and_says_so_of_tables(spark: Any, partitions: list[Partition]) -> None:
    data = partitions[0].data
    using = f"USING magnetar OPTIONS (subscribe 't', path '{data}')"
    spark.sql(f"CREATE TEMPORARY VIEW flights {using}")
    direct = spark.read.format("magnetar").option("subscribe", "t").load(str(data)).count()
    assert spark.sql("SELECT count(*) FROM flights").first()[0] == direct > 0
    with pytest.raises(AnalysisException, match="Write CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE no_flights {using}")
    assert not spark.catalog.tableExists("no_flights")


HUGE = 100 << 20


def test_records_of_100_mb_are_read(spark: Any, tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    (partition,) = writer.topic("t")
    for codec in (Codec.none, Codec.lz4):
        partition.append([PlainRecord(b"huge", bytes(HUGE), (), NOW_MS)], codec=codec)
        partition.append([PlainRecord(b"small", b"1", (), NOW_MS)], codec=codec)
    partition.close_ledger()
    frame = (
        spark.read.format("magnetar")
        .option("subscribe", "t")
        .option("sliceBytes", str(1 << 30))
        .load(str(writer.finish()))
    )
    sizes = frame.selectExpr("offset", "octet_length(value)").collect()
    assert [size for _, size in sorted(sizes)] == [HUGE, 1] * 2


def test_a_stream_goes_on_after_its_topic_was_made_anew_if_told_so(spark: Any, tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data")
    (tmp_path / "data").mkdir()
    (partition,) = writer.topic("t")
    fill(partition, 10)
    partition.close_ledger()
    writer.finish()

    def run(**options: str) -> int:
        stream = (
            spark.readStream.format("magnetar")
            .options(subscribe="t", startingOffsets="earliest", **options)
            .load(str(tmp_path / "data"))
        )
        query = (
            stream.writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        return sum(progress["numInputRows"] for progress in query.recentProgress)

    assert run() == 34
    anew(tmp_path / "data")
    with pytest.raises(StreamingQueryException, match="topic t was deleted and made anew"):
        run()
    assert run(failOnDataLoss="false") == 34
    assert run() == 0
