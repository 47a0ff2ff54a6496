"""A frame's rows become record batches for topics: the columns of Spark's Kafka sink, and ``timestamp``.

    value      string or binary, needed          topic      string, needed unless the option topic is set
    key        string or binary                  partition  int; where null, the key decides as in Kafka's producer
    headers    array<struct<key string, value binary>>
    timestamp  timestamp; where it is null or missing, the time of writing

Other columns are left out, as Spark's sink does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from magnetar.records.encoder import Columns, Encoded

if TYPE_CHECKING:
    from magnetar.pipeline.sink_options import SinkOptions

COLUMNS = ("key", "value", "headers", "topic", "partition", "timestamp")
_FLUSH_BYTES = 32 << 20


class BadRow(ValueError):
    """A row that no topic can take."""


class OutgoingBatch(NamedTuple):
    """A batch, and where it goes."""

    topic: str
    partition: int
    batch: Encoded


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """Raise ``AnalysisException`` where Spark's Kafka sink would, in its words."""
    types = {field.name.lower(): field.dataType for field in schema.fields}
    if "value" not in types:
        raise AnalysisException("Required attribute 'value' not found.")
    if options.topic is None and "topic" not in types:
        raise AnalysisException(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    text = (StringType(), BinaryType())
    _check(types, "topic", (StringType(),), "STRING")
    _check(types, "key", text, "STRING or BINARY")
    _check(types, "value", text, "STRING or BINARY")
    _check(types, "partition", (IntegerType(),), "INT")
    _check(types, "timestamp", (TimestampType(),), "TIMESTAMP")
    headers = types.get("headers")
    if headers is not None and not _is_headers(headers):
        raise AnalysisException(
            f"headers attribute type must be ARRAY<STRUCT<key: STRING, value: BINARY>>, not {headers.simpleString()}"
        )


def _check(types: dict[str, DataType], name: str, allowed: tuple[DataType, ...], words: str) -> None:
    found = types.get(name)
    if found is not None and not isinstance(found, tuple(type(each) for each in allowed)):
        raise AnalysisException(f"{name} attribute type must be {words}, not {found.simpleString()}")


def _is_headers(found: DataType) -> bool:
    if not isinstance(found, ArrayType) or not isinstance(found.elementType, StructType):
        return False
    fields: list[StructField] = found.elementType.fields
    kinds = [(field.name.lower(), type(field.dataType)) for field in fields]
    return kinds == [("key", StringType), ("value", BinaryType)]


def outgoing(
    batches: Iterable[pa.RecordBatch],
    options: SinkOptions,
    partitions_of: Callable[[str], int],
    *,
    first_partition: int,
) -> Iterator[OutgoingBatch]:
    """Yield a task's rows as record batches; rows of one partition keep their order. Raises `BadRow`."""
    for table in _gathered(batches):
        yield from _encoded(table, options, partitions_of, first_partition)
        first_partition += 1


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield some Arrow batches at a time, as one table: the more rows at once, the larger a partition's batches."""
    some: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        names = [name for name in batch.schema.names if name.lower() in COLUMNS]
        batch = batch.select(names).rename_columns([name.lower() for name in names])
        if batch.num_rows:
            some.append(batch)
            size += batch.nbytes
        if size >= _FLUSH_BYTES:
            yield pa.Table.from_batches(some)
            some, size = [], 0
    if some:
        yield pa.Table.from_batches(some)


def _encoded(
    table: pa.Table, options: SinkOptions, partitions_of: Callable[[str], int], first_partition: int
) -> Iterator[OutgoingBatch]:
    if options.topic is not None:
        yield from _of_topic(table, options.topic, options, partitions_of(options.topic), first_partition)
        return
    topics = table.column("topic")
    if topics.null_count:
        raise BadRow("null topic present in the data. Use the topic option for setting a topic.")
    for topic in pc.unique(topics).to_pylist():
        rows = table.filter(pc.equal(topics, topic))
        yield from _of_topic(rows, topic, options, partitions_of(topic), first_partition)


def _of_topic(
    table: pa.Table, topic: str, options: SinkOptions, partitions: int, first_partition: int
) -> Iterator[OutgoingBatch]:
    def column(name: str) -> pa.Array | None:
        return _one_array(table.column(name)) if name in table.column_names else None

    columns = Columns(
        table.num_rows,
        key=column("key"),
        value=column("value"),
        times=_times_ms(column("timestamp"), table.num_rows),
        headers=column("headers"),
    )
    asked = column("partition")
    numbers = None
    if asked is not None:
        numbers = pc.fill_null(asked, -1).to_numpy(zero_copy_only=False)
        wrong = numbers[(numbers >= partitions) | (numbers < -1)]
        if len(wrong) or pc.any(pc.less(asked, 0)).as_py():
            bad = int(wrong[0]) if len(wrong) else -1
            raise BadRow(
                f"partition {bad} is asked for, and topic {topic!r} has partitions 0 to {partitions - 1}"
            )
    chosen = columns.partitions(numbers, partitions, first=first_partition)
    order = np.argsort(chosen, kind="stable")
    ends = np.searchsorted(chosen[order], np.arange(partitions + 1))
    for partition in range(partitions):
        rows = order[ends[partition] : ends[partition + 1]]
        for batch in columns.batches_of(rows, target_bytes=options.batch_bytes, codec=options.codec):
            yield OutgoingBatch(topic, partition, batch)


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    return pa.concat_arrays(column.chunks)


def _times_ms(column: pa.Array | None, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    now_ms = int(time.time() * 1000)
    if column is None:
        return np.full(count, now_ms, np.int64)
    # Floor, not towards zero, as Spark's own unix_millis has it.
    micros = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    found: np.ndarray[tuple[int], np.dtype[np.int64]] = np.floor_divide(
        pc.fill_null(micros, now_ms * 1000).to_numpy(zero_copy_only=False), 1000
    )
    return found
