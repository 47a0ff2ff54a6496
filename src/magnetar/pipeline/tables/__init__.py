"""Topics to lakehouse tables: exactly once, with the offset ranges in the same commit as the data.

    table = tables.open("/lake/flights", "delta")
    tables.sync("flights", table, options={"path": "/data/magnetar"})

`open` gives a `Table` of the format asked for; `sync` brings it up to a topic; `Table.append` is for other writers.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from magnetar.pipeline.tables.errors import (
    OffsetsCommitted,
    TableConflict,
    TableError,
    TopicReplaced,
)
from magnetar.pipeline.tables.files import DataFile, Layout
from magnetar.pipeline.tables.following import SyncReport, sync
from magnetar.pipeline.tables.maintenance import Upkeep, compact
from magnetar.pipeline.tables.place import Place
from magnetar.pipeline.tables.ranges import OffsetRange
from magnetar.pipeline.tables.table import Commit, Table

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = ("parquet", "delta", "iceberg")

__all__ = [
    "FORMATS", "Commit", "DataFile", "Layout", "OffsetRange", "OffsetsCommitted", "SyncReport", "Table",
    "TableConflict", "TableError", "TopicReplaced", "Upkeep", "compact", "open", "sync",
]  # fmt: skip


def open(
    url: str | Path, format: str = "parquet", *, schema: pa.Schema | None = None, layout: Layout | None = None,
    **settings: Any,
) -> Table:  # fmt: skip
    """Give a table, made with ``schema`` (default: the bronze columns) if it is not there yet.

    ``settings`` are the format's: ``storage_options`` for delta; ``catalog`` for iceberg, a catalog's name in
    PyIceberg's configuration or its properties. Raises `TableError`.
    """
    from magnetar.pipeline.tables.schema import bronze_schema

    if format not in FORMATS:
        raise TableError(f"there is no table format {format!r}; there are: {', '.join(FORMATS)}")
    schema = schema or bronze_schema()
    layout = layout or Layout()
    if format == "parquet":
        from magnetar.pipeline.tables.parquet import ParquetTable

        return ParquetTable(Place(url), schema, layout, **settings)
    if format == "delta":
        from magnetar.pipeline.tables.delta import DeltaLakeTable

        return DeltaLakeTable(Place(url), schema, layout, **settings)
    from magnetar.pipeline.tables.iceberg import IcebergTable

    return IcebergTable(url, schema, layout, **settings)
