"""Arrow columns laid out by hand.

``pa.array``, ``pa.scalar`` and ``pa.repeat`` import pandas where it is installed: a third of a second and 50 MB in each
of Spark's workers, and as much again to be looked through whenever one of them collects garbage. Nothing here does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


def numbers(values: np.ndarray[Any, Any], kind: pa.DataType) -> pa.Array:
    """Return numbers as a column of a type of the same width, without a copy if they lie one behind the other."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))], 0)


def same_number(value: int, rows: int, kind: pa.DataType) -> pa.Array:
    """Return one number in every row."""
    return numbers(np.full(rows, value, f"i{kind.bit_width // 8}"), kind)


def same_text(value: str, rows: int) -> pa.Array:
    """Return one text in every row."""
    content = value.encode()
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(len(content))
    return pa.Array.from_buffers(
        pa.string(), rows, [None, pa.py_buffer(ends), pa.py_buffer(content * rows)], 0
    )


def same_name(value: str, rows: int) -> pa.DictionaryArray:
    """Return one text in every row, and store it once."""
    return pa.DictionaryArray.from_arrays(
        same_number(0, rows, pa.int32()), binary([value.encode()], pa.string())
    )


def binary(values: list[bytes], kind: pa.DataType) -> pa.Array:
    """Return a few strings of bytes as a column of a type that stores them so."""
    ends = np.cumsum([0, *map(len, values)], dtype=np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(kind, len(values), buffers, 0)
