"""What schemas say of their fields beyond a type, and how the versions of a schema become one set of columns.

A table has every field that any version has. Fields of two versions are one column if they have the same name (case
counts for nothing: to Spark and Delta it is the same column), or one is called by an alias of the other. Where their
types differ, the wider one wins: int and long, float and double, decimals of other digits, records with other fields;
what has no common type is text (`magnetar.pipeline.jobs.decode.text`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from magnetar.pipeline.tables.schema import PRESENT

TEXT = pa.string()
_NUMBERS = [pa.int32(), pa.int64(), pa.float32(), pa.float64()]
_MAX_DIGITS = 38


@dataclass(frozen=True)
class FieldFacts:
    """One field: what rows of a version without it have there (an array of one value), its other names, its inside."""

    default: pa.Array | None = None
    aliases: frozenset[str] = frozenset()
    inside: Mapping[str, FieldFacts] = field(default_factory=dict)


Facts = Mapping[str, FieldFacts]


def distinct(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Return the names of one record as columns: of two that differ in case only, the later one gets a number."""
    known = {name.lower() for name in taken}
    found = []
    for name in names:
        given = free_name(name, known)
        known.add(given.lower())
        found.append(given)
    return found


def free_name(name: str, taken: Iterable[str]) -> str:
    """Return a name, or the first of ``name_2``, ``name_3`` ... that is not among these (in lower case)."""
    known, given, number = set(taken), name, 1
    while given.lower() in known:
        number += 1
        given = f"{name}_{number}"
    return given


def record_type(names: Iterable[str], types: Iterable[pa.DataType]) -> pa.StructType:
    """Return the type of a record; one without fields gets the field `PRESENT`."""
    return pa.struct(list(zip(names, types, strict=True)) or [(PRESENT, pa.bool_())])


def counterpart(name: str, facts: FieldFacts, there: Iterable[str]) -> str | None:
    """Return which of another version's fields is this one: by name, by name but for case, or by alias."""
    names = list(there)
    if name in names:
        return name
    for each in names:
        if each.lower() == name.lower():
            return each
    return next((each for each in names if each in facts.aliases), None)


def merge(types: Iterable[pa.DataType], facts: Iterable[Facts] = ()) -> pa.StructType:
    """Return the struct that holds what any of these structs holds; the newest comes last, its names win."""
    known = list(types)
    return merged(zip(known, list(facts) or [{}] * len(known), strict=True))[0]


def merged(versions: Iterable[tuple[pa.DataType, Facts]]) -> tuple[pa.StructType, Facts]:
    """Return the struct of these structs, and what is to be known of its fields: the newest version decides."""
    columns: dict[str, tuple[pa.DataType, FieldFacts]] = {}
    for kind, facts in versions:
        here = [each.name for each in kind]
        for each in kind:
            told = facts.get(each.name, FieldFacts())
            known = counterpart(each.name, told, (n for n in columns if n == each.name or n not in here))
            known = known or next((n for n, (_, f) in columns.items() if each.name in f.aliases), None)
            if known is None:
                columns[each.name] = each.type, told
                continue
            was, facts_were = columns[known]
            both = _together(was, facts_were, each.type, told)
            name = each.name if known in told.aliases else known
            columns = {name if n == known else n: both if n == known else c for n, c in columns.items()}
    return pa.struct([(n, k) for n, (k, _) in columns.items()]), {n: f for n, (_, f) in columns.items()}


def _together(
    was: pa.DataType, facts_were: FieldFacts, kind: pa.DataType, facts: FieldFacts
) -> tuple[pa.DataType, FieldFacts]:
    wide, inside = _wider(was, facts_were.inside, kind, facts.inside)
    return wide, FieldFacts(facts.default, facts.aliases | facts_were.aliases, inside)


def _wider(one: pa.DataType, facts: Facts, other: pa.DataType, others: Facts) -> tuple[pa.DataType, Facts]:
    """Return the type that holds both; what is inside of records is told by ``facts``, through lists and maps."""
    if one == other:
        return one, {**facts, **others}
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return merged([(one, facts), (other, others)])
    if pa.types.is_list(one) and pa.types.is_list(other):
        item, inside = _wider(one.value_type, facts, other.value_type, others)
        return pa.list_(item), inside
    if pa.types.is_map(one) and pa.types.is_map(other):
        key, _ = _wider(one.key_type, {}, other.key_type, {})
        item, inside = _wider(one.item_type, facts, other.item_type, others)
        return pa.map_(key, item), inside
    if one in _NUMBERS and other in _NUMBERS:
        wide = max(_NUMBERS.index(one), _NUMBERS.index(other))
        # A long does not fit into a float of 32 bits.
        return (pa.float64() if wide == 2 else _NUMBERS[wide]), {}
    if pa.types.is_decimal(one) and pa.types.is_decimal(other):
        scale = max(one.scale, other.scale)
        digits = max(one.precision - one.scale, other.precision - other.scale) + scale
        if digits <= _MAX_DIGITS:
            return pa.decimal128(digits, scale), {}
    return TEXT, {}


def widest(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the type that holds both: text if no other does."""
    return _wider(one, {}, other, {})[0]


def lacking(here: pa.DataType, there: pa.DataType, facts: Facts, at: str = "") -> list[str]:
    """Return the fields of ``here``, by path, that ``there`` has no place for, or a narrower one; it has the facts."""
    if pa.types.is_struct(here) and pa.types.is_struct(there):
        left = {each.name: each.type for each in here}
        found: list[str] = []
        for each in there:
            told = facts.get(each.name, FieldFacts())
            name = counterpart(each.name, told, left)
            if name is not None:
                found += lacking(left.pop(name), each.type, told.inside, _path(at, name))
        return [*(_path(at, name) for name in left), *found]
    if pa.types.is_list(here) and pa.types.is_list(there):
        return lacking(here.value_type, there.value_type, facts, at)
    if pa.types.is_map(here) and pa.types.is_map(there):
        return lacking(here.item_type, there.item_type, facts, at)
    return [] if widest(there, here) == there else [at]


def _path(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name
