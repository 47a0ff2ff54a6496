"""What readers find in a table, as plain values that can be compared, whatever types a reader has for them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from magnetar.pipeline.tables.schema import plain_schema

FORMATS = ("parquet", "delta", "iceberg", "parquet by Spark")


def type_text(kind: pa.DataType) -> str:
    """Return a type in words that are the same for all readers."""
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{each.name}: {type_text(each.type)}' for each in kind)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list<{type_text(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{type_text(kind.key_type)}, {type_text(kind.item_type)}>"
    if pa.types.is_timestamp(kind):
        unit = "" if kind.unit == "us" else f"[{kind.unit}]"
        return f"timestamp{unit}" if kind.tz is not None else f"timestamp{unit} without a zone"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if pa.types.is_dictionary(kind):
        return type_text(kind.value_type)
    return str(kind).replace("date32[day]", "date").replace("large_", "").replace("_view", "")


def columns_text(schema: pa.Schema) -> str:
    """Return the types of all columns; only the type where there is but ``v``."""
    if schema.names == ["v"]:
        return type_text(schema.field(0).type)
    return ", ".join(f"{each.name}: {type_text(each.type)}" for each in schema)


def canonical(array: Any) -> list[Any]:
    """Return an array's values as text, numbers, booleans, lists and dicts; a map is a list of pairs."""
    if isinstance(array, pa.ChunkedArray):
        return [each for chunk in array.chunks for each in canonical(chunk)]
    kind = array.type
    there = array.is_valid().to_pylist()
    if pa.types.is_struct(kind):
        columns = [canonical(each) for each in array.flatten()]
        rows: list[Any] = [
            dict(zip((f.name for f in kind), row, strict=True)) for row in zip(*columns, strict=True)
        ]
    elif pa.types.is_map(kind):
        keys, items = canonical(array.keys), canonical(array.items)
        ends = array.offsets.to_pylist()
        pairs = [[k, v] for k, v in zip(keys, items, strict=True)]
        rows = [pairs[a:b] for a, b in pairwise(ends)]
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        values = canonical(array.values)
        ends = array.offsets.to_pylist()
        rows = [values[a:b] for a, b in pairwise(ends)]
    elif pa.types.is_timestamp(kind):
        unit = kind.unit
        rows = [None if v is None else _moment(v, unit) for v in array.cast(pa.int64()).to_pylist()]
    elif pa.types.is_date32(kind):
        rows = [None if v is None else _day(v) for v in array.cast(pa.int32()).to_pylist()]
    else:
        rows = [_plain(each) for each in array.to_pylist()]
    return [row if valid else None for row, valid in zip(rows, there, strict=True)]


def _moment(value: int, unit: str) -> str:
    text = str(np.datetime_as_string(np.datetime64(value, unit)))
    return f"{text}Z"


def _day(days: int) -> str:
    return str(np.datetime_as_string(np.datetime64(days, "D")))


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, float) and not np.isfinite(value):
        return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value if value is None or isinstance(value, int | float | str | bool) else f"{value:f}"


def _pyarrow(place: Path, kind: str) -> pa.Table:
    import pyarrow.dataset as ds

    from magnetar.pipeline.tables.listing import parquet_files

    return ds.dataset(parquet_files(place), format="parquet").to_table()


def _delta_rs(place: Path, kind: str) -> pa.Table:
    import deltalake

    table = deltalake.DeltaTable(str(place))
    if "deletionVectors" in (table.protocol().reader_features or ()):  # its datasets do not know them
        query = deltalake.QueryBuilder().register("t", table).execute("SELECT * FROM t")
        return pa.RecordBatchReader.from_stream(query).read_all()
    return table.to_pyarrow_table()


def _pyiceberg(place: Path, kind: str) -> pa.Table:
    from pyiceberg.catalog import load_catalog

    uri = f"sqlite:///{place.parent / 'catalog.sqlite'}"
    return load_catalog("embedded", type="sql", uri=uri).load_table(f"default.{place.name}").scan().to_arrow()


def _metadata(place: Path) -> str:
    return str(max((place / "metadata").glob("*.metadata.json"), key=lambda each: each.name))


def _polars(place: Path, kind: str) -> pa.Table:
    import polars

    if kind == "delta":
        return polars.read_delta(str(place)).to_arrow()
    if kind == "iceberg":
        return polars.scan_iceberg(_metadata(place)).collect().to_arrow()
    from magnetar.pipeline.tables.listing import parquet_files

    return polars.read_parquet([each for each in parquet_files(place) if "columns-" not in each]).to_arrow()


@cache
def _duck() -> Any:
    import duckdb
    import duckdb_ext

    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    root = Path(duckdb_ext.__path__[0])
    for name in ("avro", "iceberg", "delta"):
        (found,) = root.rglob(f"{name}.duckdb_extension")
        connection.execute(f"LOAD '{found}'")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _duckdb(place: Path, kind: str) -> pa.Table:
    from magnetar.pipeline.tables.listing import parquet_files

    if kind == "delta":
        source = f"delta_scan('{place}')"
    elif kind == "iceberg":
        source = f"iceberg_scan('{_metadata(place)}')"
    else:
        source = f"read_parquet({[str(each) for each in parquet_files(place)]}, union_by_name = true)"
    found = _duck().execute(f"SELECT * FROM {source}").arrow()
    return found if isinstance(found, pa.Table) else found.read_all()


READERS: dict[str, dict[str, Callable[[Path, str], pa.Table]]] = {
    "parquet": {"PyArrow": _pyarrow, "DuckDB": _duckdb, "Polars": _polars},
    "delta": {"delta-rs": _delta_rs, "DuckDB": _duckdb, "Polars": _polars},
    "iceberg": {"PyIceberg": _pyiceberg, "DuckDB": _duckdb, "Polars": _polars},
    "parquet by Spark": {"PyArrow": _pyarrow, "DuckDB": _duckdb, "Polars": _polars},
}


def is_there(reader: str) -> bool:
    """Return whether this Python has a reader."""
    needs = {"DuckDB": ("duckdb", "duckdb_ext"), "Polars": ("polars",)}.get(reader, ())
    return all(importlib.util.find_spec(name) is not None for name in needs)


def found_by(
    read: Callable[[Path, str], pa.Table], place: Path, kind: str
) -> tuple[str, list[dict[str, Any]]]:
    """Return the columns' types and the rows that a reader finds, in the order of ``id``."""
    rows = read(place, kind)
    order = np.argsort(rows["id"].to_numpy(), kind="stable")
    rows = rows.take(pa.array(order)).drop_columns("id")
    rows = rows.cast(plain_schema(rows.schema))
    columns = [canonical(rows[name]) for name in rows.schema.names]
    return columns_text(rows.schema), [
        dict(zip(rows.schema.names, row, strict=True)) for row in zip(*columns, strict=True)
    ]
