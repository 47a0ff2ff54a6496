"""Rows that somebody made, Spark frames or Arrow, into a table: with their offset ranges in the same commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from magnetar.pipeline.tables.directory import TableDirectory
from magnetar.pipeline.tables.engine import ANSWER, answer, answers
from magnetar.pipeline.tables.errors import TableError
from magnetar.pipeline.tables.evolution import CannotEvolve, evolved_schema
from magnetar.pipeline.tables.files import DataFile, Layout, fit, order_of, write_files
from magnetar.pipeline.tables.ranges import OffsetRange
from magnetar.pipeline.tables.schema import PLACE, plain_schema
from magnetar.pipeline.tables.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def append(
    table: Table,
    rows: DataFrame | pa.Table | pa.RecordBatchReader,
    ranges: Sequence[OffsetRange],
    topics: Mapping[str, str],
) -> list[DataFile]:
    """Add ``rows``, which were made of the offsets ``ranges`` of ``topics`` (name to id), in one commit.

    Columns that the table does not have are added to it first (`evolve`). The caller holds the writer's lock
    (`Table.writing`). Raises ``OffsetsCommitted`` if the table has some of the ranges already: then it has the rows.
    """
    evolve(table, schema_of(rows))
    return table.append(lambda attempt: written(table, rows, attempt), ranges, topics)


def written(table: Table, rows: Any, attempt: str, *, sorted_by: tuple[str, ...] = ()) -> Iterator[DataFile]:
    """Write files of rows for an attempt; Spark's tasks do it where the rows are Spark's.

    Arrow's rows may be ``sorted_by`` columns, which the files then say of themselves.
    """
    if isinstance(rows, pa.Table | pa.RecordBatchReader):
        batches = rows.to_batches(max_chunksize=1 << 15) if isinstance(rows, pa.Table) else rows
        yield from _write(
            table.data, table.schema, replace(table.layout, sorted_by=sorted_by), attempt, batches
        )
        return
    task = partial(_write_partition, table.data, table.schema, table.layout, attempt)
    for files in answers(rows.mapInArrow(task, ANSWER)):
        yield from files


def evolve(table: Table, schema: pa.Schema) -> None:
    """Have the table columns for rows of ``schema``, by `magnetar.pipeline.tables.evolution`; rows it has stay.

    Raises `TableError` where a column is there with a type that cannot become the new one.
    """
    try:
        wanted = evolved_schema(table.schema, schema, table.widens)
    except CannotEvolve as error:
        raise TableError(f"{table}: {error}") from None
    if wanted != table.schema:
        table.set_columns(wanted)


def schema_of(rows: Any) -> pa.Schema:
    """Return the Arrow schema that rows have in a table."""
    if isinstance(rows, pa.Table | pa.RecordBatchReader):
        return plain_schema(rows.schema)
    from pyspark.sql.pandas.types import to_arrow_schema

    return plain_schema(to_arrow_schema(rows.schema, timezone="UTC"))


def _write_partition(
    place: TableDirectory, schema: pa.Schema, layout: Layout, attempt: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    yield answer(_write(place, schema, layout, attempt, batches))


def _write(
    place: TableDirectory, schema: pa.Schema, layout: Layout, attempt: str, batches: Iterable[pa.RecordBatch]
) -> list[DataFile]:
    has_place = set(PLACE) <= set(schema.names)

    def ordered() -> Iterator[tuple[str, pa.RecordBatch]]:
        for batch in batches:
            if batch.num_rows:
                fitting = fit(batch, schema)
                yield _order(fitting) if has_place else "part-rows-00000-0000000000000000000", fitting

    return write_files(place, schema, layout, attempt, ordered())


def _order(batch: pa.RecordBatch) -> str:
    topic, partition, offset = (batch.column(name)[0].as_py() for name in PLACE)
    return order_of(topic or "none", partition or 0, offset or 0)
