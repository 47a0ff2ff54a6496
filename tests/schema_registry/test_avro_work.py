"""Comparing Avro schemas takes steps by what they are, not by how many ways lead through them."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.schema_registry.avro_compatibility import Rules, can_read
from magnetar.schema_registry.pairs import MAX_PAIRS
from magnetar.schema_registry.work import MAX_DEPTH, TooComplex, Work, read_json


def chain(length: int, **last: Any) -> dict[str, Any]:
    """Each record has two fields of the next: there are 2 ** length ways to the last."""
    node: dict[str, Any] = {
        "type": "record",
        "name": f"R{length}",
        "fields": [{"name": "x", "type": "int"} | last],
    }
    for number in reversed(range(length)):
        fields = [{"name": "a", "type": node}, {"name": "b", "type": f"R{number + 1}"}]
        node = {"type": "record", "name": f"R{number}", "fields": fields}
    return node


def steps(reader: Any, writer: Any) -> int:
    work = Work()
    can_read(reader, writer, work)
    return work.steps


@pytest.mark.parametrize("rules", Rules)
def test_shared_types_are_compared_once(rules: Rules) -> None:
    assert can_read(chain(45), chain(45), rules=rules)
    assert not can_read(chain(45), chain(45, type="string"), rules=rules)
    assert steps(chain(40), chain(40)) < 2.2 * steps(chain(20), chain(20)) < 5_000


def test_unions_cost_their_pairs() -> None:
    def union(count: int) -> list[Any]:
        return [
            {"type": "record", "name": f"U{n}", "fields": [{"name": "x", "type": "int"}]}
            for n in range(count)
        ]

    assert can_read(union(100), union(100))
    assert steps(union(100), union(100)) < 100 * 100 * 4


def test_too_many_pairs_of_types_are_refused() -> None:
    """Of one name in many namespaces each may stand for each."""

    def many(prefix: str, count: int) -> list[Any]:
        return [{"type": "record", "name": f"{prefix}{n}.R", "fields": []} for n in range(count)]

    side = int(MAX_PAIRS**0.5) + 10
    with pytest.raises(TooComplex, match="pairs of types"):
        can_read(many("a", side), many("b", side))


def test_work_ends_at_its_bound_and_when_all_is_over() -> None:
    with pytest.raises(TooComplex, match="more than 100 steps"):
        can_read(chain(20), chain(20), Work(100))
    with pytest.raises(TooComplex, match="the broker ends"):
        can_read(chain(60), chain(60), Work(is_over=lambda: True))


@pytest.mark.parametrize("depth", [MAX_DEPTH + 2, 100_000])
def test_depth_is_bounded_before_anything_looks_inside(depth: int) -> None:
    with pytest.raises(TooComplex, match="nested"):
        read_json("[" * depth + "]" * depth, Work())
    assert read_json("[" * 50 + "]" * 50, Work())
