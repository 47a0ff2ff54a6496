"""Columns that change their type: what a format allows goes on, and rows of before and after are read alike."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from magnetar.pipeline import tables
from magnetar.pipeline.tables import TableError
from magnetar.pipeline.tables.schema import plain_schema


def record(*fields: tuple[str, pa.DataType]) -> pa.StructType:
    return pa.struct(list(fields))


X, XY = record(("x", pa.int32())), record(("x", pa.int32()), ("y", pa.string()))
YX = record(("y", pa.string()), ("x", pa.int32()))
NUMBERS: dict[str, tuple[pa.DataType, Any, pa.DataType, Any]] = {
    "int to long": (pa.int32(), 1, pa.int64(), 2**40),
    "float to double": (pa.float32(), 0.5, pa.float64(), 0.1),
    "wider decimal": (pa.decimal128(5, 2), Decimal("1.25"), pa.decimal128(30, 2), Decimal("12345678901234567890.25")),
    "within a record": (X, {"x": 1}, record(("x", pa.int64())), {"x": 2**40}),
    "within a list": (pa.list_(pa.int32()), [1], pa.list_(pa.int64()), [2**40]),
    "within a map": (pa.map_(pa.string(), pa.int32()), [("a", 1)], pa.map_(pa.string(), pa.int64()), [("a", 2**40)]),
}  # fmt: skip
RECORDS: dict[str, tuple[pa.DataType, Any, pa.DataType, Any]] = {
    "field added": (X, {"x": 1}, XY, {"x": 2, "y": "b"}),
    "in a list": (pa.list_(X), [{"x": 1}], pa.list_(XY), [{"x": 2, "y": "b"}]),
    "in a map": (pa.map_(pa.string(), X), [("k", {"x": 1})], pa.map_(pa.string(), XY), [("k", {"x": 2, "y": "b"})]),
    "deeper": (record(("r", pa.list_(X))), {"r": [{"x": 1}]}, record(("r", pa.list_(XY))), {"r": [{"x": 2, "y": "b"}]}),
    "reordered": (XY, {"x": 1, "y": "a"}, YX, {"y": "b", "x": 2}),
    "field gone": (XY, {"x": 1, "y": "a"}, X, {"x": 2}),
    "list of lists": (pa.list_(pa.list_(X)), [[{"x": 1}]], pa.list_(pa.list_(XY)), [[{"x": 2, "y": "b"}]]),
}  # fmt: skip
NOT: dict[str, tuple[pa.DataType, pa.DataType]] = {
    "int to text": (pa.int32(), pa.string()),
    "date to timestamp": (pa.date32(), pa.timestamp("us", tz="UTC")),
    "other scale": (pa.decimal128(10, 2), pa.decimal128(12, 4)),
    "record to text": (X, pa.string()),
    "other keys": (pa.map_(pa.string(), pa.int32()), pa.map_(pa.int32(), pa.int32())),
    "long to double": (pa.int64(), pa.float64()),
}


def grown(place: Path, kind: str, *values: tuple[pa.DataType, Any]) -> tables.Table:
    """Make a table whose rows were appended with one type after the other."""
    for number, (of_type, value) in enumerate(values):
        schema = pa.schema([("id", pa.int32()), ("v", of_type)])
        table = tables.open(place, kind, schema=schema)
        rows = pa.table(
            {"id": pa.array([number, -number - 1], pa.int32()), "v": pa.array([value, None], of_type)}
        )
        with table.writing():
            tables.append(table, rows, [tables.OffsetRange("t", 0, number, number + 1)], {"t": "id"})
    return tables.open(place, kind)


def completed(value: Any) -> Any:
    """Return a value as a reader gives it, who has null for the field ``y`` of rows that lack it."""
    if isinstance(value, dict):
        missing = {"y": None} if "x" in value else {}
        return missing | {name: completed(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(completed(each) for each in value)
    return value


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDS)
def test_fields_of_records_come_and_go(tmp_path: Path, kind: str, name: str) -> None:
    one, first, other, second = RECORDS[name]
    table = grown(tmp_path / "lake" / "t", kind, (one, first), (other, second), (one, first))
    rows = {row["id"]: row["v"] for row in table.to_arrow().to_pylist()}
    assert rows == {
        0: completed(first),
        1: completed(second),
        2: completed(first),
        -1: None,
        -2: None,
        -3: None,
    }
    assert len(table.files()) == 3  # nothing was written anew
    if kind == "delta":
        import deltalake

        theirs = deltalake.DeltaTable(str(tmp_path / "lake" / "t")).to_pyarrow_table().to_pylist()
        assert {row["id"]: row["v"] for row in theirs} == rows
    if kind == "iceberg":
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog(
            "embedded", type="sql", uri=f"sqlite:///{tmp_path / 'lake' / 'catalog.sqlite'}"
        )
        # Where it completes records in a list, PyIceberg makes an empty one of null.
        theirs = catalog.load_table("default.t").scan(row_filter="id >= 0").to_arrow().to_pylist()
        assert {row["id"]: row["v"] for row in theirs} == {n: v for n, v in rows.items() if n >= 0}


@pytest.mark.slow
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_widen_but_in_delta(tmp_path: Path, kind: str, name: str) -> None:
    one, first, other, second = NUMBERS[name]
    if kind == "delta":
        with pytest.raises(TableError, match=r"delta table .* column 'v"):
            grown(tmp_path / "t", kind, (one, first), (other, second))
        assert tables.open(tmp_path / "t").to_arrow().num_rows == 2
        return
    table = grown(tmp_path / "lake" / "t", kind, (one, first), (other, second), (one, first))
    assert table.schema.field("v").type == plain_schema(pa.schema([("v", other)])).field("v").type
    rows = {row["id"]: row["v"] for row in table.to_arrow().to_pylist()}
    assert rows == {0: first, 1: second, 2: first, -1: None, -2: None, -3: None}
    if kind == "iceberg":
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog(
            "embedded", type="sql", uri=f"sqlite:///{tmp_path / 'lake' / 'catalog.sqlite'}"
        )
        found = catalog.load_table("default.t").scan(row_filter="id >= 0").to_arrow().to_pylist()
        assert {row["id"]: row["v"] for row in found} == {n: v for n, v in rows.items() if n >= 0}


@pytest.mark.slow
@pytest.mark.parametrize("name", NOT)
def test_what_cannot_become_another_type_leaves_the_table_as_it_is(
    tmp_path: Path, kind: str, name: str
) -> None:
    one, other = NOT[name]
    place = tmp_path / "lake" / "t"
    grown(place, kind, (one, None))
    with pytest.raises(TableError, match=r"column 'v' is .*, not "):
        grown(place, kind, (other, None))
    table = tables.open(place, kind)
    assert table.to_arrow().num_rows == 2
    assert not [name for name in table.place.child("_magnetar").names() if name.startswith("attempt")]


def test_columns_that_differ_in_case_only_are_refused_in_words(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "lake" / "t"
    grown(place, kind, (pa.int32(), 1))
    table = tables.open(place, kind)
    with table.writing(), pytest.raises(TableError, match="column 'V' differs from column 'v' in case only"):
        tables.append(table, pa.table({"V": [1]}), [], {})
