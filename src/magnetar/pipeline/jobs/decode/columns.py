"""From decoded records to Arrow: rows of each version by its own types, then all as the table's columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from magnetar.pipeline.jobs.decode.fields import TEXT, Facts, FieldFacts, counterpart
from magnetar.pipeline.jobs.decode.text import texts
from magnetar.schema_registry.framing import reason_of


def column(
    rows: Sequence[Mapping[str, Any] | None], fields: pa.StructType, errors: list[str | None]
) -> pa.StructArray:
    """Return the rows as a struct column; a row that does not fit becomes null, and its error is noted."""
    try:
        return pa.array(rows, fields)
    except Exception:  # which of its converters a value fails in decides what Arrow raises
        return pa.array([_row(row, fields, errors, at) for at, row in enumerate(rows)], fields)


def _row(row: Any, fields: pa.StructType, errors: list[str | None], at: int) -> Any:
    """Return a row if it fits, else null and an error."""
    try:
        pa.array([row], fields)
    except Exception as error:
        errors[at] = f"it does not fit the table's columns: {reason_of(error)}"
        return None
    return row


def conformed(array: pa.Array, kind: pa.DataType, facts: Facts) -> pa.Array:
    """Return values of one version as ``kind``, which is as wide: fields that it lacks have their defaults."""
    if array.type == kind:
        return array
    if kind == TEXT:
        return texts(array)
    if pa.types.is_struct(kind):
        return _conformed_records(array, kind, facts)
    if pa.types.is_list(kind):
        items = conformed(array.values, kind.value_type, facts)
        return pa.ListArray.from_arrays(array.offsets, items, type=kind, mask=array.is_null())
    if pa.types.is_map(kind):
        keys = conformed(array.keys, kind.key_type, {})
        items = conformed(array.items, kind.item_type, facts)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=kind, mask=array.is_null())
    # Not all longs are doubles: the nearest is taken, as Avro's promotion does.
    return array.cast(kind, safe=not pa.types.is_floating(kind))


def _conformed_records(array: pa.StructArray, kind: pa.StructType, facts: Facts) -> pa.StructArray:
    there = dict(zip((each.name for each in array.type), array.flatten(), strict=True))
    columns = []
    for each in kind:
        told = facts.get(each.name, FieldFacts())
        name = counterpart(each.name, told, there)
        if name is None:
            columns.append(_repeated(told, each.type, len(array)))
        else:
            columns.append(conformed(there.pop(name), each.type, told.inside))
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=array.is_null())


def _repeated(facts: FieldFacts, kind: pa.DataType, times: int) -> pa.Array:
    if facts.default is None:
        return pa.nulls(times, kind)
    one = conformed(facts.default, kind, facts.inside)
    return one.take(pa.array([0] * times, pa.int32()))
