"""From decoded records to Arrow: one struct column of the table's fields, an error per record that does not fit.

Schemas are merged by adding: a table has every field that any version has. Where versions differ in a field's type,
the wider one wins (int and long, float and double, anything and text); fields of another version are null.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

TEXT = pa.string()
_NUMBERS = [pa.int32(), pa.int64(), pa.float32(), pa.float64()]


def merge(types: Iterable[pa.DataType]) -> pa.StructType:
    """Return the struct that holds what any of these structs holds; the newest comes last, its order wins last."""
    merged: dict[str, pa.DataType] = {}
    for each in types:
        for field in each:
            known = merged.get(field.name)
            merged[field.name] = field.type if known is None else _wider(known, field.type)
    return pa.struct(list(merged.items()))


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if one == other:
        return one
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return merge([one, other])
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(_wider(one.value_type, other.value_type))
    if pa.types.is_map(one) and pa.types.is_map(other):
        return pa.map_(_wider(one.key_type, other.key_type), _wider(one.item_type, other.item_type))
    if one in _NUMBERS and other in _NUMBERS:
        wide = max(_NUMBERS.index(one), _NUMBERS.index(other))
        # A long does not fit into a float of 32 bits.
        return pa.float64() if wide == 2 else _NUMBERS[wide]
    return TEXT


def missing(here: pa.DataType, there: pa.DataType, at: str = "") -> list[str]:
    """Return the fields of ``here``, by path, that ``there`` has no place for."""
    if pa.types.is_struct(here) and pa.types.is_struct(there):
        known = {field.name: field.type for field in there}
        found: list[str] = []
        for field in here:
            path = f"{at}.{field.name}" if at else field.name
            found += missing(field.type, known[field.name], path) if field.name in known else [path]
        return found
    if pa.types.is_list(here) and pa.types.is_list(there):
        return missing(here.value_type, there.value_type, at)
    if pa.types.is_map(here) and pa.types.is_map(there):
        return missing(here.item_type, there.item_type, at)
    return []


def column(
    rows: Sequence[Mapping[str, Any] | None], fields: pa.StructType, errors: list[str | None]
) -> pa.StructArray:
    """Return the rows as a struct column; a row that does not fit becomes null, and its error is noted."""
    try:
        return pa.array(rows, fields)
    except (pa.ArrowException, ValueError, TypeError, OverflowError, AttributeError):
        return pa.array([_row(row, fields, errors, at) for at, row in enumerate(rows)], fields)


def _row(row: Any, fields: pa.StructType, errors: list[str | None], at: int) -> Any:
    """Return a row as it fits: texts where the table has text, null and an error where nothing helps."""
    if row is None:
        return None
    try:
        row = fitted(row, fields)
        pa.array([row], fields)
    except (pa.ArrowException, ValueError, TypeError, OverflowError, AttributeError) as error:
        errors[at] = f"it does not fit the table's columns: {error}"
        return None
    return row


def fitted(value: Any, kind: pa.DataType) -> Any:
    """Return a value with texts where the column is text but the value is not."""
    if value is None:
        return None
    if pa.types.is_string(kind):
        return value if isinstance(value, str) else as_text(value)
    if pa.types.is_struct(kind):
        return {field.name: fitted(value.get(field.name), field.type) for field in kind}
    if pa.types.is_list(kind):
        return [fitted(each, kind.value_type) for each in value]
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, Mapping) else value
        return [(fitted(k, kind.key_type), fitted(v, kind.item_type)) for k, v in pairs]
    return value


def as_text(value: Any) -> str:
    """Return what has no columns of its own as JSON, bytes in it as Latin-1 like Avro's own JSON encoding."""
    return json.dumps(value, default=_plain, ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
