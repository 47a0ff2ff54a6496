"""``spark.read.format("magnetar")`` and ``readStream``: topics straight from their ledgers, past the broker.

Options are in `magnetar.pipeline.options`. The driver plans slices; each task maps one ledger, checks every entry's
checksum and yields Arrow batches. Rows are those that a Fetch would bring. Spark imports this module in several
processes before the first row, so what needs the kernel is imported where it is used.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from magnetar.pipeline.admission import admit
from magnetar.pipeline.options import DAMAGE, SourceOptions, parse_options
from magnetar.pipeline.progress import from_json, to_json

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from magnetar.pipeline.filters import Scope
    from magnetar.pipeline.port import Slice
    from magnetar.pipeline.stream import Stream

__all__ = [
    "BatchReader",
    "MagnetarDataSource",
    "PushingReader",
    "StreamReader",
    "admit",
    "from_json",
    "spark_schema",
    "to_json",
]

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
    "ledger_id": LongType(),
    "entry_id": LongType(),
    "batch_index": IntegerType(),
    "publish_time": TimestampType(),
    "damage": StructType(
        [
            StructField("reason", StringType()),
            StructField("last_offset", LongType()),
            StructField("ledger_id", LongType()),
            StructField("entry_id", LongType()),
            StructField("position", LongType()),
        ]
    ),
}
_PUSHES = "pyspark.sql.worker.data_source_pushdown_filters"


class MagnetarDataSource(DataSource):  # type: ignore[misc]
    """What Spark finds under the name ``magnetar``."""

    @classmethod
    def name(cls) -> str:
        return "magnetar"

    def schema(self) -> StructType:
        """Return the columns that the options ask for."""
        return spark_schema(parse_options(self.options, streaming=None).columns)

    def reader(self, schema: StructType) -> BatchReader:
        options = _narrowed(parse_options(self.options, streaming=False), schema)
        # Spark refuses a reader that could push filters where it is told not to; so there are two kinds.
        pushes = options.push_filters and _spark_pushes_filters()
        return PushingReader(options) if pushes else BatchReader(options)

    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(_narrowed(parse_options(self.options, streaming=True), schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from magnetar.pipeline.sink import make_writer

        return make_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from magnetar.pipeline.sink import make_stream_writer

        return make_stream_writer(self.options, schema)


def spark_schema(columns: Sequence[str]) -> StructType:
    """Return Spark's schema of these columns."""
    return StructType([StructField(name, _TYPES[name]) for name in columns])


def _narrowed(options: SourceOptions, schema: StructType) -> SourceOptions:
    """Return the options with the columns of a schema, which a user may have narrowed by ``.schema(...)``."""
    for field in schema.fields:
        if field.name not in _TYPES or field.dataType != _TYPES[field.name]:
            known = ", ".join(f"{name} {kind.simpleString()}" for name, kind in _TYPES.items())
            raise ValueError(
                f"there is no column {field.name} of type {field.dataType.simpleString()} here; there are: {known}"
            )
    names = tuple(schema.fieldNames())
    if options.skip_damage and DAMAGE not in names:
        raise ValueError(
            "onDamage=skip needs the column 'damage': without it nobody would see what was skipped"
        )
    return replace(options, columns=names)


def _spark_pushes_filters() -> bool:
    """Return whether this process is one in which Spark pushes filters down; only then does it import that module."""
    started = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHES in sys.modules or getattr(started, "name", None) == _PUSHES


class SparkSlice(InputPartition):  # type: ignore[misc]
    """A slice as Spark carries it to a task. Slices know nothing of Spark, which takes long to import."""

    value: Slice


def read(partition: Any, options: SourceOptions, scope: Scope | None = None) -> Iterator[pa.RecordBatch]:
    """Return the records of a slice, or of the one in a `SparkSlice`. For a plan without slices Spark sends a partition
    of its own, which has none.
    """
    from magnetar.pipeline.plan import ask_of

    if isinstance(partition, SparkSlice):
        partition = partition.value
    elif isinstance(partition, InputPartition):
        return iter(())
    ask = ask_of(options)
    found: Iterator[pa.RecordBatch] = partition.read(ask if scope is None else scope.narrowed(ask))
    return found


class BatchReader(DataSourceReader):  # type: ignore[misc]
    """A batch: what was visible when it was planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._scope: Scope | None = None

    def partitions(self) -> list[SparkSlice]:
        from magnetar.pipeline.plan import Plan
        from magnetar.pipeline.slices import settle

        plan = Plan(self._options)
        pieces = plan.slices(plan.starts(), plan.ends(), self._scope)
        if self._options.data is not None:
            from magnetar.pipeline.stream import hold_for_a_while

            hold_for_a_while(self._options, pieces)
        plan.close()
        settle()  # now that all is loaded, a kernel too if the plan needed one
        return [SparkSlice(each) for each in pieces]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return read(partition, self._options, self._scope)


class PushingReader(BatchReader):
    """A batch of which filters leave out slices, entries and records."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        from magnetar.pipeline.filters import pushed

        self._scope, left = pushed(filters)
        yield from left


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """A stream: its offsets are ``{topic: {partition: offset}}``, as those of Spark's Kafka source."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._running: Stream | None = None

    @property
    def _stream(self) -> Stream:
        if self._running is None:
            from magnetar.pipeline.stream import Stream

            self._running = Stream(self._options)
        return self._running

    def initialOffset(self) -> dict[str, Any]:
        return self._stream.initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        return self._stream.default_limit()

    def prepareForTriggerAvailableNow(self) -> None:
        self._stream.aim()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return self._stream.next(start, limit)

    def reportLatestOffset(self) -> dict[str, Any]:
        return self._stream.latest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[SparkSlice]:
        return [SparkSlice(each) for each in self.slices(start, end)]

    def slices(self, start: dict[str, Any], end: dict[str, Any]) -> list[Slice]:
        """Return what a batch reads."""
        return self._stream.slices(start, end)

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return read(partition, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        self._stream.done(end)

    def stop(self) -> None:
        if self._running is not None:
            self._running.close()
