"""`magnetar.records.schema_ids` in machine code: a batch's records copied with a frame before keys and values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from magnetar.records.compiling import compiled
from magnetar.records.kernels.arrow import BYTES, OUT_BYTES, _copy, zigzag
from magnetar.records.kernels.bytes import put_zigzag, zigzag_bytes

__all__ = ["fill", "np"]

_i8 = types.int64


@compiled(_i8(BYTES, BYTES, BYTES, _i8, OUT_BYTES))
def fill(data: Any, key_frame: Any, value_frame: Any, records: Any, out: Any) -> Any:
    """Write all records with their frames; give where they end, -1 for what the plain form has to look at."""
    at = to = np.int64(0)
    whole = np.int64(len(data))
    for _ in range(records):
        length, start = zigzag(data, at, whole, 5)
        if start < 0 or length < 1 or length > whole - start:
            return -1
        end = start + length
        _, after = zigzag(data, start + 1, end, 10)
        if after < 0:
            return -1
        _, after = zigzag(data, after, end, 5)
        if after < 0:
            return -1
        key_size, key = zigzag(data, after, end, 5)
        if key < 0 or key_size < -1 or key_size > end - key:
            return -1
        value_size, value = zigzag(data, key + max(key_size, 0), end, 5)
        if value < 0 or value_size < -1 or value_size > end - value:
            return -1
        rest = value + max(value_size, 0)
        new_key = key_size + len(key_frame) if key_size >= 0 else key_size
        new_value = value_size + len(value_frame) if value_size >= 0 else value_size
        size = (
            after - start + zigzag_bytes(new_key) + max(new_key, 0)
            + zigzag_bytes(new_value) + max(new_value, 0) + end - rest
        )  # fmt: skip
        to = put_zigzag(out, to, size)
        _copy(out, to, data, start, after - start)
        to = put_zigzag(out, to + after - start, new_key)
        if key_size >= 0:
            _copy(out, to, key_frame, 0, len(key_frame))
            to += len(key_frame)
            _copy(out, to, data, key, key_size)
            to += key_size
        to = put_zigzag(out, to, new_value)
        if value_size >= 0:
            _copy(out, to, value_frame, 0, len(value_frame))
            to += len(value_frame)
            _copy(out, to, data, value, value_size)
            to += value_size
        _copy(out, to, data, rest, end - rest)
        to += end - rest
        at = end
    return to if at == whole else np.int64(-1)
