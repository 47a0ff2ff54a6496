"""Values as text, where columns are: one spelling, whatever a value's type was and wherever it came from.

string                     as it is
number, boolean            as in JSON: 12, 1.5, true
decimal                    its digits: 1.20
date, timestamp            2023-11-14, 2023-11-14T22:13:20.000000Z
bytes                      a character for each byte (Latin-1), as in Avro's JSON
record, list, map          JSON; what JSON has no words for is a string in it, as above
"""

from __future__ import annotations

import json
from decimal import Context, Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

_EXACT = Context(prec=1 << 14)
_MAX_DIGITS_BYTES = 1024
_MAX_SCALE = 2000


def as_text(value: Any) -> str:
    """Return a value as a text column has it; what is in it is text, numbers, booleans, lists and dicts already."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | Decimal):  # as JSON it would be a string, quotes and all
        return str(_plain(value))
    return json.dumps(value, default=_plain, ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def decimal_of(digits: bytes, scale: int) -> Decimal:
    """Return the number of digits in two's complement, ``scale`` of them behind the point; raise ``ValueError``.

    What is longer takes a time that grows with its square to turn into digits, and a scale of 2^31 gigabytes.
    """
    if len(digits) > _MAX_DIGITS_BYTES or abs(scale) > _MAX_SCALE:
        raise ValueError(f"a decimal of {len(digits)} bytes and scale {scale} is beyond what is converted")
    return Decimal(int.from_bytes(digits, "big", signed=True)).scaleb(-scale, _EXACT)


def instant_text(micros: int) -> str:
    """Return a moment, in microseconds since 1970, as text; years beyond 9999 and before 1 too."""
    return f"{np.datetime_as_string(np.datetime64(micros, 'us'))}Z"


def date_text(days: int) -> str:
    """Return a day, counted from 1970, as text."""
    return str(np.datetime_as_string(np.datetime64(days, "D")))


def texts(array: pa.Array) -> pa.Array:
    """Return an array's values as text."""
    return pa.array([None if each is None else as_text(each) for each in plain_values(array)], pa.string())


def plain_values(array: pa.Array) -> list[Any]:
    """Return an array's values as what JSON knows, decimals as their digits and times as text."""
    kind = array.type
    if pa.types.is_struct(kind):
        columns = {field.name: plain_values(each) for field, each in zip(kind, array.flatten(), strict=True)}
        rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
        return [row if there else None for row, there in zip(rows, _there(array), strict=True)]
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        ends = array.offsets.to_pylist()
        if pa.types.is_map(kind):
            keys = [as_text(each) for each in plain_values(array.keys)]
            pairs = list(zip(keys, plain_values(array.items), strict=True))
            found: list[Any] = [dict(pairs[a:b]) for a, b in pairwise(ends)]
        else:
            items = plain_values(array.values)
            found = [items[a:b] for a, b in pairwise(ends)]
        return [each if there else None for each, there in zip(found, _there(array), strict=True)]
    if pa.types.is_timestamp(kind):
        return [None if each is None else instant_text(each) for each in array.cast(pa.int64()).to_pylist()]
    if pa.types.is_date32(kind):
        return [None if each is None else date_text(each) for each in array.cast(pa.int32()).to_pylist()]
    plain = (int, float, str, bool)
    return [v if v is None or isinstance(v, plain) else _plain(v) for v in array.to_pylist()]


def _there(array: pa.Array) -> list[bool]:
    return array.is_valid().to_pylist()  # type: ignore[no-any-return]
