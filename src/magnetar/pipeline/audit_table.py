"""A bronze table of any format as a DataFrame that stays what it is now, whatever is written meanwhile.

Delta and Iceberg tables are read by the list of their files where Spark has no runtime for them; what such a list
cannot tell (deletion vectors, delete files, mapped columns) is refused, not guessed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("auto", "parquet", "delta", "iceberg")
_EMPTY = (
    "partition int, offset long, key binary, value binary, headers array<struct<key string, value binary>>, "
    "timestamp timestamp, timestampType int"
)
_URL = re.compile(r"[a-z][a-z0-9+.-]*:/")
_NAME = re.compile(r"[\w`.-]+")


class TableUnreadable(Exception):
    """There is no such table, or it has something that this reading of it would get wrong."""


class OpenTable(NamedTuple):
    """The rows of a table, and the format that was found."""

    rows: DataFrame
    format: str


def look_for_table(table: str, format: str = "auto") -> None:
    """Raise `TableUnreadable` for what can be seen to be none without a session, which takes seconds to start."""
    if format not in FORMATS:
        raise TableUnreadable(f"format {format!r} is not known; there are: {', '.join(FORMATS)}")
    if not _URL.match(table) and not Path(table).exists() and not _NAME.fullmatch(table):
        raise _no_table(table)


def open_table(spark: SparkSession, table: str, format: str = "auto") -> OpenTable:
    """Open a table by path, URL or name in Spark's catalog; raise `TableUnreadable`."""
    look_for_table(table, format)
    is_url = bool(_URL.match(table))
    if not is_url and not Path(table).exists():
        if not spark.catalog.tableExists(table):
            raise _no_table(table)
        return OpenTable(spark.table(table), "catalog")
    path = table if is_url else str(Path(table).absolute())
    found = _detected(spark, path, is_url=is_url) if format == "auto" else format
    try:
        return OpenTable(_READERS[found](spark, path), found)
    except TableUnreadable:
        raise
    except Exception as error:  # what Spark, deltalake and pyiceberg raise has no common ancestor
        raise TableUnreadable(f"{table} cannot be read as {found}: {_first_line(error)}") from error


def _no_table(table: str) -> TableUnreadable:
    return TableUnreadable(f"there is no table {table}: neither a path here nor a name in Spark's catalog")


def of_topic(table: DataFrame, topic: str, table_topic: str | None) -> DataFrame:
    """Return the table's rows of this topic; a table that has one topic only may call it what it likes."""
    if "topic" not in table.columns:
        return table
    if table_topic is not None:
        return table.where(f.col("topic") == table_topic)
    names = {row.topic for row in table.select("topic").distinct().limit(1000).collect()}
    if len(names) <= 1:
        return table
    if topic not in names:
        raise TableUnreadable(
            f"the table has records of {len(names)} topics, none of them {topic}: "
            + ", ".join(sorted(map(str, names))[:10])
            + "; name the one you mean with --table-topic"
        )
    return table.where(f.col("topic") == topic)


def _detected(spark: SparkSession, path: str, *, is_url: bool) -> str:
    for name, sign in (("delta", "_delta_log"), ("iceberg", "metadata")):
        there = _exists(spark, f"{path}/{sign}") if is_url else Path(path, sign).is_dir()
        if there:
            return name
    return "parquet"


def _exists(spark: SparkSession, url: str) -> bool:
    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is None:
        raise TableUnreadable("over Spark Connect the format of a URL is not detected: name it with --format")
    place = jvm.org.apache.hadoop.fs.Path(url)
    return bool(place.getFileSystem(spark._jsc.hadoopConfiguration()).exists(place))


def _parquet(spark: SparkSession, path: str) -> DataFrame:
    return spark.read.parquet(path)  # of a streaming sink's folder, what its own log lists


def _delta(spark: SparkSession, path: str) -> DataFrame:
    if "delta" in (spark.conf.get("spark.sql.extensions", "") or "").lower():
        return spark.read.format("delta").load(path)
    from deltalake import DeltaTable

    table = DeltaTable(path)
    configuration = table.metadata().configuration
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        raise TableUnreadable(
            f"{path} maps its columns' names: give Spark the Delta Lake packages to read it"
        )
    if "deletionVectors" in (table.protocol().reader_features or ()):
        raise TableUnreadable(
            f"{path} may have deletion vectors: give Spark the Delta Lake packages to read it"
        )
    # The base path makes the folders' names columns again.
    return _files(spark, table.file_uris(), basePath=path)


def _iceberg(spark: SparkSession, path: str) -> DataFrame:
    tasks = list(_iceberg_table(path).scan().plan_files())
    if any(task.delete_files for task in tasks):
        raise TableUnreadable(f"{path} has delete files: compact it, so that its files are its rows")
    # Iceberg's files have all columns in them; what its folders are called means nothing.
    return _files(spark, [task.file.file_path for task in tasks], recursiveFileLookup="true")


def _iceberg_table(path: str) -> Any:
    """Return the table that our embedded catalog beside it knows, otherwise what its newest metadata say."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError
    from pyiceberg.table import StaticTable

    place = Path(path.removeprefix("file:"))
    catalog = place.parent / "catalog.sqlite"
    if catalog.exists():
        embedded = load_catalog(
            "embedded", type="sql", uri=f"sqlite:///{catalog}", warehouse=str(place.parent)
        )
        try:
            return embedded.load_table(("default", place.name))
        except NoSuchTableError:
            pass  # another catalog's
    return StaticTable.from_metadata(path if path.endswith(".metadata.json") else _latest_metadata(path))


def _latest_metadata(path: str) -> str:
    folder = Path(path.removeprefix("file:"), "metadata")
    found = [
        (_version(file.name), file.stat().st_mtime_ns, str(file)) for file in folder.glob("*.metadata.json")
    ]
    if not found:
        raise TableUnreadable(
            f"{path} has no metadata of Iceberg; name its newest *.metadata.json as the table"
        )
    return max(found)[2]


def _version(name: str) -> int:
    digits = re.match(r"v?(\d+)", name)
    return int(digits[1]) if digits else -1


def _files(spark: SparkSession, files: list[str], **options: str) -> DataFrame:
    if not files:
        return spark.createDataFrame([], _EMPTY)
    return spark.read.options(**options).parquet(*files)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


_READERS = {"parquet": _parquet, "delta": _delta, "iceberg": _iceberg}
