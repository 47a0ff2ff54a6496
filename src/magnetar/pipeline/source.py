"""``spark.read.format("magnetar")`` and ``readStream``: topics straight from their ledgers, past the broker.

Options are in `magnetar.pipeline.options`. The driver plans slices; each task maps one ledger, checks every entry's
checksum and yields Arrow batches. Rows are those that a Fetch would bring.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
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

from magnetar.pipeline.options import Offsets, SourceOptions, TopicPartition, parse_options

if TYPE_CHECKING:
    import pyarrow as pa

    from magnetar.pipeline.plan import Plan
    from magnetar.pipeline.slices import LedgerSlice

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
}


class MagnetarDataSource(DataSource):  # type: ignore[misc]
    """What Spark finds under the name ``magnetar``."""

    @classmethod
    def name(cls) -> str:
        return "magnetar"

    def schema(self) -> StructType:
        """Give the columns that the options ask for."""
        streaming = not any(name.lower().startswith("ending") for name in self.options)
        return spark_schema(parse_options(self.options, streaming=streaming).columns)

    def reader(self, schema: StructType) -> LedgerReader:
        return LedgerReader(parse_options(self.options, streaming=False), _columns(schema))

    def streamReader(self, schema: StructType) -> LedgerStreamReader:
        return LedgerStreamReader(parse_options(self.options, streaming=True), _columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from magnetar.pipeline.sink import make_writer

        return make_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from magnetar.pipeline.sink import make_stream_writer

        return make_stream_writer(self.options, schema)


def spark_schema(columns: Sequence[str]) -> StructType:
    """Give Spark's schema of these columns."""
    return StructType([StructField(name, _TYPES[name]) for name in columns])


def _columns(schema: StructType) -> tuple[str, ...]:
    """Give the columns of a schema, which a user may have narrowed by ``.schema(...)``."""
    for field in schema.fields:
        if field.name not in _TYPES or field.dataType != _TYPES[field.name]:
            raise ValueError(f"there is no column {field.name} of type {field.dataType.simpleString()} here")
    return tuple(schema.fieldNames())


def make_plan(options: SourceOptions) -> Plan:
    """Look at the data directory now."""
    # Spark imports this module in several processes before the first row; only those that need the kernel load it.
    from magnetar.pipeline.plan import Plan

    return Plan(options)


def read(partition: Any, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Give a slice's records. Where we plan nothing, Spark sends a partition of its own."""
    from magnetar.pipeline.slices import LedgerSlice, read_slice

    return read_slice(partition, columns) if isinstance(partition, LedgerSlice) else iter(())


class LedgerReader(DataSourceReader):  # type: ignore[misc]
    """A batch: what was visible when it was planned."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[LedgerSlice]:
        plan = make_plan(self._options)
        return plan.slices(plan.starts(), plan.ends())

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return read(partition, self._columns)


class LedgerStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """A stream: its offsets are ``{topic: {partition: offset}}``, as those of Spark's Kafka source."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._target: Offsets | None = None

    def initialOffset(self) -> dict[str, dict[str, int]]:
        return to_json(make_plan(self._options).starts())

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = make_plan(self._options).latest()

    def latestOffset(self, start: dict[str, dict[str, int]], limit: ReadLimit) -> dict[str, dict[str, int]]:
        plan = None if self._target is not None else make_plan(self._options)
        ends = self._target if plan is None else plan.latest()
        assert ends is not None
        starts = from_json(start)
        # A partition that is gone, or was emptied, is for `partitions` to judge: offsets never go back here.
        ends = {**starts, **{which: max(end, starts.get(which, 0)) for which, end in ends.items()}}
        return to_json(admit(starts, ends, limit.max_rows) if isinstance(limit, ReadMaxRows) else ends)

    def reportLatestOffset(self) -> dict[str, dict[str, int]]:
        return to_json(make_plan(self._options).latest())

    def partitions(
        self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]
    ) -> list[LedgerSlice]:
        return make_plan(self._options).slices(from_json(start), from_json(end))

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return read(partition, self._columns)


def admit(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], most: int) -> Offsets:
    """Give ends that admit about ``most`` records, in proportion to what each partition has to give.

    Each partition with records gives at least one, so that none starves.
    """
    waiting = {which: end - starts.get(which, 0) for which, end in ends.items()}
    total = sum(waiting.values())
    if total <= most:
        return dict(ends)
    return {
        which: starts.get(which, 0) + (max(count * most // total, 1) if count else 0)
        for which, count in waiting.items()
    }


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Give Spark's form of offsets."""
    found: dict[str, dict[str, int]] = {}
    for which, offset in sorted(offsets.items()):
        found.setdefault(which.topic, {})[str(which.partition)] = offset
    return found


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Read what `to_json` gave."""
    return {TopicPartition(t, int(p)): offset for t, ps in offsets.items() for p, offset in ps.items()}
