"""Topics to lakehouse tables: exactly once, with the offset ranges in the same commit as the data.

    table = tables.open("/lake/flights", "delta")
    tables.sync("flights", table, options={"path": "/data/magnetar"})

`open` gives a `Table` of the format asked for; `sync` brings it up to a topic; `append` and `apply_changes` add rows
that somebody made of a topic.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from magnetar.pipeline.tables.directory import IN_CATALOG, TableDirectory, in_catalog
from magnetar.pipeline.tables.errors import (
    CommitUnknown,
    OffsetsCommitted,
    TableConflict,
    TableError,
    TopicReplaced,
)
from magnetar.pipeline.tables.files import DataFile, Layout
from magnetar.pipeline.tables.frames import append, schema_of
from magnetar.pipeline.tables.maintenance import Upkeep, compact
from magnetar.pipeline.tables.ranges import OffsetRange
from magnetar.pipeline.tables.table import Table, TableCommit

if TYPE_CHECKING:
    from magnetar.pipeline.tables.following import SyncReport, check_topic, missing, sync
    from magnetar.pipeline.tables.upsert import apply_changes

FORMATS = ("parquet", "delta", "iceberg")

__all__ = [
    "FORMATS", "CommitUnknown", "TableCommit", "DataFile", "Layout", "OffsetRange", "OffsetsCommitted", "SyncReport",
    "Table", "TableConflict", "TableError", "TopicReplaced", "Upkeep", "append", "apply_changes", "check_topic",
    "compact", "format_of", "missing", "open", "schema_of", "sync",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Load what reads topics, and what joins by key, when it is asked for: who only commits needs neither."""
    if name in ("SyncReport", "check_topic", "missing", "sync"):
        from magnetar.pipeline.tables import following

        return getattr(following, name)
    if name == "apply_changes":
        from magnetar.pipeline.tables import upsert

        return upsert.apply_changes
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def open(
    url: str | Path, format: str | None = None, *, schema: pa.Schema | None = None, layout: Layout | None = None,
    create: bool = True, **settings: Any,
) -> Table:  # fmt: skip
    """Return a table, made with ``schema`` (default: the bronze columns) if it is not there yet and ``create`` says so.

    ``format`` is one of `FORMATS`; a table that is there knows its own, a new one is parquet unless told otherwise.
    ``settings`` are the format's: ``storage_options`` for delta; ``catalog`` for iceberg, a catalog's name in
    PyIceberg's configuration or its properties, and ``url`` then its name there; ``iceberg://CATALOG/NAME`` says both
    in one word. Raises `TableError`.
    """
    from magnetar.pipeline.tables.schema import bronze_schema, with_fields

    if format is not None and format not in FORMATS:
        raise TableError(f"there is no table format {format!r}; there are: {', '.join(FORMATS)}")
    named = in_catalog(url)
    if named is not None:
        settings, url = {"catalog": named[0], **settings}, named[1]
    there = "iceberg" if settings.get("catalog") is not None else format_of(url)
    if there is not None and format not in (None, there):
        raise TableError(f"{url} is a table of format {there}, not {format}")
    wanted = schema or bronze_schema()
    columns = pa.schema([each.with_type(with_fields(each.type)) for each in wanted]) if create else None
    kind = there or format or "parquet"
    try:
        made: Table = _class_of(kind)(url, columns, layout or Layout(), **settings)
    except TypeError as error:
        if settings:
            raise TableError(
                f"tables of format {kind} do not know all of {', '.join(settings)}: {error}"
            ) from None
        raise
    return made


def format_of(url: str | Path) -> str | None:
    """Return the format of the table in a directory of this machine; None if there is none, or nobody can tell."""
    if str(url).startswith(IN_CATALOG):
        return "iceberg"
    place = TableDirectory(url)
    if not place.is_local:
        return None
    marks = (("_delta_log", "delta"), ("_spark_metadata", "parquet"), ("metadata", "iceberg"))
    return next((kind for name, kind in marks if (place.directory / name).is_dir()), None)


def _class_of(kind: str) -> Any:
    if kind == "parquet":
        from magnetar.pipeline.tables.parquet import ParquetTable

        return ParquetTable
    if kind == "delta":
        from magnetar.pipeline.tables.delta import DeltaLakeTable

        return DeltaLakeTable
    from magnetar.pipeline.tables.iceberg import IcebergTable

    return IcebergTable
