"""Public reports on other pipelines, as far as no other test of ours has them: ``docs/reports.md`` lists all."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from magnetar.pipeline import tables
from magnetar.pipeline.jobs.decode.decoder import plan
from magnetar.pipeline.jobs.spec import ProjectSpec, RegistrySpec, TopicSpec
from magnetar.pipeline.plan import DataLost
from magnetar.pipeline.progress import from_json
from tests.pipeline.jobs.schema_registry import SchemaRegistry
from tests.pipeline.jobs.test_avro_versions import Versions, record
from tests.pipeline.jobs.test_poison_records import frame
from tests.pipeline.tables.conftest import TopicOnDisk, rows_of
from tests.pipeline.test_slices import fill
from tests.pipeline.test_stream import delete, make, offsets, stream
from tests.pipeline.types.readers import READERS, is_there
from tests.pipeline.writer import Writer

MAGNETAR = Path(sys.executable).with_name("magnetar")
FORMATS = ("parquet", "delta", "iceberg")
ORDERS = """
syntax = "proto3";
message Placed {}
message Shipped { FIELDS }
message Order { string id = 1; oneof event { Placed placed = 2; Shipped shipped = 3; } }
"""


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    made = SchemaRegistry()
    yield made
    made.close()


def test_a_batch_is_repeated_as_planned_after_its_topic_got_partitions(tmp_path: Path) -> None:
    make(tmp_path)
    before = stream(tmp_path)
    before.aim()
    start = before.initial()
    end = before.next(start, ReadMaxRows(40))
    wanted = offsets(before, start, end)
    before.close()  # it ends in the middle of that batch
    make(tmp_path, partitions=3)
    after = stream(tmp_path)
    after.aim()
    assert offsets(after, start, end) == wanted
    at, seen = end, list(wanted)
    while (further := after.next(at, ReadMaxRows(40))) != at:
        seen += offsets(after, at, further)
        at = further
    assert sorted(seen) == sorted(list(range(77)) * 3)
    after.close()


def two_topics(data: Path) -> None:
    writer = Writer(data)
    for name in ("t", "u"):
        (partition,) = writer.topic(name, 1)
        fill(partition, 20)
        partition.close_ledger()
    writer.finish()


def test_partitions_that_go_while_all_that_is_there_is_read(tmp_path: Path) -> None:
    two_topics(tmp_path)
    careful = stream(tmp_path, subscribe="t,u")
    careless = stream(tmp_path, subscribe="t,u", failOnDataLoss=False)
    for each in (careful, careless):
        each.aim()
    start = careful.initial()
    end = careful.next(start, ReadMaxRows(40))
    delete(tmp_path, "u")
    with pytest.raises((DataLost, ValueError), match="u"):
        careful.slices(end, careful.next(end, ReadAllAvailable()))
    last = careless.next(end, ReadAllAvailable())
    with pytest.warns(UserWarning, match="u-0 is gone"):
        rest = offsets(careless, end, last)
    assert rest == list(range(from_json(end)["t", 0], 77))  # type: ignore[index]
    careful.close()
    careless.close()


def test_a_topic_without_records_is_read_once_it_has_some_and_only_then(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    (partition,) = writer.topic("t", 1)
    partition.close_ledger(sealed=False)
    writer.finish()
    first = stream(tmp_path)
    empty = first.next(first.initial(), ReadAllAvailable())
    first.close()
    fill(partition, 20)
    partition._ledgers.pop(0)
    partition.close_ledger()
    writer.finish()
    second = stream(tmp_path)
    end = second.next(empty, ReadAllAvailable())
    assert offsets(second, empty, end) == list(range(77))
    second.close()
    third = stream(tmp_path)
    assert third.next(end, ReadAllAvailable()) == end
    third.close()


@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_of_a_topic_without_records_gets_each_of_them_once(tmp_path: Path, kind: str) -> None:
    data = tmp_path / "data"
    writer = Writer(data)
    (partition,) = writer.topic("t", 1)
    partition.close_ledger(sealed=False)
    writer.finish()
    table = tables.open(tmp_path / "lake" / "t", kind)
    assert tables.sync("t", table, options={"path": str(data)}).rows == 0
    fill(partition, 20)
    partition._ledgers.pop(0)
    partition.close_ledger()
    writer.finish()
    for rows in (77, 0):
        table = tables.open(tmp_path / "lake" / "t", kind)
        assert tables.sync("t", table, options={"path": str(data)}).rows == rows
    assert table.to_arrow()["offset"].to_pylist() == list(range(77))


@pytest.mark.slow
def test_the_command_goes_on_behind_records_that_retention_took(topic: TopicOnDisk, tmp_path: Path) -> None:
    def sync(*more: str) -> subprocess.CompletedProcess[str]:
        command = [MAGNETAR, "table", "sync", "t", tmp_path / "lake", "--data", topic.data, "--json", *more]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert json.loads(sync().stdout)["rows"] == len(topic.rows())
    had = topic.rows()
    taken = topic.partitions[1].next_offset
    topic.grow()
    for _ in range(2):  # what the table has, and what it has not seen yet
        topic.partitions[1]._ledgers.pop(0)
    topic.grow()
    done = sync()
    assert done.returncode == 1
    assert f"{taken} is gone" in done.stderr
    done = sync("--no-fail-on-data-loss")
    assert done.returncode == 0, done.stderr
    gone = range(taken, int(topic.partitions[1]._ledgers[0][1]["first_index"]))
    assert len(gone) > 10
    wanted = sorted([*had, *(row for row in topic.rows() if row not in had)], key=lambda row: row[:2])
    wanted = [row for row in wanted if not (row[0] == 1 and row[1] in gone)]
    assert rows_of(tables.open(tmp_path / "lake").to_arrow()) == wanted


@pytest.fixture
def topic(tmp_path: Path) -> TopicOnDisk:
    return TopicOnDisk(tmp_path / "data")


def test_a_null_that_was_sent_is_no_default(registry: SchemaRegistry) -> None:
    """A field that may be null and whose default is not: what Debezium makes of ``VARCHAR(9) NULL DEFAULT ''``."""
    text = ("f", ["string", "null"], {"default": "x"})
    inner = record(("g", "int"), text, name="N")
    versions = Versions(
        registry,
        record(("a", "int"), ("n", record(("g", "int"), name="N"))),
        record(("a", "int"), text, ("n", inner)),
    )
    rows = versions.rows(
        (1, {"a": 1, "n": {"g": 1}}),
        (2, {"a": 2, "f": None, "n": {"g": 2, "f": None}}),
        (2, {"a": 3, "f": "", "n": {"g": 3, "f": ""}}),
    ).to_pylist()
    assert [(row["f"], row["n"]["f"]) for row in rows] == [("x", "x"), (None, None), ("", "")]


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
def test_an_empty_message_that_gets_fields_later(registry: SchemaRegistry, tmp_path: Path, kind: str) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(f"spark.sql.warehouse.dir {tmp_path / 'tables'}\n")
    topic = TopicSpec("t", format="protobuf", subjects=("t-value",), message="Order", current="none")
    project = ProjectSpec(
        tmp_path, None, {"t": topic}, table_format=kind, registry=RegistrySpec(registry.url)
    )
    place = tmp_path / "tables" / "t_decoded"
    at = 0
    for fields, values in (
        ("", [b"\x0a\x01a\x12\x00", b"\x0a\x01b\x1a\x00", b"\x0a\x01c"]),
        ("int64 at = 1; string by = 2;", [b"\x0a\x01d\x12\x00", b"\x0a\x01e\x1a\x05\x08\x07\x12\x01x"]),
    ):
        schema_id = registry.register("t-value", ORDERS.replace("FIELDS", fields), "PROTOBUF")
        by = plan(topic, project)
        found = by.decode(pa.array([frame(schema_id, b"\x02\x04" + each) for each in values], pa.binary()))
        assert found.field("error").null_count == len(values), found.field("error")
        rows = dict(zip(by.fields.names, found.field("row").flatten(), strict=True))
        frame_of = pa.table({**rows, "_offset": pa.array(range(at, at + len(values)), pa.int64())})
        table = tables.open(place, kind, schema=frame_of.schema)
        ranges = [tables.OffsetRange("t", 0, at, at + len(values))]
        with table.writing():
            tables.append(table, frame_of, ranges, {"t": "id"})
        at += len(values)
    seen = {"ours": tables.open(place, kind).to_arrow()}
    for name, read in READERS[kind].items():
        if is_there(name) and (kind, name) != ("parquet", "Polars"):  # it takes files of one schema
            seen[name] = read(place, kind)
    for found in seen.values():
        rows = found.sort_by("_offset").to_pylist()
        events = [(row["id"], row["placed"] is not None, row["shipped"]) for row in rows]
        assert [each[:2] for each in events] == [
            ("a", True),
            ("b", False),
            ("c", False),
            ("d", True),
            ("e", False),
        ]
        shipped = [each[2] for each in events]
        assert shipped[0] is shipped[2] is shipped[3] is None
        assert shipped[1]["_present"] is True
        assert (shipped[1]["at"], shipped[1]["by"]) == (None, None)
        assert (shipped[4]["at"], shipped[4]["by"]) == (7, "x")
