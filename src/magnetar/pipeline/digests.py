"""Digests of records as Spark computes them: per column, in its own code, whatever the order of the rows.

Every column of a record has a hash (xxHash64). The digest of many records is the exclusive or of ``hash(partition,
offset, hash of the column)``: no order matters, and a record at another place counts as another one.

With the number of rows beside it, this misses nothing but an accident of 64 bits. A topic has each offset once, so what
a table lacks counts once in the difference. To balance the number it must have as much too many; copies, which
might cancel each other, do not bring back what is missing. Nobody is defended against who forges a table on purpose.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, DataType, StringType

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COLUMNS = ("key", "value", "headers", "timestamp", "timestampType")
"""What is compared of each record, where the table has it."""


def hash_name(column: str) -> str:
    """Return the name under which `hashed` puts a column's hash."""
    return f"hash_{column}"


def hashed(records: DataFrame, columns: Iterable[str]) -> DataFrame:
    """Return partition, offset, and one hash per column; null and empty differ, but for headers."""
    types = {each.name: each.dataType for each in records.schema}
    made = [_hash(name, types[name]).alias(hash_name(name)) for name in columns]
    return records.select(f.col("partition").cast("int"), f.col("offset").cast("long"), *made)


def digest(column: str) -> Column:
    """Return the aggregate that digests one column of what `hashed` gave."""
    return f.bit_xor(f.xxhash64("partition", "offset", hash_name(column)))


def range_number(size: int) -> Column:
    """Return the column ``range``: the number of the range of ``size`` offsets that a row lies in."""
    offset = f.col("offset")
    return ((offset - offset % size) / size).cast("long").alias("range")


def content(columns: Iterable[str]) -> Column:
    """Return the hash of a whole record wherever it lies."""
    return f.xxhash64(*(f.col(hash_name(name)) for name in columns))


def _hash(name: str, kind: DataType) -> Column:
    column = f.col(name)
    if name == "headers":
        return _hash_of_headers(column)
    if name == "timestamp":
        return f.xxhash64(f.unix_micros(column.cast("timestamp")))
    if isinstance(kind, StringType | BinaryType):
        # The length goes in because a null is skipped by xxhash64, and must not look like no bytes.
        return f.xxhash64(f.coalesce(f.octet_length(column), f.lit(-1)), column)
    return f.xxhash64(column)


def _hash_of_headers(headers: Column) -> Column:
    """Return a hash that knows where each header and its parts begin; no headers are null or an empty list."""
    parts = f.transform(
        headers,
        lambda header: f.struct(
            f.octet_length(header["key"]),
            header["key"],
            f.coalesce(f.octet_length(header["value"]), f.lit(-1)),
            header["value"],
        ),
    )
    count = f.coalesce(f.size(headers), f.lit(0))
    return f.when(count <= 0, f.lit(0).cast("long")).otherwise(f.xxhash64(count, parts))
