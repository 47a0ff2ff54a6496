"""`magnetar.records.sticky_keys` in machine code."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from magnetar.records.compiling import compiled
from magnetar.records.kernels.arrow import BYTES, OUT_INT32, big_endian
from magnetar.records.kernels.bytes import next_field

__all__ = ["hashes", "np"]

_i8, _u4 = types.int64, types.uint32
_HASHES = 1 << 16


@compiled(_u4(_u4))
def _scrambled(word: Any) -> Any:
    word = np.uint32(word * np.uint32(0xCC9E2D51))
    word = np.uint32(np.uint32(word << np.uint32(15)) | np.uint32(word >> np.uint32(17)))
    return np.uint32(word * np.uint32(0x1B873593))


@compiled(_i8(BYTES, _i8, _i8))
def _hash_of(data: Any, at: Any, size: Any) -> Any:
    value = np.uint32(0)
    whole = at + (size & ~np.int64(3))
    end = at + size
    while at < whole:
        word = np.uint32(0)
        for i in range(4):
            word |= np.uint32(np.uint32(data[at + i]) << np.uint32(8 * i))
        value ^= _scrambled(word)
        value = np.uint32(np.uint32(value << np.uint32(13)) | np.uint32(value >> np.uint32(19)))
        value = np.uint32(np.uint32(value * np.uint32(5)) + np.uint32(0xE6546B64))
        at += 4
    if at < end:
        word = np.uint32(0)
        for i in range(end - at):
            word |= np.uint32(np.uint32(data[at + i]) << np.uint32(8 * i))
        value ^= _scrambled(word)
    value ^= np.uint32(size)
    value = np.uint32((value ^ (value >> np.uint32(16))) * np.uint32(0x85EBCA6B))
    value = np.uint32((value ^ (value >> np.uint32(13))) * np.uint32(0xC2B2AE35))
    value ^= value >> np.uint32(16)
    return np.int64(value) & (_HASHES - 1)


@compiled(_i8(BYTES, _i8, OUT_INT32, OUT_INT32))
def hashes(data: Any, keyless: Any, out: Any, distinct: Any) -> Any:
    """Fill in the hash of each message's key, and each hash once as long as there is room for it; give how many.

    -1 is for what the plain form has to look at: what is not laid out as it must be, and keys that are in base64 alone.
    """
    seen = np.zeros(_HASHES, np.uint8)
    count = np.int64(0)
    at, end = np.int64(0), np.int64(len(data))
    for row in range(len(out)):
        if end - at < 4:
            return np.int64(-1)
        stop = at + 4 + big_endian(data, at, 4)
        at += 4
        if stop < at or stop > end:
            return np.int64(-1)
        key = ordering = np.int64(-1)
        key_end = ordering_end = size = np.int64(0)
        in_base64 = gone = False
        while at < stop:
            number, value, value_end, at = next_field(data, at, stop)
            if number == 0 or (
                number <= 10 and (value_end >= 0) != (number == 1 or number == 2 or number == 7)
            ):
                return np.int64(-1)
            if number == 2:
                key, key_end = value, value_end
            elif number == 7:
                ordering, ordering_end = value, value_end
            elif number == 3:
                size = value
            elif number == 4:
                gone = value != 0
            elif number == 6:
                in_base64 = value != 0
        at = stop + size
        if size < 0 or at > end or at < stop:
            return np.int64(-1)
        if ordering >= 0:
            key, key_end = ordering, ordering_end
        elif key >= 0 and in_base64:
            return np.int64(-1)
        if key < 0 or gone:
            out[row] = keyless
            continue
        found = _hash_of(data, key, key_end - key)
        out[row] = found
        if not seen[found] and count < len(distinct):
            seen[found] = 1
            distinct[count] = found
            count += 1
    return count if at == end else np.int64(-1)
