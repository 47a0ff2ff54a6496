"""How a column's type may change while the table's rows stay as they are.

Fields are added to records, in lists and maps too, wherever they stand; the order of fields counts for nothing, and a
field that rows do not bring stays. What else may become what, a format says: Iceberg's and Parquet's readers widen int
to long, float to double, and decimals of the same scale. Delta has a feature for that (``typeWidening``) which delta-rs
and what is built on it neither read nor write, so there a column keeps its type.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

Widens = Callable[[pa.DataType, pa.DataType], bool]
"""Whether a column of the first type may become one of the second."""


class CannotEvolve(Exception):
    """A column cannot take such values; the message names where, what is there and what came."""


def widens_numbers(one: pa.DataType, other: pa.DataType) -> bool:
    """Return what Iceberg's rules, and readers of Parquet, allow."""
    if pa.types.is_decimal(one) and pa.types.is_decimal(other):
        return bool(one.scale == other.scale and one.precision <= other.precision)
    if pa.types.is_signed_integer(one) and pa.types.is_signed_integer(other):
        return bool(one.bit_width < other.bit_width)
    return bool((one, other) == (pa.float32(), pa.float64()))


def keeps_types(one: pa.DataType, other: pa.DataType) -> bool:
    """Return that no column's type may change: Delta's rules without its feature, and Spark's for its tables."""
    return False


def evolved(known: pa.DataType, new: pa.DataType, widens: Widens, at: str) -> pa.DataType:
    """Return the type of column ``at`` that holds ``new`` too; raise `CannotEvolve`."""
    if known == new:
        return known
    if pa.types.is_struct(known) and pa.types.is_struct(new):
        fields = {each.name: each for each in known}
        for each in new:
            there = fields.get(each.name)
            kind = each.type if there is None else evolved(there.type, each.type, widens, f"{at}.{each.name}")
            fields[each.name] = pa.field(each.name, kind, there is None or there.nullable)
        return pa.struct(list(fields.values()))
    if pa.types.is_list(known) and pa.types.is_list(new):
        item = evolved(known.value_type, new.value_type, widens, f"{at}[]")
        return pa.list_(pa.field(known.value_field.name, item, known.value_field.nullable))
    if pa.types.is_map(known) and pa.types.is_map(new) and known.key_type == new.key_type:
        item = evolved(known.item_type, new.item_type, widens, f"{at}{{}}")
        return known if item == known.item_type else pa.map_(known.key_type, item)
    if widens(known, new):
        return new
    if widens_numbers(new, known):  # narrower ones are written as wide as the column is
        return known
    raise CannotEvolve(f"column {at!r} is {known}, not {new}")


def evolved_schema(known: pa.Schema, new: pa.Schema, widens: Widens) -> pa.Schema:
    """Return the columns of a table that takes rows of the columns ``new``; raise `CannotEvolve`."""
    columns = {each.name: each for each in known}
    for each in new:
        there = columns.get(each.name)
        if there is None:
            alike = next((name for name in columns if name.lower() == each.name.lower()), None)
            if alike is not None:  # Delta refuses both, and of the others Spark and DuckDB read neither
                raise CannotEvolve(f"column {each.name!r} differs from column {alike!r} in case only")
            columns[each.name] = pa.field(each.name, each.type)
        else:
            kind = evolved(there.type, each.type, widens, each.name)
            columns[each.name] = there if kind == there.type else pa.field(each.name, kind, there.nullable)
    return pa.schema(list(columns.values()))
