"""Streams that read: a topic into files of a table, and a table's rows by the offsets that they have."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from magnetar.pipeline.admission import admit
from magnetar.pipeline.history import Marks
from magnetar.pipeline.options import Offsets, TopicPartition, parse_options
from magnetar.pipeline.plan import ask_of
from magnetar.pipeline.progress import from_json, ids_of, marks_of, to_json
from magnetar.pipeline.source import StreamReader
from magnetar.pipeline.tables.directory import TableDirectory
from magnetar.pipeline.tables.errors import TableError
from magnetar.pipeline.tables.files import DataFile, fit, rows_of
from magnetar.pipeline.tables.following import check_history
from magnetar.pipeline.tables.ranges import OffsetRange, ranges_between
from magnetar.pipeline.tables.records import SLICE_BYTES, TopicView, WriteRecords, tasks_of
from magnetar.pipeline.tables.schema import PLACE, bronze_schema
from magnetar.pipeline.tables.stream_writer import WrittenFiles
from magnetar.pipeline.tables.table import Table, note_attempt

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from magnetar.pipeline.tables.options import TableOptions

_WANTED = {"sliceBytes": str(SLICE_BYTES), "includePositions": "true", "includeHeaders": "true"}


@dataclass(frozen=True)
class FilesOfBatch(InputPartition):  # type: ignore[misc]
    """What one task writes; ``ranges`` are those of the whole batch, which is committed at once."""

    notes: TableDirectory
    task: WriteRecords
    ranges: Sequence[OffsetRange]
    topics: Mapping[str, str]
    marks: Marks


class FilesReader(StreamReader):
    """A topic's stream whose tasks write the records to files of the table, and give only what they wrote."""

    def __init__(self, options: TableOptions) -> None:
        assert options.topic is not None
        super().__init__(parse_options({**options.topic, **_WANTED}, streaming=True))
        if self._options.skip_damage:
            raise ValueError("onDamage must be fail here: a table has no place for what could not be read")
        self._table_options = options
        self._is_checked = False

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[FilesOfBatch]:
        table = self._table_options.open(bronze_schema())
        self._check(table)
        ends = from_json(end)
        # What the table has, by an earlier run that died or by `magnetar table sync`, is not written again.
        there = {which: at for which, at in table.position().items() if which in ends}
        starts = from_json(start) | {
            w: min(max(at, from_json(start).get(w, 0)), ends[w]) for w, at in there.items()
        }
        pieces = self.slices(to_json(starts, ids_of(start), marks_of(start)), end)
        ranges = _ranges(starts, ends, pieces)
        written = {"place": table.data, "schema": table.schema, "layout": table.layout, "attempt": ""}
        # Nobody tells this process how many cores a cluster has; minPartitions does.
        parallelism = self._options.min_partitions or len(os.sched_getaffinity(0))
        tasks = tasks_of(pieces, parallelism=parallelism, ask=ask_of(self._options), **written)
        if ranges and not tasks:  # offsets without records count as read, too
            tasks = [WriteRecords(pieces=(), ask=ask_of(self._options), **written)]
        return [FilesOfBatch(table.place, task, ranges, ids_of(end), marks_of(end)) for task in tasks]

    def _check(self, table: Table) -> None:
        """Once, before the first batch: compare what the table has with the topic; see `check_history`."""
        if self._is_checked:
            return
        assert self._table_options.topic is not None
        with TopicView(self._table_options.topic) as look:
            table.check_topics(look.ids)
            back = check_history(look, table, has_records=True)
            if back:
                with table.writing():
                    table.rewind(back, look.ids)
        self._is_checked = True

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, FilesOfBatch):
            return  # where nothing is planned, Spark sends a partition of its own
        attempt = note_attempt(partition.notes, partition.task.place)
        files = replace(partition.task, attempt=attempt)()
        told = WrittenFiles(
            (attempt,), tuple(files), tuple(partition.ranges), dict(partition.topics), partition.marks
        )
        yield pa.RecordBatch.from_pydict({"files": pa.array([pickle.dumps(told)], pa.binary())})


def _ranges(starts: Offsets, ends: Offsets, pieces: Sequence[Any]) -> list[OffsetRange]:
    """Return what a batch brings; a partition that its beginning does not know begins with its first piece."""
    first: Offsets = {}
    for piece in pieces:
        which = TopicPartition(piece.topic, piece.partition)
        first[which] = min(piece.low, first.get(which, piece.low))
    return ranges_between(
        {which: starts.get(which, first.get(which, end)) for which, end in ends.items()}, ends
    )


@dataclass(frozen=True)
class RowsOfFile(InputPartition):  # type: ignore[misc]
    """One file, and the offsets of it that a batch wants."""

    place: TableDirectory
    file: DataFile
    ranges: Sequence[OffsetRange]


class RowsReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """A table's rows as a stream. Its offsets are the table's position, so joined files are no new rows."""

    def __init__(self, options: TableOptions, schema: StructType) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self._options = options
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._target: Offsets | None = None

    def initialOffset(self) -> dict[str, Any]:
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_offsets)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._position()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        known = from_json(start)
        ends = self._position() if self._target is None else self._target
        if not isinstance(limit, ReadAllAvailable):
            ends = admit(known, ends, self._options.max_offsets)
        return to_json({**known, **ends})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RowsOfFile]:
        known, ends = from_json(start), from_json(end)
        ranges = ranges_between({which: known.get(which, 0) for which in ends}, ends)
        table = self._table()
        if table is None or not ranges:
            return []
        files = table.files()
        table.check_deletes(files)
        return [RowsOfFile(table.data, file, ranges) for file in files if _may_have(file, ranges)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RowsOfFile):
            return
        with partition.place.open(partition.file.path) as source:
            file = pq.ParquetFile(source)
            groups = [n for n in range(file.num_row_groups) if _reaches(file, n, partition.ranges)]
            for batch in rows_of(file, partition.file, groups):
                wanted = batch.filter(_mask(batch, partition.ranges))
                if wanted.num_rows:
                    yield fit(wanted, self._schema)

    def _table(self) -> Table | None:
        try:
            return self._options.open()
        except TableError:
            return None

    def _position(self) -> Offsets:
        table = self._table()
        return {} if table is None else table.position()


def _may_have(file: DataFile, ranges: Sequence[OffsetRange]) -> bool:
    """Return whether a file's statistics leave it possible; without any it is."""
    if "offset" not in file.stats:
        return True
    low, high, _ = file.stats["offset"]
    return any(low < each.high and high >= each.low for each in ranges)


def _reaches(file: Any, group: int, ranges: Sequence[OffsetRange]) -> bool:
    row_group = file.metadata.row_group(group)
    stats = row_group.column(_column(row_group)).statistics
    if stats is None or not stats.has_min_max:
        return True
    return any(stats.min < each.high and stats.max >= each.low for each in ranges)


def _column(row_group: Any) -> int:
    paths = (row_group.column(number).path_in_schema for number in range(row_group.num_columns))
    return next(number for number, path in enumerate(paths) if path == PLACE[2])


def _mask(batch: pa.RecordBatch, ranges: Sequence[OffsetRange]) -> pa.Array:
    topic, partition, offset = (batch.column(batch.schema.names.index(name)) for name in PLACE)
    found = pa.repeat(pa.scalar(False), batch.num_rows)
    for each in ranges:
        here = pc.and_(pc.equal(topic, each.topic), pc.equal(partition, each.partition))
        inside = pc.and_(pc.greater_equal(offset, each.low), pc.less(offset, each.high))
        found = pc.or_(found, pc.and_(here, inside))
    return found
