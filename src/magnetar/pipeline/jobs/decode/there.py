"""What a topic's decoded table has already, whoever writes it: fields are placed by it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import pyarrow as pa

from magnetar.pipeline import tables
from magnetar.pipeline.jobs.spec import ProjectSpec, SpecError, TopicSpec
from magnetar.pipeline.jobs.tables import direct_table, place_of
from magnetar.pipeline.tables.evolution import Widens, keeps_types, widens_numbers
from magnetar.pipeline.tables.listing import parquet_files
from magnetar.pipeline.tables.schema import plain_schema

NO_TABLE: tuple[Mapping[str, pa.DataType], Widens] = {}, widens_numbers
"""Of a topic whose decoded table is not there yet."""
_INSTANT = pa.timestamp("us", tz="UTC")
_ANEW: ContextVar[frozenset[str]] = ContextVar("tables that a run makes anew", default=frozenset())


@contextmanager
def making_anew(names: Collection[str]) -> Iterator[None]:
    """Have these tables count as not there: Spark empties its own only when it comes to them."""
    token = _ANEW.set(frozenset(names))
    try:
        yield
    finally:
        _ANEW.reset(token)


def columns_there(project: ProjectSpec, topic: TopicSpec) -> tuple[Mapping[str, pa.DataType], Widens]:
    """Return the columns that the decoded table has, none before the first run, and what they may become."""
    if topic.decoded in _ANEW.get():
        return NO_TABLE
    if project.is_direct(topic.decoded):
        table = direct_table(project, topic.decoded)
        return NO_TABLE if table is None else (_types(table.schema), table.widens)
    try:
        place = place_of(project, topic.decoded)
    except SpecError:  # Spark alone knows where its tables are, so their types are Spark's to judge
        return NO_TABLE
    found = _schema_of_spark(place)
    return NO_TABLE if found is None else (_types(found), keeps_types)


def _types(schema: pa.Schema) -> dict[str, pa.DataType]:
    return {each.name: _INSTANT if pa.types.is_timestamp(each.type) else each.type for each in schema}


def _schema_of_spark(place: str) -> pa.Schema | None:
    """Return the columns of a table that Spark writes on this machine; None where that cannot be seen."""
    import pyarrow.parquet as pq

    if "://" in place or not Path(place).is_dir():
        return None
    if tables.format_of(place) == "delta":
        from deltalake import DeltaTable

        return plain_schema(pa.schema(DeltaTable(place).schema().to_arrow()))
    files = parquet_files(Path(place))
    # Each file has all columns that the table had when it was written.
    newest = max(files, key=lambda each: Path(each).stat().st_mtime, default=None)
    return None if newest is None else plain_schema(pq.read_schema(newest))
