"""Every value that a column's type can hold is written into every format, found again, and does not end the table."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from magnetar.pipeline import tables

INFINITY = math.inf
MICROSECONDS = pa.timestamp("us", tz="UTC")

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "decimal": (pa.decimal128(10, 2), [Decimal("1.25"), Decimal("-99999999.99"), None]),
    "widest decimal": (pa.decimal128(38, 0), [Decimal(10**38 - 1), Decimal(-(10**38) + 1)]),
    "unsigned of 64 bits": (pa.decimal128(20, 0), [Decimal(2**64 - 1)]),
    "double": (pa.float64(), [INFINITY, 1.5, None]),
    "negative double": (pa.float64(), [-INFINITY, 1.5]),
    "only infinite": (pa.float64(), [INFINITY]),
    "not a number": (pa.float64(), [math.nan, 5.0]),
    "float": (pa.float32(), [INFINITY, -INFINITY, math.nan, 0.5]),
    "date": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31)]),
    "timestamp": (
        MICROSECONDS,
        [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)],
    ),
    "before 1970": (MICROSECONDS, [datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)]),
    "boolean": (pa.bool_(), [True, False, None]),
    "text": (pa.string(), ["a\0b", "\U0001f600" * 40, "é" * 3000, ""]),
    "bytes": (pa.binary(), [b"\xff" * 100, b""]),
    "list": (pa.list_(pa.int32()), [[1, 2], [], None]),
    "map": (pa.map_(pa.string(), pa.int32()), [[("a", 1)], [], None]),
    "map of records": (pa.map_(pa.string(), pa.struct([("d", pa.decimal128(5, 1))])), [[("a", {"d": Decimal("1.5")})]]),
    "record": (pa.struct([("d", pa.decimal128(5, 1)), ("f", pa.float64())]), [{"d": Decimal("1.5"), "f": INFINITY}]),
    "nothing": (pa.string(), [None, None]),
}  # fmt: skip


def add(table: tables.Table, values: Any, low: int) -> None:
    kind = table.schema.field("v").type
    rows = pa.table({"id": pa.array(range(low, low + len(values)), pa.int32()), "v": pa.array(values, kind)})
    with table.writing():
        tables.append(table, rows, [tables.OffsetRange("x", 0, low, low + len(values))], {"x": "id"})


@pytest.mark.slow
@pytest.mark.parametrize("name", VALUES)
def test_values_come_back_and_the_table_can_be_written_to_again(tmp_path: Path, kind: str, name: str) -> None:
    of_type, values = VALUES[name]
    place = tmp_path / "lake" / "t"
    schema = pa.schema([("id", pa.int32()), ("v", of_type)])
    add(tables.open(place, kind, schema=schema), values, 0)
    add(tables.open(place, kind), values, len(values))
    found = tables.open(place, kind).to_arrow().sort_by("id")["v"].to_pylist()
    assert [str(each) for each in found] == [str(each) for each in values * 2]  # NaN differs from itself
    if kind == "delta":
        others = deltalake.DeltaTable(place).to_pyarrow_table().num_rows
        assert others == 2 * len(values)


@pytest.mark.parametrize("name", ["date", "timestamp"])
def test_times_that_pythons_calendar_does_not_have(tmp_path: Path, kind: str, name: str) -> None:
    """Schemas count days and microseconds: Debezium sends years before 1, and others the end of time."""
    of_type, whole = (pa.date32(), pa.int32()) if name == "date" else (MICROSECONDS, pa.int64())
    far = [-800_000, 2_932_897] if name == "date" else [-(2**62), 253_402_300_800_000_000]
    place = tmp_path / "lake" / "t"
    schema = pa.schema([("id", pa.int32()), ("v", of_type)])
    for low, values in ((0, [*far, 0]), (3, [5, 6])):
        add(tables.open(place, kind, schema=schema), pa.array(values, whole).cast(of_type), low)
    found = tables.open(place, kind).to_arrow().sort_by("id")
    assert found["v"].cast(whole).to_pylist() == [*far, 0, 5, 6]


def test_deltas_statistics_are_json_and_leave_out_what_json_cannot_say(tmp_path: Path) -> None:
    place = tmp_path / "t"
    schema = pa.schema([("id", pa.int32()), ("v", pa.float64())])
    for low, values in enumerate([[INFINITY], [2.5]]):
        add(tables.open(place, "delta", schema=schema), values, low)
    assert bounds(place) == [({"id": 0}, {"id": 0}), ({"id": 1, "v": 2.5}, {"id": 1, "v": 2.5})]


def test_a_bound_that_is_infinite_does_not_cost_the_other(tmp_path: Path) -> None:
    add(tables.open(tmp_path / "t", "delta", schema=DOUBLES), [1.5, INFINITY], 0)
    assert bounds(tmp_path / "t") == [({"id": 0, "v": 1.5}, {"id": 1})]


def test_decimals_are_bounds_as_they_are(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int32()), ("v", pa.decimal128(20, 2))])
    add(
        tables.open(tmp_path / "t", "delta", schema=schema),
        [Decimal("123456789012345678.25"), Decimal("1.5")],
        0,
    )
    ((least, greatest),) = bounds(tmp_path / "t", parse_float=Decimal)
    assert (least["v"], greatest["v"]) == (Decimal("1.50"), Decimal("123456789012345678.25"))


def test_a_reader_that_skips_files_by_bounds_finds_nan(tmp_path: Path) -> None:
    """Parquet's bounds leave NaN out, and in SQL it is greater than any number."""
    add(tables.open(tmp_path / "t", "delta", schema=DOUBLES), [math.nan, 5.0], 0)
    assert bounds(tmp_path / "t") == [({"id": 0}, {"id": 1})]


DOUBLES = pa.schema([("id", pa.int32()), ("v", pa.float64())])


def bounds(place: Path, **how: Any) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return what Delta's log says of its files: least and greatest values, in the order of commits."""
    found = []
    for file in sorted((place / "_delta_log").glob("*.json")):
        for line in file.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                stats = json.loads(action["add"]["stats"], parse_constant=pytest.fail, **how)
                found.append((stats["minValues"], stats["maxValues"]))
    return found


VOID = pa.struct([])
VOIDS: dict[str, tuple[pa.DataType, list[Any], list[Any]]] = {
    "record": (VOID, [{}, None], [{"_present": True}, None]),
    "in a record": (
        pa.struct([("a", VOID), ("b", pa.int32())]),
        [{"a": {}, "b": 1}, {"a": None, "b": 2}, None],
        [{"a": {"_present": True}, "b": 1}, {"a": None, "b": 2}, None],
    ),
    "in a list": (pa.list_(VOID), [[{}, None], [], None], [[{"_present": True}, None], [], None]),
    "in a map": (pa.map_(pa.string(), VOID), [[("k", {})], None], [[("k", {"_present": True})], None]),
}


@pytest.mark.parametrize("name", VOIDS)
def test_records_without_fields_are_there_or_not_and_may_get_fields(
    tmp_path: Path, kind: str, name: str
) -> None:
    of_type, values, wanted = VOIDS[name]
    place = tmp_path / "lake" / "t"
    table = tables.open(place, kind, schema=pa.schema([("id", pa.int32()), ("v", of_type)]))

    def rows(low: int, values: Any, of_type: pa.DataType) -> None:
        made = pa.table(
            {"id": pa.array(range(low, low + len(values)), pa.int32()), "v": pa.array(values, of_type)}
        )
        with table.writing():
            tables.append(table, made, [tables.OffsetRange("x", 0, low, low + len(values))], {"x": "id"})

    rows(0, values, of_type)
    rows(100, values[:1], of_type)
    assert tables.open(place).to_arrow().sort_by("id")["v"].to_pylist() == [*wanted, wanted[0]]
    if name == "record":
        rows(200, [{"x": 1}], pa.struct([("x", pa.int32())]))
        rows(300, [{}], VOID)
        found = tables.open(place).to_arrow().sort_by("id")["v"].to_pylist()[-2:]
        assert found == [{"_present": None, "x": 1}, {"_present": True, "x": None}]
