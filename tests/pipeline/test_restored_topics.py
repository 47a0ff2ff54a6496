"""A topic whose data directory was restored from a backup: streams and tables that read further stop, or go back.

The topic has the same id, a shorter log, and after a while other records at the offsets that were read.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from magnetar.pipeline import tables
from magnetar.pipeline.admission import admit
from magnetar.pipeline.history import RecordMark
from magnetar.pipeline.options import TopicPartition, parse_options
from magnetar.pipeline.plan import DataLost, ask_of
from magnetar.pipeline.progress import from_json, marks_of
from magnetar.pipeline.stream import Stream
from magnetar.pipeline.tables.options import parse_table_options
from magnetar.pipeline.tables.schema import bronze_schema
from magnetar.pipeline.tables.stream_reader import FilesReader
from magnetar.pipeline.tables.stream_writer import FilesWriter
from tests.pipeline.topics import create
from tests.process import BrokerProcess

FIRST, SECOND, REFILL = 10, 30, 35
"""Where the log ends at the backup, when it was read, and after new records came to what was restored."""


class Restored:
    """A topic as it was read, as it was restored, and as it is filled up again; one broker after the other."""

    def __init__(self, place: Path) -> None:
        self.data, self._backup = place / "data", place / "backup"
        self.broker = BrokerProcess(self.data)
        create(self.broker, "t")
        self.write("old", 0, FIRST)
        self.broker.end()
        shutil.copytree(self.data, self._backup)
        self._start()
        self.write("old", FIRST, SECOND)

    def write(self, word: str, low: int, high: int) -> None:
        producer = Producer({"bootstrap.servers": self.broker.address, "linger.ms": 20})
        for offset in range(low, high):
            producer.produce("t", f"{word} {offset}", key=str(offset), partition=0, timestamp=1_000 + offset)
        assert producer.flush(30) == 0

    def restore(self) -> None:
        """Put the backup in the directory's place."""
        self.broker.kill()
        shutil.rmtree(self.data)
        shutil.copytree(self._backup, self.data)
        self._start()

    def refill(self) -> None:
        self.write("new", FIRST, REFILL)

    def options(self, way: str) -> dict[str, str]:
        if way == "path":
            return {"path": str(self.data)}
        return {"kafka.bootstrap.servers": self.broker.address}

    def _start(self) -> None:
        self.broker = BrokerProcess(self.data)


@pytest.fixture(params=["path", "fetch"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def topic(tmp_path: Path) -> Iterator[Restored]:
    made = Restored(tmp_path)
    yield made
    made.broker.kill()


def stream(topic: Restored, way: str, **more: object) -> Stream:
    given = {"subscribe": "t", "startingOffsets": "earliest", **topic.options(way)}
    return Stream(parse_options(given | {k: str(v) for k, v in more.items()}, streaming=True))


def step(found: Stream, start: Any, limit: Any = None) -> tuple[Any, list[bytes]]:
    """Run one batch as Spark does; return where it ended, and the values that it read."""
    end = json.loads(json.dumps(found.next(start, limit or ReadAllAvailable())))
    if end == start:
        return end, []
    options = {"path": "/d", "subscribe": "t", "columns": "value"}
    ask = ask_of(parse_options(options, streaming=True))
    batches = [batch for piece in found.slices(start, end) for batch in piece.read(ask)]
    found.done(end)
    return end, [value for batch in batches for value in batch.column(0).to_pylist()]


def values(word: str, low: int, high: int) -> list[bytes]:
    return [f"{word} {offset}".encode() for offset in range(low, high)]


def test_a_stream_ahead_of_a_shorter_topic_stops_and_says_so(topic: Restored, way: str) -> None:
    at, seen = step(stream(topic, way), stream(topic, way).initial())
    assert seen == values("old", 0, SECOND)
    topic.restore()
    with pytest.raises(DataLost, match="t-0 ends at offset 10, and was read up to 30"):
        step(stream(topic, way), at)


def test_a_stream_recognises_another_history_of_the_same_length(topic: Restored, way: str) -> None:
    at, _ = step(stream(topic, way), stream(topic, way).initial())
    topic.restore()
    topic.refill()
    with pytest.raises(DataLost, match="t-0 has another record at offset 29"):
        step(stream(topic, way), at)


def test_a_stream_that_runs_meanwhile_recognises_it_too(topic: Restored) -> None:
    running = stream(topic, "path")
    at, _ = step(running, running.initial())
    topic.restore()
    topic.refill()
    with pytest.raises(DataLost, match="t-0 has another record at offset 29"):
        step(running, at)


def test_a_stream_goes_back_to_the_topics_end_where_loss_is_no_error(topic: Restored, way: str) -> None:
    at, _ = step(stream(topic, way), stream(topic, way).initial())
    topic.restore()
    careless = stream(topic, way, failOnDataLoss=False)
    with pytest.warns(UserWarning, match="t-0 ends at offset 10, and was read up to 30"):
        at, seen = step(careless, at)
    assert (from_json(at), seen) == ({("t", 0): FIRST}, [])
    topic.refill()
    at, seen = step(careless, at)
    assert (from_json(at), seen) == ({("t", 0): REFILL}, values("new", FIRST, REFILL))


def test_a_limited_stream_goes_back_as_well(topic: Restored) -> None:
    at, _ = step(stream(topic, "path"), stream(topic, "path").initial())
    topic.restore()
    careless = stream(topic, "path", failOnDataLoss=False, maxOffsetsPerTrigger=5)
    with pytest.warns(UserWarning, match="was read up to 30"):
        at, _ = step(careless, at, ReadMaxRows(5))
    topic.refill()
    at, seen = step(careless, at, ReadMaxRows(5))
    assert (from_json(at), seen) == ({("t", 0): FIRST + 5}, values("new", FIRST, FIRST + 5))


def test_a_batch_that_was_planned_before_is_judged_when_it_is_repeated(topic: Restored) -> None:
    planned = stream(topic, "path")
    start = planned.initial()
    end = planned.next(start, ReadAllAvailable())
    topic.restore()
    topic.refill()
    with pytest.raises(DataLost, match="t-0 has another record at offset 29"):
        stream(topic, "path").slices(start, end)


def test_a_restart_on_the_same_history_goes_on(topic: Restored, way: str) -> None:
    at, _ = step(stream(topic, way), stream(topic, way).initial())
    assert marks_of(at)[TopicPartition("t", 0)].offset == SECOND - 1
    topic.broker.kill()
    topic.broker = BrokerProcess(topic.data)
    topic.write("more", SECOND, REFILL)
    other = "fetch" if way == "path" else "path"  # both ways see one history
    at, seen = step(stream(topic, other), at)
    assert seen == values("more", SECOND, REFILL)
    assert marks_of(at)[TopicPartition("t", 0)].offset == REFILL - 1


def test_an_open_transaction_is_no_shorter_topic(topic: Restored, way: str) -> None:
    """What was read uncommitted may lie behind the last stable offset; the log ends behind it."""
    producer = Producer({"bootstrap.servers": topic.broker.address, "transactional.id": "open"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for offset in range(5):
        producer.produce("t", f"open {offset}", partition=0)
    assert producer.flush(30) == 0
    at, seen = step(stream(topic, way), stream(topic, way).initial())
    assert len(seen) == SECOND + 5
    committed = stream(topic, way, **{"kafka.isolation.level": "read_committed"})
    end, seen = step(committed, at)
    assert (from_json(end), seen) == (from_json(at), [])
    producer.abort_transaction(30)


@pytest.fixture(params=["parquet", "delta", "iceberg"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], tables.Table]:
    """Open one table of a format, each time anew."""
    place, kind = tmp_path / "lake" / "t", request.param
    return lambda: tables.open(place, kind)


def rows(table: tables.Table) -> list[bytes]:
    found = table.to_arrow(["offset", "value"]).sort_by("offset")
    return list(found["value"].to_pylist())


def test_a_table_ahead_of_its_topic_is_refused(
    topic: Restored, table: Callable[[], tables.Table], way: str
) -> None:
    tables.sync("t", table(), options=topic.options(way))
    topic.restore()
    with pytest.raises(DataLost, match="t-0 ends at offset 10, and was read up to 30"):
        tables.sync("t", table(), options=topic.options(way))
    topic.refill()
    for _ in range(2):
        with pytest.raises(DataLost, match="t-0 has another record at offset 29"):
            tables.sync("t", table(), options=topic.options(way))
    assert rows(table()) == values("old", 0, SECOND)
    with pytest.raises(DataLost, match="another record"):
        tables.missing("t", table(), options=topic.options(way))


def test_a_table_goes_back_where_loss_is_no_error(topic: Restored, table: Callable[[], tables.Table]) -> None:
    tables.sync("t", table(), options=topic.options("path"))
    topic.restore()
    careless = {**topic.options("path"), "failOnDataLoss": "false"}
    with pytest.warns(UserWarning, match="was read up to 30"):
        report = tables.sync("t", table(), options=careless)
    assert (report.rows, table().position()) == (0, {("t", 0): FIRST})
    assert table().history()[0].operation == "rewind"
    topic.refill()
    with warnings.catch_warnings(action="error"):
        assert tables.sync("t", table(), options=careless).rows == REFILL - FIRST
    assert sorted(rows(table())) == sorted(values("old", 0, SECOND) + values("new", FIRST, REFILL))


def test_a_table_goes_on_with_the_history_that_it_has_read(
    topic: Restored, table: Callable[[], tables.Table]
) -> None:
    tables.sync("t", table(), options=topic.options("path"), max_offsets_per_commit=7)
    topic.write("more", SECOND, REFILL)
    assert tables.sync("t", table(), options=topic.options("fetch")).rows == REFILL - SECOND
    assert {w: mark.offset for w, mark in table().marks().items()} == {("t", 0): REFILL - 1}


def test_a_table_without_marks_is_judged_by_its_last_row(
    topic: Restored, table: Callable[[], tables.Table]
) -> None:
    """Filled by `append`, as by a version that kept no marks."""
    fill_by_hand(table(), topic, "old")
    assert not table().marks()
    tables.sync("t", table(), options=topic.options("path"))
    topic.restore()
    topic.refill()
    with pytest.raises(DataLost, match="t-0 has another record at offset 29"):
        tables.sync("t", table(), options=topic.options("path"))


class Following:
    """A stream of a topic into a table, run batch by batch as Spark does."""

    def __init__(self, topic: Restored, place: Path, kind: str, **more: str) -> None:
        given = {"table": str(place), "tableFormat": kind, "subscribe": "t", "startingOffsets": "earliest"}
        self._options = parse_table_options({**given, **topic.options("path"), **more})
        self._reader = FilesReader(self._options)

    def start(self) -> Any:
        return self._reader.initialOffset()

    def step(self, start: Any) -> Any:
        end = json.loads(json.dumps(self._reader.latestOffset(start, ReadAllAvailable())))
        if end != start:
            writer = FilesWriter(self._options, bronze_schema())
            written = [writer.write(self._reader.read(each)) for each in self._reader.partitions(start, end)]
            writer.commit(written, 0)
            self._reader.commit(end)
        return end


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_a_stream_into_a_table_keeps_marks_and_stops_for_a_table_ahead_of_its_topic(
    topic: Restored, tmp_path: Path, kind: str
) -> None:
    place = tmp_path / "lake" / "t"
    following = Following(topic, place, kind)
    following.step(following.start())
    table = tables.open(place)
    assert rows(table) == values("old", 0, SECOND)
    assert [mark.offset for mark in table.marks().values()] == [SECOND - 1]
    topic.restore()
    topic.refill()
    anew = Following(topic, place, kind)  # without a checkpoint: what the table has would be passed over
    with pytest.raises(DataLost, match="t-0 has another record at offset 29"):
        anew.step(anew.start())
    assert rows(tables.open(place)) == values("old", 0, SECOND)


def test_a_stream_into_a_table_goes_back_with_its_topic_where_loss_is_no_error(
    topic: Restored, tmp_path: Path
) -> None:
    place = tmp_path / "lake" / "t"
    following = Following(topic, place, "parquet")
    following.step(following.start())
    topic.restore()
    careless = Following(topic, place, "parquet", failOnDataLoss="false")
    with pytest.warns(UserWarning, match="was read up to 30"):
        at = careless.step(careless.start())
    topic.refill()
    careless.step(at)
    assert sorted(rows(tables.open(place))) == sorted(values("old", 0, SECOND) + values("new", FIRST, REFILL))


def fill_by_hand(table: tables.Table, topic: Restored, word: str) -> None:
    columns = {
        "topic": ["t"] * SECOND,
        "partition": [0] * SECOND,
        "offset": list(range(SECOND)),
        "key": [str(offset).encode() for offset in range(SECOND)],
        "value": values(word, 0, SECOND),
        "timestamp": [(1_000 + offset) * 1000 for offset in range(SECOND)],
    }
    schema = bronze_schema()
    made = pa.table(
        [
            pa.array(columns[f.name]).cast(f.type) if f.name in columns else pa.nulls(SECOND, f.type)
            for f in schema
        ],
        schema=schema,
    )
    ranges, ids = tables.missing("t", table, options=topic.options("path"))
    with table.writing():
        tables.append(table, made, ranges, ids)


def test_marks_are_numbers_for_delta_and_come_back() -> None:
    mark = RecordMark(1234, "0123456789abcd")
    packed = mark.packed(1250)
    assert packed is not None
    assert 0 <= packed < 1 << 62
    assert RecordMark.unpacked(packed, 1250) == RecordMark.parse(str(mark)) == mark
    assert mark.packed(1235 + 64) is None
    assert mark.packed(1234) is None
    with pytest.raises(ValueError, match="no mark"):
        RecordMark.parse("12:ab")


def test_admission_goes_back_with_a_topic_and_shares_the_rest() -> None:
    a, b, c = (TopicPartition("t", each) for each in range(3))
    assert admit({a: 30, b: 0, c: 0}, {a: 10, b: 100, c: 100}, 20) == {a: 10, b: 10, c: 10}
