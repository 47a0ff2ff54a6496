"""The ends of Spark's streams that are tables, without Spark: batches come, are repeated, and are lost on the way."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StructField, StructType

from magnetar.pipeline import tables
from magnetar.pipeline.table_source import FILES, TableDataSource
from magnetar.pipeline.tables.files import attempt_of
from magnetar.pipeline.tables.options import parse_table_options
from tests.pipeline.tables.conftest import TopicOnDisk, rows_of

CHANGE = pa.schema(
    [
        ("what", pa.string()), ("_topic", pa.string()), ("_timestamp", pa.timestamp("us", tz="UTC")),
        ("_key", pa.binary()), ("_partition", pa.int32()), ("_offset", pa.int64()), ("_at_partition", pa.int32()),
        ("_at_offset", pa.int64()), ("_replayed", pa.bool_()), ("_deleted", pa.bool_()),
    ]
)  # fmt: skip


class Files:
    """A topic's stream into files, as Spark drives it."""

    def __init__(self, topic: TopicOnDisk, where: Path, kind: str) -> None:
        options = {"table": str(where), "tableFormat": kind, "subscribe": "t", "path": str(topic.data)}
        options["startingOffsets"] = "earliest"
        self._reader = TableDataSource(options).streamReader(FILES)
        self._writer = TableDataSource(options).streamWriter(FILES, False)
        self.at = self._reader.initialOffset()

    def end(self) -> dict[str, Any]:
        return self._reader.latestOffset(self.at, ReadAllAvailable())

    def write(self, end: dict[str, Any]) -> list[Any]:
        """Run the tasks of a batch."""
        parts = self._reader.partitions(self.at, end)
        return [self._writer.write(self._reader.read(part)) for part in parts]

    def commit(self, messages: list[Any]) -> None:
        self._writer.commit(messages, 0)


def leftovers(table: tables.Table) -> set[str]:
    """Return files that are not in the table, and notes."""
    table.refresh()
    listed = {each.path for each in table.files()}
    notes = {name for name in table.place.child("_magnetar").names() if name.startswith(("attempt", "dead"))}
    return {name for name in table.data.names() if attempt_of(name)} - listed | notes


@pytest.mark.slow
def test_a_topic_in_files_written_by_the_source(topic: TopicOnDisk, tmp_path: Path, kind: str) -> None:
    where = tmp_path / "lake" / "t"
    stream = Files(topic, where, kind)
    end = stream.end()
    lost = stream.write(end)  # the driver dies, and Spark repeats the batch
    messages = stream.write(end)
    stream.commit(messages)
    table = tables.open(where, create=False)
    assert rows_of(table.to_arrow()) == topic.rows()
    assert len(lost) == len(messages)
    assert leftovers(table) == set()
    stream.commit(stream.write(end))  # it had been committed, and the checkpoint did not say so
    with pytest.raises(tables.TableConflict, match="taken for those of a dead writer"):
        topic.grow()
        late = stream.write(stream.end())
        table.clean()
        stream.commit(late)
    again = Files(topic, where, kind)  # a new checkpoint: the table knows where to go on
    again.commit(again.write(again.end()))
    table.refresh()
    assert rows_of(table.to_arrow()) == topic.rows()
    assert leftovers(table) == set()


@pytest.mark.slow
def test_the_rows_of_a_table_come_once_whatever_is_joined(
    topic: TopicOnDisk, tmp_path: Path, kind: str
) -> None:
    where = tmp_path / "lake" / "t"
    table = tables.open(where, kind)
    source = TableDataSource({"path": str(where), "maxOffsetsPerTrigger": "700"})
    reader = source.streamReader(source.schema())
    seen: list[pa.RecordBatch] = []
    at = reader.initialOffset()
    assert reader.latestOffset(at, reader.getDefaultReadLimit()) == {}
    for _ in range(10):
        tables.sync("t", table, options=topic.options)
        while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
            seen += [batch for part in reader.partitions(at, end) for batch in reader.read(part)]
            at = end
        topic.grow(4)
    found = rows_of(pa.Table.from_batches(seen))
    assert found == topic.rows()[:0] + [row for row in topic.rows() if row in found]
    assert len(found) == len(rows_of(table.to_arrow()))


def changes(*rows: tuple[str, str | None, int, int, int]) -> Iterator[pa.RecordBatch]:
    """Yield changes (key, value, partition, offset, time); their places are their own."""
    yield pa.RecordBatch.from_pylist(
        [
            {
                "what": what, "_topic": "t", "_timestamp": time * 1000, "_key": key.encode(), "_partition": partition,
                "_offset": offset, "_at_partition": partition, "_at_offset": offset, "_replayed": False,
                "_deleted": what is None,
            }
            for key, what, partition, offset, time in rows
        ],
        CHANGE,
    )  # fmt: skip


class State:
    """A table of current state, and the bronze table that tells what lies in the topic."""

    def __init__(self, place: Path, kind: str) -> None:
        self.place, self.kind = place, kind
        self.bronze = tables.open(place / "lake" / "bronze", kind)
        options = {
            "table": str(place / "lake" / "state"), "tableFormat": kind, "mode": "upsert",
            "place": "_topic,_at_partition,_at_offset", "bronze": str(place / "lake" / "bronze"),
            "deadLetters": str(place / "lake" / "dead"),
        }  # fmt: skip
        from pyspark.sql.pandas.types import from_arrow_schema

        self.writer = TableDataSource(options).streamWriter(from_arrow_schema(CHANGE), False)
        self.table = tables.open(place / "lake" / "state", create=False)

    def apply(self, batch: Iterator[pa.RecordBatch], *, times: int = 1) -> dict[str, str]:
        rows = list(batch)
        for _ in range(times):
            self.writer.commit([self.writer.write(iter(rows))], 0)
        self.table.refresh()
        self.table.expire(0)
        assert leftovers(self.table) == set()
        return {row["_key"].decode(): row["what"] for row in self.table.to_arrow().to_pylist()}

    def lies(self, *rows: tuple[str, int, int]) -> None:
        """Have bronze hold records of these keys and places."""
        for key, partition, offset in rows:
            row = {
                "topic": "t",
                "partition": partition,
                "offset": offset,
                "key": key.encode(),
                "headers": None,
            }
            frame = pa.Table.from_pylist([row], pa.schema([self.bronze.schema.field(n) for n in row]))
            with self.bronze.writing():
                tables.append(
                    self.bronze, frame, [tables.OffsetRange("t", partition, offset, offset + 1)], {"t": "id"}
                )


@pytest.mark.slow
def test_current_state_by_upsert(tmp_path: Path, kind: str) -> None:
    state = State(tmp_path, kind)
    first = changes(("a", "1", 0, 0, 5), ("b", "1", 0, 1, 5), ("a", "2", 0, 2, 4), ("c", "1", 1, 0, 9))
    assert state.apply(first, times=2) == {"a": "2", "b": "1", "c": "1"}
    second = changes(("b", None, 0, 3, 6), ("c", "old", 0, 4, 8), ("d", "1", 0, 5, 6))
    assert state.apply(second, times=2) == {"a": "2", "c": "1", "d": "1"}  # c moved from 0 to 1: time decides
    assert state.apply(changes(("a", None, 0, 6, 1))) == {"c": "1", "d": "1"}


@pytest.mark.slow
def test_a_record_sent_again_hides_nothing_later(tmp_path: Path, kind: str) -> None:
    """a was deleted behind its bad record, b was not; c has a later record that is bad itself."""
    state = State(tmp_path, kind)
    state.lies(("a", 0, 0), ("b", 0, 1), ("a", 0, 2), ("c", 0, 3), ("c", 0, 4))
    bad = pa.Table.from_pylist([{"partition": 0, "offset": 3}, {"partition": 0, "offset": 4}])
    (tmp_path / "lake" / "dead").mkdir()
    pa.parquet.write_table(bad, tmp_path / "lake" / "dead" / "part.parquet")
    state.apply(changes(("a", None, 0, 2, 1)))
    rows = [(b"a", 0), (b"b", 1), (b"c", 3)]
    (batch,) = changes(*((key.decode(), "mended", 0, offset, 1) for key, offset in rows))
    frame = pa.Table.from_batches([batch])
    at = frame.schema.get_field_index("_at_offset")
    frame = frame.set_column(at, "_at_offset", pa.array([5, 6, 7], pa.int64()))
    again = frame.schema.get_field_index("_replayed")
    frame = frame.set_column(again, "_replayed", pa.array([True] * 3))
    assert state.apply(iter(frame.to_batches())) == {"b": "mended", "c": "mended"}


@pytest.mark.slow
def test_upserts_in_any_batches_end_alike(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    rows = [(rng.choice("abcdefgh"), rng.choice(["x", "y", None]), 0, offset, 7) for offset in range(200)]
    due = {key: what for key, what, *_ in rows}
    state, at = State(tmp_path, "parquet"), 0
    while at < len(rows):
        size = rng.randrange(1, 60)
        found = state.apply(changes(*rows[at : at + size]), times=rng.choice((1, 2)))
        at += size
    assert found == {key: what for key, what in due.items() if what is not None}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "option table is missing"),
        ({"table": "t", "mode": "merge"}, "option mode must be one of append, upsert, not 'merge'"),
        ({"table": "t", "tableFormat": "csv"}, "option tableFormat must be one of parquet, delta, iceberg"),
        ({"table": "t", "place": "a,b"}, "option place must name three columns"),
        ({"table": "t", "maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger must be a number above 0"),
    ],
)
def test_bad_options(options: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_table_options(options)


def test_rows_without_a_place_are_refused(tmp_path: Path) -> None:
    source = TableDataSource({"table": str(tmp_path / "t")})
    with pytest.raises(
        ValueError, match="option place names columns that the rows do not have: topic, partition"
    ):
        source.streamWriter(StructType([StructField("key", BinaryType())]), False)
