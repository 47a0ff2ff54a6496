"""Compaction in machine code: where the keys of a batch lie, which offset is the last of each, and what is copied.

Nothing here raises. A batch that is not laid out as it must be is left to the plain form
(`magnetar.records.compaction`), which puts the fault into words. Keys are known by 128 bits of SipHash-1-3 under a
secret of the run's own, so that nobody can choose keys that are taken for each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from magnetar.records.compiling import compiled
from magnetar.records.kernels.arrow import (
    BYTES,
    OUT_BYTES,
    OUT_INT64,
    TABLE,
    _copy,
    _field,
    big_endian,
    zigzag,
)
from magnetar.records.kernels.bytes import next_field

_i8, _u8 = types.int64, types.uint64

# Columns of a row: where the message lies in its batch, its number, its key, and the size of its value. A size of NULL
# is a null, of GONE a message that was compacted out before.
START, END, DELTA, KEY_AT, KEY_SIZE, VALUE_SIZE, TIME = range(7)
ROW_FIELDS = 7
NULL, GONE = -1, -2

# Columns of the map: two halves of the hash, and the last offset; EMPTY where there is none.
LAST = 2
MAP_FIELDS = 3
EMPTY = -1


@compiled(types.boolean(BYTES, TABLE))
def record_rows(data: Any, rows: Any) -> Any:
    """Fill in a row per Kafka record of ``data``; tell whether all is as it must be."""
    at, end = np.int64(0), np.int64(len(data))
    for row in range(rows.shape[0]):
        size, first = zigzag(data, at, end, 5)
        if first < 0 or size < 1 or first + size > end:
            return False
        last = first + size
        time, after = zigzag(data, first + 1, last, 10)
        if after < 0:
            return False
        delta, after = zigzag(data, after, last, 5)
        if after < 0:
            return False
        key, key_size, fault = _field(data, after, last)
        if fault:
            return False
        _, value_size, fault = _field(data, key + max(key_size, 0), last)
        if fault:
            return False
        rows[row, START], rows[row, END], rows[row, DELTA] = at, last, delta
        rows[row, KEY_AT], rows[row, KEY_SIZE] = key, key_size
        rows[row, VALUE_SIZE], rows[row, TIME] = value_size, time
        at = last
    return at == end


@compiled(types.boolean(BYTES, TABLE))
def single_rows(data: Any, rows: Any) -> Any:
    """Fill in a row per message of a Pulsar batch; tell whether all is as it must be, and no key is in base64 alone."""
    at, end = np.int64(0), np.int64(len(data))
    for row in range(rows.shape[0]):
        if end - at < 4:
            return False
        rows[row, START], rows[row, DELTA], rows[row, TIME] = at, row, 0
        stop = at + 4 + big_endian(data, at, 4)
        at += 4
        if stop < at or stop > end:
            return False
        key = ordering = np.int64(-1)
        key_end = ordering_end = size = np.int64(0)
        in_base64 = null = null_key = gone = False
        while at < stop:
            number, value, value_end, at = next_field(data, at, stop)
            if number == 0 or (
                number <= 10 and (value_end >= 0) != (number == 1 or number == 2 or number == 7)
            ):
                return False
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
            elif number == 9:
                null = value != 0
            elif number == 10:
                null_key = value != 0
        at = stop + size
        if size < 0 or at > end or at < stop:
            return False
        if null_key:
            key = np.int64(-1)
        if key < 0 or in_base64:
            if key >= 0 and ordering < 0:
                return False
            key, key_end = ordering, ordering_end
        rows[row, END], rows[row, KEY_AT] = at, max(key, 0)
        rows[row, KEY_SIZE] = key_end - key if key >= 0 else NULL
        rows[row, VALUE_SIZE] = GONE if gone else NULL if null else size
    return at == end


@compiled(_u8(_u8, _i8))
def _turned(word: Any, bits: Any) -> Any:
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


@compiled(types.UniTuple(_u8, 4)(_u8, _u8, _u8, _u8))
def _round(a: Any, b: Any, c: Any, d: Any) -> Any:
    a += b
    b = _turned(b, 13) ^ a
    a = _turned(a, 32)
    c += d
    d = _turned(d, 16) ^ c
    a += d
    d = _turned(d, 21) ^ a
    c += b
    b = _turned(b, 17) ^ c
    c = _turned(c, 32)
    return a, b, c, d


@compiled(types.UniTuple(_i8, 2)(BYTES, _i8, _i8, OUT_INT64))
def hashed(data: Any, at: Any, size: Any, secret: Any) -> Any:
    """Return SipHash-1-3 with 128 bits of ``size`` bytes at ``at`` under the two numbers of ``secret``."""
    k0, k1 = np.uint64(secret[0]), np.uint64(secret[1])
    a = k0 ^ np.uint64(0x736F6D6570736575)
    b = k1 ^ np.uint64(0x646F72616E646F6D) ^ np.uint64(0xEE)
    c = k0 ^ np.uint64(0x6C7967656E657261)
    d = k1 ^ np.uint64(0x7465646279746573)
    whole = size // 8
    for i in range(whole + 1):
        word = np.uint64(0)
        if i < whole:
            for j in range(8):
                word |= np.uint64(data[at + 8 * i + j]) << np.uint64(8 * j)
        else:
            for j in range(size & 7):
                word |= np.uint64(data[at + 8 * i + j]) << np.uint64(8 * j)
            word |= np.uint64(size & 0xFF) << np.uint64(56)
        d ^= word
        a, b, c, d = _round(a, b, c, d)
        a ^= word
    c ^= np.uint64(0xEE)
    for _ in range(3):
        a, b, c, d = _round(a, b, c, d)
    first = a ^ b ^ c ^ d
    b ^= np.uint64(0xDD)
    for _ in range(3):
        a, b, c, d = _round(a, b, c, d)
    return np.int64(first), np.int64(a ^ b ^ c ^ d)


@compiled(_i8(TABLE, _i8, _i8))
def _slot(table: Any, first: Any, second: Any) -> Any:
    """Return where a hash lies, or the empty place where it belongs; there is always an empty one."""
    mask = np.int64(table.shape[0] - 1)
    at = first & mask
    while table[at, LAST] != EMPTY and (table[at, 0] != first or table[at, 1] != second):
        at = (at + 1) & mask
    return at


@compiled(_i8(BYTES, TABLE, _i8, OUT_INT64, TABLE))
def note_rows(data: Any, rows: Any, base_offset: Any, secret: Any, table: Any) -> Any:
    """Note the offset of every row under its key; give how many keys are new."""
    new = np.int64(0)
    for row in range(rows.shape[0]):
        if rows[row, KEY_SIZE] < 0 or rows[row, VALUE_SIZE] == GONE:
            continue
        first, second = hashed(data, rows[row, KEY_AT], rows[row, KEY_SIZE], secret)
        at = _slot(table, first, second)
        if table[at, LAST] == EMPTY:
            new += 1
            table[at, 0], table[at, 1] = first, second
        table[at, LAST] = max(table[at, LAST], base_offset + rows[row, DELTA])
    return new


@compiled(types.void(BYTES, TABLE, OUT_INT64, TABLE, OUT_INT64))
def last_of_rows(data: Any, rows: Any, secret: Any, table: Any, out: Any) -> None:
    """Fill in the last offset of every row's key; EMPTY where none was noted."""
    for row in range(rows.shape[0]):
        out[row] = EMPTY
        if rows[row, KEY_SIZE] >= 0:
            first, second = hashed(data, rows[row, KEY_AT], rows[row, KEY_SIZE], secret)
            out[row] = table[_slot(table, first, second), LAST]


@compiled(_i8(BYTES, TABLE, BYTES, BYTES, OUT_BYTES))
def copy_rows(data: Any, rows: Any, keep: Any, gone: Any, out: Any) -> Any:
    """Copy the rows that are kept, and ``gone`` in the place of every other one; give the size."""
    at = np.int64(0)
    for row in range(rows.shape[0]):
        if keep[row]:
            size = rows[row, END] - rows[row, START]
            _copy(out, at, data, rows[row, START], size)
        else:
            size = np.int64(len(gone))
            _copy(out, at, gone, 0, size)
        at += size
    return at
