"""JSON whose versions are parsed in different ways, by Spark."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from magnetar.pipeline.jobs.decode.json import JsonPlan, JsonWay
from magnetar.pipeline.jobs.json_values import JsonValues
from tests.pipeline.jobs.test_poison_records import frame

pytestmark = pytest.mark.spark

OLD = JsonWay((1,), "`v` BIGINT, `V` STRING", (("v", "BIGINT"), ("V_2", "STRING")))
NEW = JsonWay((), "`v` STRING, `w` BIGINT", (("v_3", "STRING"), ("w", "BIGINT")))
COLUMNS = (("v", "BIGINT"), ("v_3", "STRING"), ("V_2", "STRING"), ("w", "BIGINT"))


def decoded(
    spark: Any, plan: JsonPlan, *records: tuple[int, Any], debezium: bool = False
) -> list[dict[str, Any]]:
    values = pa.array([frame(number, json.dumps(row).encode()) for number, row in records], pa.binary())
    frame_of = spark.createDataFrame(pa.table({"at": range(len(values)), "value": values}))
    found = JsonValues(plan, framed=True, debezium=debezium)(frame_of)
    rows = found.select("at", "_d_row", "_d_op", "_d_error").toArrow().sort_by("at")
    return list(rows.to_pylist())


def test_each_version_has_its_columns(spark: Any) -> None:
    plan = JsonPlan("columns", (OLD, NEW), COLUMNS, dead={7: "of a version that changed"})
    found = decoded(
        spark, plan, (1, {"v": 5, "V": "a", "w": 9}), (2, {"v": "7", "w": 8}), (9, {"v": {"a": 1}}), (1, {"v": "no"}),
        (7, {"v": 1}),
    )  # fmt: skip
    assert [row["_d_row"] for row in found[:3]] == [
        {"v": 5, "v_3": None, "V_2": "a", "w": None},
        {"v": None, "v_3": "7", "V_2": None, "w": 8},
        {"v": None, "v_3": '{"a":1}', "V_2": None, "w": None},
    ]
    assert [row["_d_error"] for row in found] == [
        None, None, None, "it is JSON that does not fit the columns columns", "of a version that changed",
    ]  # fmt: skip


def test_debeziums_envelope_of_each_version(spark: Any) -> None:
    plan = JsonPlan("columns", (OLD, NEW), COLUMNS)
    found = decoded(
        spark, plan, (1, {"op": "d", "before": {"v": 5}, "after": None}),
        (2, {"payload": {"op": "u", "before": {"v": "1"}, "after": {"v": "2"}}}),
        (2, {"op": "u", "before": {"v": "1"}, "after": None}), debezium=True,
    )  # fmt: skip
    assert [row["_d_op"] for row in found[:2]] == ["delete", "upsert"]
    assert found[0]["_d_row"] == {"v": 5, "v_3": None, "V_2": None, "w": None}
    assert found[1]["_d_row"] == {"v": None, "v_3": "2", "V_2": None, "w": None}
    assert found[2]["_d_error"] == "Debezium's op 'u' lacks after"


def test_a_number_that_holds_up_sparks_parser_is_a_dead_letter(spark: Any) -> None:
    """Spark writes the digits of such a number out: the run stood still for as long as anybody waited."""
    way = JsonWay((), "`n` DECIMAL(10,2), `s` STRING")
    values = [
        b'{"n": 1e999999999, "s": "a"}',
        b'{"n": -1.5E+99999, "s": "a"}',
        b'{"n": 1e2, "s": "1e999999999"}',
        b'{"n": 7, "s": "\\" 2e99999"}',
        b'{"n": 8, "s": "' + b"\\\\" * 50_000 + b'3e12345"}',
        b'{"s": "1e99999',
    ]
    frame_of = spark.createDataFrame(
        pa.table({"at": range(len(values)), "value": pa.array(values, pa.binary())})
    )
    found = JsonValues(JsonPlan("columns", (way,)), framed=False, debezium=False)(frame_of)
    rows = found.select("at", "_d_row", "_d_error").toArrow().sort_by("at").to_pylist()
    reason = "it has a number whose exponent has more than three digits"
    assert [row["_d_error"] for row in rows] == [reason, reason, None, None, None, "it is not JSON"]
    assert [int(row["_d_row"]["n"]) for row in rows[2:5]] == [100, 7, 8]


@pytest.mark.parametrize("debezium", [False, True])
def test_a_text_is_parsed_once_whatever_the_number_of_its_fields(spark: Any, debezium: bool) -> None:
    many = [(f"c{n}", "BIGINT") for n in range(20)]
    parsed = ", ".join(f"{name.upper()} {kind}" for name, kind in many)
    ways = (JsonWay((1,), parsed, tuple(many)), JsonWay((), parsed, tuple(many)))
    frame = spark.range(1).selectExpr(
        "cast(concat('', id) as binary) value"
    )  # nothing to be known before it runs
    found = JsonValues(JsonPlan("columns", ways, tuple(many)), framed=True, debezium=debezium)(frame)
    found = found.selectExpr("_d_row.*", "_d_op", "_d_error")
    assert found._jdf.queryExecution().optimizedPlan().toString().count("from_json(") == len(ways)


def frame_of(spark: Any, rows: list[dict[str, Any]]) -> Any:
    values = pa.array([json.dumps(row).encode() for row in rows], pa.binary())
    return spark.createDataFrame(pa.table({"at": range(len(rows)), "value": values}))


TIMES = (
    "t TIMESTAMP, `a``b` TIMESTAMP COMMENT 'when, or <so>', d DECIMAL(10, 2) NOT NULL, "
    "s STRUCT<x: INT, u: TIMESTAMP>, l ARRAY<STRUCT<u: TIMESTAMP_NTZ>>, m MAP<STRING, ARRAY<TIMESTAMP>>, z STRING"
)


def test_milliseconds_where_seconds_are_meant_are_dead_letters(spark: Any) -> None:
    """Stored, such a row could not be shown by PyArrow or pandas, and an Iceberg table refused it."""
    far = 1_700_000_000_000
    rows: list[dict[str, Any]] = [
        {"t": far}, {"a`b": far}, {"s": {"u": far}},
        {"l": [{"u": "2024-01-01T00:00:00"}, {"u": "+12000-01-01T00:00:00"}]},
        {"m": {"k": [1], "o": [None, far]}}, {"d": 7, "z": str(far)}, {"t": 1_700_000_000, "s": None, "m": {"k": None}},
        {"t": "9999-12-31T23:59:59.999999Z"}, {"t": "0001-01-01T00:00:00Z", "l": []}, {},
    ]  # fmt: skip
    plan = JsonPlan(TIMES, (JsonWay((), TIMES),))
    found = JsonValues(plan, framed=False, debezium=False)(frame_of(spark, rows))
    table = found.select("at", "_d_error", "_d_row").toArrow().sort_by("at")
    errors = table["_d_error"].to_pylist()
    assert [row is None for row in table["_d_row"].to_pylist()] == [each is not None for each in errors]
    assert [None if each is None else each.split(":")[0] for each in errors] == [
        *["it has a time beyond the year 9999"] * 5, *[None] * 5,
    ]  # fmt: skip


def test_debeziums_rows_may_hold_no_such_times_either(spark: Any) -> None:
    plan = JsonPlan("t TIMESTAMP, n INT", (JsonWay((), "t TIMESTAMP, n INT"),))
    rows: list[dict[str, Any]] = [
        {"op": "u", "before": {"t": 1}, "after": {"t": 10**12}},
        {"op": "d", "before": {"t": 10**12}},
        {"op": "c", "after": {"t": 10**9, "n": 1}},
    ]
    found = JsonValues(plan, framed=False, debezium=True)(frame_of(spark, rows))
    table = found.select("at", "_d_error", "_d_row").toArrow().sort_by("at")
    errors = table["_d_error"].to_pylist()
    assert [row is None for row in table["_d_row"].to_pylist()] == [each is not None for each in errors]
    assert [(each or "").count("beyond the year 9999") for each in errors] == [1, 1, 0]
