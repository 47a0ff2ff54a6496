"""What a query's filters say about topic, partition, offset, timestamp and ledger, before anything is read.

Spark pushes them down where ``spark.sql.python.filterPushdown.enabled`` is true. Those on topic and partition, and
plain comparisons of offset, hold exactly for every row that is read then; the others only leave out what cannot
match, and Spark looks at the rows again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from magnetar.pipeline.options import TopicPartition
from magnetar.pipeline.port import RecordQuery

_NEVER_NULL = ("topic", "partition", "offset")
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COMPARISONS = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


@dataclass(frozen=True)
class Scope:
    """What is left to read: filters on names and numbers of partitions, and ranges with both ends included."""

    partition_filters: tuple[Filter, ...] = ()
    offsets: tuple[int, int] = (_LEAST, _MOST)
    times_ms: tuple[int, int] | None = None
    ledgers: frozenset[int] | None = None

    def has_partition(self, which: TopicPartition) -> bool:
        """Return whether rows of a partition can match."""
        values = {"topic": which.topic, "partition": which.partition}
        return all(_holds(each, values[_column(each)]) for each in self.partition_filters)

    def offsets_within(self, low: int, high: int) -> tuple[int, int]:
        """Return what of ``[low, high)`` can match."""
        return max(low, self.offsets[0]), min(high, self.offsets[1] + 1)

    def narrowed(self, ask: RecordQuery) -> RecordQuery:
        """Return what to ask of every record."""
        ledgers = ask.ledgers
        if self.ledgers is not None:
            ledgers = self.ledgers if ledgers is None else ledgers & self.ledgers
        return replace(ask, times_ms=self.times_ms or ask.times_ms, ledgers=ledgers)


def pushed(filters: Iterable[Filter]) -> tuple[Scope, list[Filter]]:
    """Return the scope that filters leave, and those of them that Spark has still to apply to every row."""
    scope, left = Scope(), []
    for each in filters:
        column = _column(each)
        if column in _NEVER_NULL and isinstance(each, IsNotNull):
            continue
        if column in ("topic", "partition") and _is_decidable(each):
            scope = replace(scope, partition_filters=(*scope.partition_filters, each))
            continue
        if column == "offset" and isinstance(each, _COMPARISONS) and _is_number(each.value):
            scope = replace(scope, offsets=_both(scope.offsets, _range(each, each.value)))
            continue
        left.append(each)
        scope = _leave_out(scope, column, each)
    return scope, left


def _leave_out(scope: Scope, column: str, each: Filter) -> Scope:
    """Narrow the scope by a filter that cannot be applied exactly."""
    if column == "offset" and isinstance(each, In) and each.value and all(map(_is_number, each.value)):
        return replace(scope, offsets=_both(scope.offsets, (min(each.value), max(each.value))))
    if column == "timestamp" and isinstance(each, _COMPARISONS) and _is_time(each.value):
        times = _both(scope.times_ms or (_LEAST, _MOST), _times_ms(each))
        return replace(scope, times_ms=times)
    if column == "ledger_id" and isinstance(each, EqualTo | EqualNullSafe | In):
        ids = frozenset(each.value if isinstance(each, In) else (each.value,))
        return replace(scope, ledgers=ids if scope.ledgers is None else ids & scope.ledgers)
    return scope


def _column(each: Filter) -> str:
    """Return the name of the column that a filter is about; nothing for a field inside of one."""
    path: tuple[str, ...] = getattr(each.child if isinstance(each, Not) else each, "attribute", ())
    return path[0] if len(path) == 1 else ""


def _is_decidable(each: Filter) -> bool:
    """Return whether `_holds` can say what Spark would."""
    inner = each.child if isinstance(each, Not) else each
    if isinstance(inner, In):
        return None not in inner.value
    known = (*_COMPARISONS, StringStartsWith, StringEndsWith, StringContains)
    return isinstance(inner, known) and inner.value is not None


def _holds(each: Filter, value: Any) -> bool:
    match each:
        case Not():
            return not _holds(each.child, value)
        case EqualTo() | EqualNullSafe():
            return bool(value == each.value)
        case GreaterThan():
            return bool(value > each.value)
        case GreaterThanOrEqual():
            return bool(value >= each.value)
        case LessThan():
            return bool(value < each.value)
        case LessThanOrEqual():
            return bool(value <= each.value)
        case In():
            return value in each.value
        case StringStartsWith():
            return bool(value.startswith(each.value))
        case StringEndsWith():
            return bool(value.endswith(each.value))
        case StringContains():
            return each.value in value
    raise AssertionError(each)


def _range(each: Filter, value: int) -> tuple[int, int]:
    match each:
        case GreaterThan():
            return value + 1, _MOST
        case GreaterThanOrEqual():
            return value, _MOST
        case LessThan():
            return _LEAST, value - 1
        case LessThanOrEqual():
            return _LEAST, value
    return value, value


def _times_ms(each: Any) -> tuple[int, int]:
    """Return the milliseconds that can match, of a comparison with a time that has microseconds."""
    time = each.value if each.value.tzinfo is not None else each.value.astimezone()
    micros = (time - _EPOCH) // timedelta(microseconds=1)
    low, high = _range(each, micros)
    return (low if low == _LEAST else -(-low // 1000)), (high if high == _MOST else high // 1000)


def _both(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return max(one[0], other[0]), min(one[1], other[1])


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_time(value: object) -> bool:
    return isinstance(value, datetime)
