"""An audit says equal only where a table is, and names the one record that is not as it was."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from magnetar.cli.app import run_app
from magnetar.pipeline.audit import Audit, AuditRequest, audit
from magnetar.pipeline.audit_differences import Difference, Move
from magnetar.pipeline.audit_table import TableUnreadable
from magnetar.records.batch import PlainRecord
from magnetar.records.compression import Codec
from tests.pipeline.writer import NOW_MS, Writer

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PARTITIONS = 3
Rows = list[dict[str, Any]]


def rows_of(table: Path) -> pa.Table:
    """Return a table that Spark wrote, its times in microseconds as Spark means them."""
    rows = pq.read_table(table)
    place = rows.schema.get_field_index("timestamp")
    time = rows.column(place).cast(pa.timestamp("us", tz="UTC"))
    return rows.set_column(place, "timestamp", time)


def some_records(random: Random, count: int) -> list[PlainRecord]:
    return [
        PlainRecord(
            random.choice([None, b"", b"k%d" % random.randrange(50)]),
            random.choice([None, b"", random.randbytes(random.randrange(1, 60))]),
            random.choice([(), (("a", b"1"), ("a", None), ("ü", b""))]),
            NOW_MS + random.randrange(100_000),
        )
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three partitions in several ledgers, with marks of transactions as gaps in their offsets."""
    random = Random(4)
    writer = Writer(tmp_path_factory.mktemp("audit"))
    for each in writer.topic("orders", PARTITIONS):
        for number in range(30):
            each.append(
                some_records(random, random.randrange(1, 100)),
                codec=random.choice([Codec.none, Codec.lz4]),
                append_time=NOW_MS + number if number % 7 == 0 else None,
            )
            if number % 5 == 0:
                each.append([PlainRecord(b"\0\0\0\1", b"\0\0\0\0\0\0", (), NOW_MS)], control=True)
            if number % 10 == 9:
                each.close_ledger()
        each.close_ledger(sealed=False)
    return writer.finish()


@pytest.fixture(scope="module")
def bronze(spark: Any, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables") / "bronze"
    source = spark.read.format("magnetar").option("subscribe", "orders").option("includeHeaders", "true")
    source.load(str(data)).write.parquet(str(path))
    return path


@pytest.fixture
def changed(bronze: Path, tmp_path: Path) -> Iterator[Callable[[Callable[[Rows], None]], Path]]:
    """Have a copy of the table with something wrong in it."""

    def copy(change: Callable[[Rows], None]) -> Path:
        table = rows_of(bronze)
        rows = sorted(table.to_pylist(), key=lambda row: (row["partition"], row["offset"]))
        change(rows)
        path = tmp_path / "changed"
        path.mkdir()
        pq.write_table(pa.Table.from_pylist(rows, table.schema), path / "part.parquet")
        return path

    return copy


def compared(spark: Any, data: Path, table: Path, **more: Any) -> Audit:
    return audit(spark, AuditRequest("orders", str(table), data, range_offsets=100, **more))


def at(rows: Rows, partition: int, offset: int) -> dict[str, Any]:
    return next(row for row in rows if (row["partition"], row["offset"]) == (partition, offset))


def test_a_table_that_spark_wrote_is_equal_with_gaps_and_all(spark: Any, data: Path, bronze: Path) -> None:
    found = compared(spark, data, bronze)
    assert found.is_equal
    assert found.topic_records == found.table_records == pq.read_table(bronze).num_rows
    assert found.differences == ()
    assert set(found.counts.values()) == {0}
    assert found.compared == ("partition", "offset", "key", "value", "headers", "timestamp", "timestampType")
    assert len(found.partitions) == PARTITIONS
    assert len(found.ranges) > 20
    # Some offsets hold no record, so the proof is not one of offsets alone.
    assert found.topic_records < sum(p.high - p.low for p in found.partitions)


def test_one_changed_column_of_one_record_is_named(
    spark: Any, data: Path, changed: Callable[[Callable[[Rows], None]], Path]
) -> None:
    columns = ("key", "value", "headers", "timestamp", "timestampType")
    places = [(1, 234), (1, 334), (2, 12), (0, 40), (0, 44)]

    def change(rows: Rows) -> None:
        for column, (partition, offset) in zip(columns, places, strict=True):
            row = at(rows, partition, offset)
            time = row["timestamp"]
            row[column] = {
                "key": b"" if row["key"] is None else None,
                "value": (row["value"] or b"") + b"\0",
                "headers": [{"key": "a", "value": b""}],
                "timestamp": time.replace(microsecond=(time.microsecond + 1000) % 1_000_000),
                "timestampType": 1 - row["timestampType"],
            }[column]

    found = compared(spark, data, changed(change))
    assert not found.is_equal
    assert sorted(found.differences, key=str) == sorted(
        (
            Difference("changed", p, o, o, 1, (column,))
            for column, (p, o) in zip(columns, places, strict=True)
        ),
        key=str,
    )
    assert sum(not each.is_equal for each in found.ranges) == 4  # the others were not looked at again


def test_headers_that_only_look_alike_differ(
    spark: Any, data: Path, changed: Callable[[Callable[[Rows], None]], Path]
) -> None:
    def change(rows: Rows) -> None:
        row = next(row for row in rows if row["headers"])
        first, second, third = row["headers"]
        assert (first["value"], second["value"]) == (b"1", None)
        row["headers"] = [first | {"value": None}, second | {"value": b"1"}, third]

    found = compared(spark, data, changed(change))
    assert [each.columns for each in found.differences] == [("headers",)]


def test_lost_doubled_and_moved_records_are_named(
    spark: Any, data: Path, changed: Callable[[Callable[[Rows], None]], Path]
) -> None:
    def change(rows: Rows) -> None:
        # A run of losses over the border between two ranges, and over gaps, is one difference.
        kept = [row for row in rows if row["partition"] != 0 or not 190 <= row["offset"] <= 210]
        rows[:] = [*kept, dict(at(rows, 2, 50)), dict(at(rows, 2, 51))]
        at(rows, 1, 77)["partition"] = 2
        at(rows, 1, 300)["offset"] = 1_000_000

    found = compared(spark, data, changed(change))
    assert not found.is_equal
    lost = [each for each in found.differences if each.partition == 0]
    assert [each.kind for each in lost] == ["missing"]
    assert lost[0].first >= 190
    assert lost[0].last <= 210
    assert lost[0].records > 15
    assert Difference("doubled", 2, 50, 51, 2) in found.differences
    assert Difference("missing", 1, 77, 77, 1) in found.differences
    assert Difference("missing", 1, 300, 300, 1) in found.differences
    assert Difference("extra", 1, 1_000_000, 1_000_000, 1) in found.differences
    assert Move(1, 300, 1, 1_000_000) in found.moved
    assert Move(1, 77, 2, 77) in found.moved


def test_as_many_doubled_as_lost_do_not_hide_each_other(
    spark: Any, data: Path, changed: Callable[[Callable[[Rows], None]], Path]
) -> None:
    def change(rows: Rows) -> None:
        twin = dict(at(rows, 0, 11))
        rows.remove(at(rows, 0, 12))
        rows.remove(at(rows, 0, 13))
        rows += [twin, dict(twin)]  # three times the same: its digest is as if it were there once

    found = compared(spark, data, changed(change))
    assert found.topic_records == found.table_records
    assert {each.kind: each.records for each in found.differences} == {"missing": 2, "doubled": 1}


def test_a_table_behind_its_topic_is_compared_up_to_where_it_is(
    spark: Any, data: Path, changed: Callable[[Callable[[Rows], None]], Path]
) -> None:
    def change(rows: Rows) -> None:
        rows[:] = [row for row in rows if row["partition"] != 1 or row["offset"] < 333]

    table = changed(change)
    assert compared(spark, data, table, up_to_table=True).is_equal
    found = compared(spark, data, table)
    assert [(each.kind, each.first) for each in found.differences] == [("missing", 333)]


def test_a_row_without_an_offset_is_not_overlooked(
    spark: Any, data: Path, changed: Callable[[Callable[[Rows], None]], Path]
) -> None:
    def change(rows: Rows) -> None:
        rows.append(rows[0] | {"offset": None})

    found = compared(spark, data, changed(change))
    assert not found.is_equal
    assert found.unplaced == 1


def test_columns_that_the_table_lacks_are_said_not_to_be_compared(
    spark: Any, data: Path, bronze: Path, tmp_path: Path
) -> None:
    spark.read.parquet(str(bronze)).drop("headers", "timestampType").write.parquet(str(tmp_path / "few"))
    found = compared(spark, data, tmp_path / "few")
    assert found.is_equal
    assert found.not_compared == ("headers", "timestampType")


def test_delta_and_iceberg_tables_are_found_to_be_such(
    spark: Any, data: Path, bronze: Path, tmp_path: Path
) -> None:
    from deltalake import DeltaTable, write_deltalake
    from pyiceberg.catalog.sql import SqlCatalog

    rows = rows_of(bronze)
    delta = tmp_path / "delta"
    write_deltalake(delta, rows, partition_by=["partition"])
    assert compared(spark, data, delta).is_equal
    DeltaTable(delta).delete("partition = 2 and offset = 9")
    found = compared(spark, data, delta)
    assert found.table_format == "delta"
    assert found.differences == (Difference("missing", 2, 9, 9, 1),)

    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/lake.db", warehouse=f"file://{tmp_path}/lake")
    catalog.create_namespace("bronze")
    table = catalog.create_table("bronze.orders", rows.schema)
    table.append(rows)
    found = compared(spark, data, Path(table.location().removeprefix("file://")))
    assert found.table_format == "iceberg"
    assert found.is_equal


def test_tables_of_our_own_writer_are_equal(spark: Any, data: Path, tmp_path: Path) -> None:
    from magnetar.pipeline import tables

    for kind in tables.FORMATS:
        table = tables.open(tmp_path / kind, kind)
        if kind != "parquet":  # a table that nothing was written to yet lacks everything
            found = compared(spark, data, tmp_path / kind)
            assert found.counts["missing"] == found.topic_records
        tables.sync("orders", table, options={"path": str(data)})
        found = compared(spark, data, tmp_path / kind)
        assert (found.table_format, found.is_equal, found.not_compared) == (kind, True, ())


def test_what_cannot_be_compared_is_said(spark: Any, data: Path, bronze: Path, tmp_path: Path) -> None:
    with pytest.raises(TableUnreadable, match="neither a path here nor a name"):
        compared(spark, data, tmp_path / "nothing")
    spark.range(3).write.parquet(str(tmp_path / "other"))
    with pytest.raises(TableUnreadable, match="it needs partition and offset"):
        compared(spark, data, tmp_path / "other")


def test_the_command_ends_with_what_it_found(
    spark: Any, data: Path, bronze: Path, changed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def lose_one(rows: Rows) -> None:
        rows.remove(at(rows, 0, 5))

    assert run_app(["audit", "orders", str(bronze), "--data", str(data)]) == 0
    assert "EQUAL: every record" in capsys.readouterr().out
    assert run_app(["audit", "orders", str(changed(lose_one)), "--data", str(data)]) == 1
    assert "missing: orders-0@5" in capsys.readouterr().out
    assert run_app(["audit", "orders", str(bronze), "--data", str(data), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["is_equal"] is True
    assert run_app(["audit", "nobody", str(bronze), "--data", str(data)]) == 3
    assert "nobody" in capsys.readouterr().err
    assert run_app(["audit", "orders", str(bronze), "--data", str(data), "--range", "0"]) == 2
