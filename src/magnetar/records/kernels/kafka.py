"""Kafka's records to Pulsar's messages in machine code: the way back of `magnetar.records.kernels.pulsar`.

Here too nothing raises: -1 leaves to the plain form what it alone can do or word.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from magnetar.records.compiling import compiled
from magnetar.records.kernels.arrow import (
    BYTES,
    OUT_BYTES,
    _copy,
    zigzag,
)
from magnetar.records.kernels.bytes import (
    begins,
    is_utf8,
    put_base64,
    put_big_endian,
    put_unsigned,
    varint_bytes,
)
from magnetar.records.kernels.pulsar import (
    MAX_HEADERS,
    MAX_TIME,
    PREFIX,
)

_i8 = types.int64


@compiled(_i8(OUT_BYTES, _i8, _i8, BYTES, _i8, _i8))
def _put_bytes(out: Any, at: Any, tag: Any, data: Any, start: Any, size: Any) -> Any:
    out[at] = np.uint8(tag)
    at = put_unsigned(out, at + 1, size)
    _copy(out, at, data, start, size)
    return at + size


@compiled(types.UniTuple(_i8, 2)(BYTES, _i8, _i8))
def _sized(data: Any, at: Any, end: Any) -> Any:
    """Return (start, size) of a length-prefixed field; size -1 means null, -2 a fault."""
    size, start = zigzag(data, at, end, 5)
    if start < 0 or size < -1 or size > end - start:
        return np.int64(0), np.int64(-2)
    return start, size


@compiled(_i8(BYTES, _i8, _i8, OUT_BYTES, _i8))
def _put_properties(data: Any, at: Any, end: Any, out: Any, to: Any) -> Any:
    """Write a record's headers as properties; give where they end, -1 for the plain form."""
    count, at = zigzag(data, at, end, 5)
    if at < 0 or count < 0 or count > min(MAX_HEADERS, end - at):
        return np.int64(-1)
    first = at
    for number in range(count):
        name, name_size = _sized(data, at, end)
        if name_size < 0 or not is_utf8(data, name, name + name_size):
            return np.int64(-1)
        if begins(data, name, name + name_size, PREFIX):
            return np.int64(-1)
        value, value_size = _sized(data, name + name_size, end)
        if value_size < 0 or not is_utf8(data, value, value + value_size):
            return np.int64(-1)
        at = value + value_size
        other = first
        for _ in range(number):
            start, size = _sized(data, other, end)
            if size == name_size:
                same = True
                for i in range(size):
                    same &= data[start + i] == data[name + i]
                if same:
                    return np.int64(-1)
            start, size = _sized(data, start + size, end)
            other = start + size
        inside = 2 + varint_bytes(name_size) + name_size + varint_bytes(value_size) + value_size
        out[to] = 0x0A
        to = put_unsigned(out, to + 1, inside)
        to = _put_bytes(out, to, 0x0A, data, name, name_size)
        to = _put_bytes(out, to, 0x12, data, value, value_size)
    return to if at == end else np.int64(-1)


@compiled(_i8(BYTES, _i8, _i8, _i8, _i8, _i8, OUT_BYTES, _i8))
def fill_payload(
    data: Any, at: Any, count: Any, base_time: Any, append_time: Any, base_sequence: Any, out: Any, to: Any
) -> Any:
    """Write the records ``data[at:]`` as the messages of a Pulsar batch from ``out[to]`` on.

    ``append_time`` is the time of all of them if it is not negative; ``base_sequence`` -1 means that they have none.
    Returns where they end, -1 for the plain form.
    """
    end = np.int64(len(data))
    if not 0 <= base_time < MAX_TIME:
        return -1
    for delta in range(count):
        size, first = zigzag(data, at, end, 5)
        if first < 0 or size < 6 or size > end - first:
            return -1
        last = first + size
        time_delta, at = zigzag(data, first + 1, last, 10)
        if at < 0 or not -MAX_TIME < time_delta < MAX_TIME:
            return -1
        offset_delta, at = zigzag(data, at, last, 5)
        if at < 0 or offset_delta != delta:
            return -1
        key, key_size = _sized(data, at, last)
        if key_size < -1:
            return -1
        value, value_size = _sized(data, key + max(key_size, 0), last)
        if value_size < -1:
            return -1
        at = value + max(value_size, 0)
        time = append_time if append_time >= 0 else base_time + time_delta
        if time <= 0:
            return -1
        start = to + 4
        to = _put_properties(data, at, last, out, start)
        if to < 0:
            return -1
        in_base64 = False
        if key_size >= 0:
            in_base64 = not is_utf8(data, key, key + key_size)
            if in_base64:
                out[to] = 0x12
                to = put_unsigned(out, to + 1, (key_size + 2) // 3 * 4)
                to = put_base64(out, to, data, key, key_size)
            else:
                to = _put_bytes(out, to, 0x12, data, key, key_size)
        out[to] = 0x18
        to = put_unsigned(out, to + 1, max(value_size, 0))
        out[to] = 0x28
        to = put_unsigned(out, to + 1, time)
        if in_base64:
            out[to], out[to + 1] = 0x30, 1
            to += 2
        if key_size >= 0:
            to = _put_bytes(out, to, 0x3A, data, key, key_size)
        if base_sequence >= 0:
            out[to] = 0x40
            to = put_unsigned(out, to + 1, (base_sequence + delta) & 0x7FFFFFFF)
        if value_size < 0:
            out[to], out[to + 1] = 0x48, 1
            to += 2
        put_big_endian(out, start - 4, 4, to - start)
        if value_size > 0:
            _copy(out, to, data, value, value_size)
            to += value_size
        at = last
    return to if at == end else -1
