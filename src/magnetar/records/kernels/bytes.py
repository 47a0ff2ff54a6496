"""Bytes and numbers in machine code, as all kernels read and write them: varints, UTF-8, base64, protobuf's fields."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from magnetar.records.compiling import compiled
from magnetar.records.kernels.arrow import BYTES, OUT_BYTES, unsigned

_i8 = types.int64
_ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_SEXTETS = np.full(256, 255, np.uint8)
_SEXTETS[_ALPHABET] = np.arange(64)


@compiled(_i8(OUT_BYTES, _i8, _i8))
def put_unsigned(out: Any, at: Any, value: Any) -> Any:
    """Write a plain varint; give where it ends."""
    rest = np.uint64(value)
    while rest >= np.uint64(0x80):
        out[at] = np.uint8(rest & np.uint64(0x7F)) | np.uint8(0x80)
        rest >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(rest)
    return at + 1


@compiled(_i8(OUT_BYTES, _i8, _i8))
def put_zigzag(out: Any, at: Any, value: Any) -> Any:
    """Write Kafka's signed varint; give where it ends."""
    return put_unsigned(out, at, (value << 1) ^ (value >> 63))


@compiled(_i8(_i8))
def varint_bytes(value: Any) -> Any:
    """Return how many bytes a plain varint takes."""
    size, rest = 1, np.uint64(value)
    while rest >= np.uint64(0x80):
        rest >>= np.uint64(7)
        size += 1
    return size


@compiled(_i8(_i8))
def zigzag_bytes(value: Any) -> Any:
    """Return how many bytes Kafka's signed varint takes."""
    return varint_bytes((value << 1) ^ (value >> 63))


@compiled(types.void(OUT_BYTES, _i8, _i8, _i8))
def put_big_endian(out: Any, at: Any, size: Any, value: Any) -> None:
    """Write a number of ``size`` bytes, the highest first."""
    for i in range(size):
        out[at + i] = np.uint8(value >> (8 * (size - 1 - i)) & 0xFF)


@compiled(types.boolean(BYTES, _i8, _i8, BYTES))
def begins(data: Any, start: Any, end: Any, text: Any) -> Any:
    """Tell whether ``data[start:end]`` begins with ``text``."""
    if end - start < len(text):
        return False
    for i in range(len(text)):  # noqa: SIM110  (numba has no generators here)
        if data[start + i] != text[i]:
            return False
    return True


@compiled(types.boolean(BYTES, _i8, _i8, BYTES))
def equals(data: Any, start: Any, end: Any, text: Any) -> Any:
    """Tell whether ``data[start:end]`` is ``text``."""
    return end - start == len(text) and begins(data, start, end, text)


@compiled(types.boolean(BYTES, _i8, _i8))
def is_utf8(data: Any, at: Any, end: Any) -> Any:
    """Tell whether Python's strict decoder would take it."""
    while at < end:
        byte = data[at]
        at += 1
        if byte < 0x80:
            continue
        if 0xC2 <= byte < 0xE0:
            more = 1
        elif 0xE0 <= byte < 0xF0:
            more = 2
        elif 0xF0 <= byte < 0xF5:
            more = 3
        else:
            return False
        if at + more > end:
            return False
        second = data[at]
        if (
            (byte == 0xE0 and second < 0xA0)
            or (byte == 0xED and second >= 0xA0)
            or (byte == 0xF0 and second < 0x90)
            or (byte == 0xF4 and second >= 0x90)
        ):
            return False
        for i in range(more):
            if data[at + i] & 0xC0 != 0x80:
                return False
        at += more
    return True


@compiled(_i8(OUT_BYTES, _i8, BYTES, _i8, _i8))
def put_base64(out: Any, at: Any, data: Any, start: Any, size: Any) -> Any:
    """Write ``size`` bytes in base64; give where that ends."""
    for i in range(0, size, 3):
        left = min(size - i, 3)
        bits = np.int64(0)
        for j in range(3):
            bits = bits << 8 | (np.int64(data[start + i + j]) if j < left else np.int64(0))
        for j in range(4):
            out[at + j] = _ALPHABET[bits >> (18 - 6 * j) & 63] if j <= left else np.uint8(0x3D)
        at += 4
    return at


@compiled(_i8(BYTES, _i8, _i8))
def base64_size(data: Any, start: Any, size: Any) -> Any:
    """Return how many bytes are behind base64 text, or -1 if it is none."""
    if size & 3:
        return -1
    if size == 0:
        return 0
    padding = 0
    while padding < 2 and data[start + size - 1 - padding] == 0x3D:
        padding += 1
    for i in range(size - padding):
        if _SEXTETS[data[start + i]] == 255:
            return -1
    return size // 4 * 3 - padding


@compiled(types.void(OUT_BYTES, _i8, BYTES, _i8, _i8))
def put_decoded(out: Any, at: Any, data: Any, start: Any, size: Any) -> None:
    """Write the ``size`` bytes behind base64 text that `base64_size` has looked at."""
    for i in range(0, size, 3):
        left = min(size - i, 3)
        bits = np.int64(0)
        for j in range(4):
            bits = bits << 6 | (
                np.int64(_SEXTETS[data[start + i // 3 * 4 + j]]) if j <= left else np.int64(0)
            )
        for j in range(left):
            out[at + i + j] = np.uint8(bits >> (16 - 8 * j) & 0xFF)


@compiled(types.UniTuple(_i8, 4)(BYTES, _i8, _i8))
def next_field(data: Any, at: Any, end: Any) -> Any:
    """Return (number, value or start, end of bytes or -1, position after) of a protobuf field; number 0 is a fault."""
    key, at = unsigned(data, at, end, 10)
    if at > 0 and key > 0 and key & 7 == 0:
        value, at = unsigned(data, at, end, 10)
        if at > 0:
            return key >> 3, value, np.int64(-1), at
    elif at > 0 and key > 0 and key & 7 == 2:
        size, at = unsigned(data, at, end, 10)
        if at > 0 and 0 <= size <= end - at:
            return key >> 3, at, at + size, at + size
    return np.int64(0), np.int64(0), np.int64(0), np.int64(0)


@compiled(types.UniTuple(_i8, 5)(BYTES, _i8, _i8))
def pair(data: Any, at: Any, end: Any) -> Any:
    """Return (name, its end, value, its end, fault) of a KeyValue."""
    name = name_end = value = value_end = at
    while at < end:
        number, start, stop, at = next_field(data, at, end)
        if number == 0 or stop < 0:
            return name, name_end, value, value_end, np.int64(1)
        if number == 1:
            name, name_end = start, stop
        elif number == 2:
            value, value_end = start, stop
    return name, name_end, value, value_end, np.int64(0)
