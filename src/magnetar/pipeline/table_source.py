"""``format("magnetar_table")``: tables of all formats as ends of Spark's streams, exactly once.

``readStream`` gives a table's rows in the order in which offsets came to it; with ``subscribe`` it writes what the
table lacks of a topic into files, in the source's own tasks, and gives only the files' names. ``writeStream`` commits
such files, or writes rows that were made of a topic. Rows and offsets are in one commit, and offsets that the table has
are not added again: a batch that Spark repeats changes nothing.

==================  ===================================================================================
table               the table: a directory or URL
tableFormat         parquet, delta or iceberg; needed where the table may be new
subscribe           read: the topic (and the options of ``format("magnetar")``); write files instead of giving rows
maxOffsetsPerTrigger  read: about how many offsets a batch takes
mode                write: append, or upsert (one row per key: see `magnetar.pipeline.tables.current`)
place               write: the columns that say topic, partition and offset of a row
bronze              write: the table that rows were made of, which knows the topic's id
deadLetters         write, upsert: the table of records that could not be decoded
==================  ===================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import BinaryType, StructField, StructType

from magnetar.pipeline.tables.options import TableOptions, parse_table_options

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter, DataSourceStreamReader

# Every session that uses a Python source imports this: Arrow and the formats are loaded when a table is opened.

FILES = StructType([StructField("files", BinaryType())])
"""What a stream of files has as its only column: pickled `magnetar.pipeline.tables.stream_writer.WrittenFiles`."""


class TableDataSource(DataSource):  # type: ignore[misc]
    """What Spark finds under the name ``magnetar_table``."""

    @classmethod
    def name(cls) -> str:
        return "magnetar_table"

    def schema(self) -> StructType:
        """Return the table's columns; those of bronze, while there is no table."""
        from pyspark.sql.pandas.types import from_arrow_schema

        from magnetar.pipeline.tables.schema import bronze_schema

        options = parse_table_options(self.options)
        if options.topic is not None:
            return FILES
        table = _if_there(options)
        return from_arrow_schema(bronze_schema() if table is None else table.schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from magnetar.pipeline.tables.stream_reader import FilesReader, RowsReader

        options = parse_table_options(self.options)
        return RowsReader(options, schema) if options.topic is None else FilesReader(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from pyspark.sql.pandas.types import to_arrow_schema

        from magnetar.pipeline.tables.schema import bronze_schema, plain_schema
        from magnetar.pipeline.tables.stream_writer import FilesWriter, RowsWriter, UpsertWriter

        options = parse_table_options(self.options)
        if overwrite:
            raise ValueError("tables of offsets only grow: use output mode append")
        if schema == FILES:
            return FilesWriter(options, bronze_schema())
        columns = plain_schema(to_arrow_schema(schema, timezone="UTC"))
        missing = [name for name in options.place if name not in columns.names]
        if missing:
            raise ValueError(f"option place names columns that the rows do not have: {', '.join(missing)}")
        return (UpsertWriter if options.mode == "upsert" else RowsWriter)(options, columns)


def _if_there(options: TableOptions) -> Any:
    from magnetar.pipeline.tables.errors import TableError

    try:
        return options.open()
    except TableError:
        return None
