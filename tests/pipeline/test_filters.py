"""Pushed filters: whatever is left out must be what the filters leave out, and not one row more."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from magnetar.pipeline.filters import pushed
from magnetar.pipeline.options import parse_options
from magnetar.pipeline.plan import Plan, ask_of
from magnetar.records.batch import PlainRecord
from magnetar.records.compression import Codec
from tests.pipeline.test_slices import fill
from tests.pipeline.writer import NOW_MS, Writer

COLUMNS = ("topic", "partition", "offset", "timestamp", "ledger_id")
COMPARE = {
    EqualTo: lambda a, b: a == b,
    EqualNullSafe: lambda a, b: a == b,
    GreaterThan: lambda a, b: a > b,
    GreaterThanOrEqual: lambda a, b: a >= b,
    LessThan: lambda a, b: a < b,
    LessThanOrEqual: lambda a, b: a <= b,
    In: lambda a, b: a in b,
    StringStartsWith: str.startswith,
    StringEndsWith: str.endswith,
    StringContains: lambda a, b: b in a,
}
NOW = datetime.fromtimestamp(NOW_MS / 1000, UTC)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    writer = Writer(tmp_path_factory.mktemp("data"))
    for name in ("ab", "b"):
        for partition in writer.topic(name, 2):
            fill(partition, 60, size=2000)
            partition.append(
                [PlainRecord(b"late", b"", (), NOW_MS + t) for t in (500, 3, 90)], codec=Codec.lz4
            )
            partition.append([PlainRecord(b"k", b"")] * 3, append_time=NOW_MS + 100)
            partition.close_ledger()
            fill(partition, 30, codec=Codec.zstd)
            partition.close_ledger(sealed=False)
    return writer.finish()


def read(data: Path, filters: list[Filter]) -> tuple[list[dict[str, Any]], list[Filter]]:
    parsed = parse_options(
        {"path": str(data), "subscribePattern": ".*", "columns": ",".join(COLUMNS)}, streaming=False
    )
    scope, left = pushed(filters)
    plan = Plan(parsed)
    ask = scope.narrowed(ask_of(parsed))
    pieces = plan.slices(plan.starts(), plan.ends(), scope)
    return [row for piece in pieces for batch in piece.read(ask) for row in batch.to_pylist()], left


def holds(each: Filter, row: dict[str, Any]) -> bool:
    if isinstance(each, Not):
        return not holds(each.child, row)
    value = row[each.attribute[0]]  # type: ignore[attr-defined]
    if isinstance(each, IsNotNull | IsNull):
        return (value is None) == isinstance(each, IsNull)
    return bool(COMPARE[type(each)](value, each.value))  # type: ignore[attr-defined]


numbers = st.integers(-3, 450)
moments = st.integers(-2_000, 500_000).map(lambda micros: NOW + timedelta(microseconds=micros))
names = st.sampled_from(["a", "ab", "b", "", "c"])
orders = st.sampled_from([EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual])


def comparisons(column: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Filter]:
    plain = st.builds(lambda kind, value: kind((column,), value), orders, values)
    several = st.lists(values, min_size=1, max_size=4).map(lambda some: In((column,), tuple(some)))
    both = plain | several
    return both | both.map(Not) | st.just(IsNotNull((column,)))


texts = st.builds(
    lambda kind, value: kind(("topic",), value),
    st.sampled_from([StringStartsWith, StringEndsWith, StringContains]),
    names,
)
any_filter = (
    comparisons("offset", numbers)
    | comparisons("timestamp", moments)
    | comparisons("partition", st.integers(-1, 3))
    | comparisons("topic", names)
    | comparisons("ledger_id", st.sampled_from([1, 2, 1001, 7, 3000]))
    | texts
    | texts.map(Not)
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(filters=st.lists(any_filter, min_size=1, max_size=4))
def test_filters_leave_out_what_they_should_and_nothing_else(data: Path, filters: list[Filter]) -> None:
    everything, _ = read(data, [])
    wanted = [row for row in everything if all(holds(each, row) for each in filters)]
    found, left = read(data, filters)
    assert [row for row in found if all(holds(each, row) for each in left)] == wanted


def test_what_is_exact_is_not_looked_at_again(data: Path) -> None:
    exact = [
        EqualTo(("topic",), "ab"),
        In(("partition",), (1, 2)),
        GreaterThanOrEqual(("offset",), 10),
        LessThan(("offset",), 12),
        IsNotNull(("offset",)),
    ]
    found, left = read(data, exact)
    assert not left
    assert [(row["topic"], row["partition"], row["offset"]) for row in found] == [
        ("ab", 1, 10),
        ("ab", 1, 11),
    ]


def test_times_leave_out_slices_and_records(data: Path) -> None:
    late = [GreaterThanOrEqual(("timestamp",), NOW + timedelta(milliseconds=500))]
    found, left = read(data, late)
    assert left == late
    assert {row["timestamp"] for row in found} == {NOW + timedelta(milliseconds=500)}
    scope, _ = pushed(late)
    parsed = parse_options({"path": str(data), "subscribe": "ab"}, streaming=False)
    plan = Plan(parsed)
    every, some = plan.slices(plan.starts(), plan.ends()), plan.slices(plan.starts(), plan.ends(), scope)
    assert sum(piece.end - piece.start for piece in some) < sum(p.end - p.start for p in every) / 2  # type: ignore[attr-defined]


def test_fields_inside_of_columns_and_unknown_filters_are_sparks(data: Path) -> None:
    strange: list[Filter] = [EqualTo(("damage", "offset"), 3), IsNull(("topic",)), EqualTo(("key",), b"")]
    assert pushed(strange)[1] == strange
    scope, _ = pushed([EqualTo(("ledger_id",), 2)])
    options = parse_options({"path": "/d", "subscribe": "t", "ledgers": "2,3"}, streaming=False)
    assert scope.narrowed(ask_of(options)).ledgers == {2}
    assert scope.narrowed(replace(ask_of(options), ledgers=frozenset({9}))).ledgers == frozenset()
