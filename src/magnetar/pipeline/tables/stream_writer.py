"""Streams that write: a task writes files under a note of its own, and one commit per batch brings them all.

A batch that Spark repeats after a crash has the same offsets; the table has them, so it is left as it is, and the
files of the repeated tasks go. What a killed run left behind goes with the next commit.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from magnetar.pipeline.history import Marks
from magnetar.pipeline.tables.directory import TableDirectory
from magnetar.pipeline.tables.files import DataFile, Layout, fit, order_of, read_in_order, write_files
from magnetar.pipeline.tables.lock import writer_lock
from magnetar.pipeline.tables.ranges import OffsetRange
from magnetar.pipeline.tables.table import Table, note_attempt

if TYPE_CHECKING:
    from magnetar.pipeline.tables.options import TableOptions


@dataclass(frozen=True)
class WrittenFiles(WriterCommitMessage):  # type: ignore[misc]
    """What tasks wrote: their attempts, files, and the offsets that these were made of."""

    attempts: tuple[str, ...] = ()
    files: tuple[DataFile, ...] = ()
    ranges: tuple[OffsetRange, ...] = ()
    topics: Mapping[str, str] = field(default_factory=dict)
    marks: Marks = field(default_factory=dict)


class _TableWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    def __init__(self, options: TableOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        done = together([each for each in messages if isinstance(each, WrittenFiles)])
        if not done.attempts:
            return
        table = self._options.open(self._table_schema)
        with writer_lock(table.place):
            table.refresh()
            self._put(table, done)
            table.clean()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        done = together([each for each in messages if isinstance(each, WrittenFiles)])
        if done.attempts:
            self._options.open(self._table_schema).drop(done.attempts)

    @property
    def _table_schema(self) -> pa.Schema:
        return self._schema

    def _put(self, table: Table, done: WrittenFiles) -> None:
        """Commit a batch, unless the table has it; the lock is held."""
        from magnetar.pipeline.tables.frames import evolve

        evolve(table, self._table_schema)
        table.adopt(done.attempts, done.files, done.ranges, done.topics, done.marks)


class FilesWriter(_TableWriter):
    """Takes files that the source's tasks wrote."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFiles:
        return together([pickle.loads(each.as_py()) for batch in iterator for each in batch.column(0)])


class RowsWriter(_TableWriter):
    """Takes rows that were made of a topic, each with its place."""

    def __init__(self, options: TableOptions, schema: pa.Schema) -> None:
        super().__init__(options, schema)
        table = options.open(self._table_schema)
        self._notes, self._data, self._layout = table.place, table.data, table.layout

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFiles:
        spans = Spans(self._options.place)
        attempt = note_attempt(self._notes, self._data)
        files = self._write(spans.watched(fit(each, self._schema) for each in iterator), attempt)
        return WrittenFiles((attempt,), tuple(files), tuple(spans.ranges()), {})

    def _write(self, batches: Iterator[pa.RecordBatch], attempt: str) -> list[DataFile]:
        return write_rows(self._data, self._schema, self._layout, attempt, batches, self._options.place)

    def _put(self, table: Table, done: WrittenFiles) -> None:
        if not done.ranges:
            table.drop(done.attempts)
            return
        super()._put(table, WrittenFiles(done.attempts, done.files, done.ranges, self._topics(done.ranges)))

    def _topics(self, ranges: Sequence[OffsetRange]) -> dict[str, str]:
        """Return the topics' ids, as bronze knows them."""
        from magnetar.pipeline import tables

        known = (
            {} if self._options.bronze is None else tables.open(self._options.bronze, create=False).topics()
        )
        return {each.topic: known.get(each.topic, "") for each in ranges}


class UpsertWriter(RowsWriter):
    """Takes changes, and keeps one row per key (`magnetar.pipeline.tables.current`)."""

    @property
    def _table_schema(self) -> pa.Schema:
        from magnetar.pipeline.tables.current import state_schema

        return state_schema(self._schema)

    def _put(self, table: Table, done: WrittenFiles) -> None:
        from magnetar.pipeline.tables.current import apply

        if done.ranges and not table.has(done.ranges):
            table.check_attempts(done.attempts)
            batches = [batch for _, batch in read_in_order(self._data, done.files, self._schema)]
            changes = pa.Table.from_batches(batches, self._schema)
            apply(
                table, changes, done.ranges, self._topics(done.ranges),
                bronze=self._options.bronze, dead_letters=self._options.dead_letters,
            )  # fmt: skip
        table.drop(done.attempts)


class Spans:
    """Notes, per partition, from which offset to which the rows are that go by."""

    def __init__(self, place: Sequence[str]) -> None:
        self._place = list(place)
        self._found: dict[tuple[str, int], tuple[int, int]] = {}

    def watched(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass the batches on."""
        topic, partition, offset = self._place
        for batch in batches:
            if not batch.num_rows:
                continue
            rows = pa.Table.from_batches([batch]).select(self._place)
            for each in (
                rows.group_by([topic, partition]).aggregate([(offset, "min"), (offset, "max")]).to_pylist()
            ):
                which = each[topic], each[partition]
                low, high = self._found.get(which, (each[f"{offset}_min"], 0))
                self._found[which] = min(low, each[f"{offset}_min"]), max(high, each[f"{offset}_max"] + 1)
            yield batch

    def ranges(self) -> list[OffsetRange]:
        """Return what went by."""
        return [OffsetRange(*which, *span) for which, span in sorted(self._found.items())]


def together(written: Sequence[WrittenFiles]) -> WrittenFiles:
    """Return what all tasks of a batch wrote as one."""
    spans: dict[tuple[str, int], tuple[int, int]] = {}
    for each in (span for one in written for span in one.ranges):
        low, high = spans.get(each[:2], each[2:])
        spans[each[:2]] = min(low, each.low), max(high, each.high)
    topics: dict[str, str] = {}
    marks: Marks = {}
    for one in written:
        topics |= one.topics
        marks |= one.marks
    return WrittenFiles(
        tuple(name for one in written for name in one.attempts),
        tuple(file for one in written for file in one.files),
        tuple(OffsetRange(*which, *span) for which, span in sorted(spans.items())),
        topics,
        marks,
    )


def write_rows(
    data: TableDirectory, schema: pa.Schema, layout: Layout, attempt: str, batches: Iterator[pa.RecordBatch],
    place: Sequence[str],
) -> list[DataFile]:  # fmt: skip
    """Write batches whose columns ``place`` say where each row comes from."""

    def ordered() -> Iterator[tuple[str, pa.RecordBatch]]:
        for batch in batches:
            first: list[Any] = [batch.column(batch.schema.names.index(name))[0].as_py() for name in place]
            yield order_of(*first), batch

    return write_files(data, schema, layout, attempt, ordered())
