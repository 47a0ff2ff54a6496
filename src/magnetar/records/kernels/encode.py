"""Columns to records in machine code (numba): `magnetar.records.kernels.arrow`'s way back, and Kafka's partitioner.

Rows are named by number, so that those of one partition need not lie side by side. `measure` tells how many of them
fill a batch and how much room that takes at most; `write_rows` lays them out as the records of one batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from magnetar.records.compiling import compiled
from magnetar.records.kernels.arrow import (
    BYTES,
    OUT_BYTES,
    OUT_INT32,
    _copy,
)
from magnetar.records.kernels.bytes import put_zigzag, zigzag_bytes

ENDS = types.Array(types.int32, 1, "C", readonly=True)
INT64 = types.Array(types.int64, 1, "C", readonly=True)
_i8 = types.int64

# A record's length, attributes, two deltas, two lengths and a header count take at most so many bytes;
# a header's two lengths so many.
_RECORD_BYTES = 5 + 1 + 10 + 5 + 5 + 5 + 5
_HEADER_BYTES = 5 + 5


@compiled(types.int32(BYTES, _i8, _i8))
def _murmur2(data: Any, start: Any, end: Any) -> Any:
    """Return Kafka's hash of a key (org.apache.kafka.common.utils.Utils.murmur2)."""
    m = np.uint32(0x5BD1E995)
    length = end - start
    h = np.uint32(0x9747B28C) ^ np.uint32(length)
    at = start
    while at + 4 <= end:
        k = np.uint32(
            np.uint32(data[at])
            | np.uint32(data[at + 1]) << np.uint32(8)
            | np.uint32(data[at + 2]) << np.uint32(16)
            | np.uint32(data[at + 3]) << np.uint32(24)
        )
        k = np.uint32(k * m)
        k = np.uint32(k ^ (k >> np.uint32(24)))
        k = np.uint32(k * m)
        h = np.uint32(h * m)
        h = np.uint32(h ^ k)
        at += 4
    left = end - at
    if left == 3:
        h = np.uint32(h ^ (np.uint32(data[at + 2]) << np.uint32(16)))
    if left >= 2:
        h = np.uint32(h ^ (np.uint32(data[at + 1]) << np.uint32(8)))
    if left >= 1:
        h = np.uint32(h ^ np.uint32(data[at]))
        h = np.uint32(h * m)
    h = np.uint32(h ^ (h >> np.uint32(13)))
    h = np.uint32(h * m)
    h = np.uint32(h ^ (h >> np.uint32(15)))
    return np.int32(h)


@compiled(types.void(ENDS, BYTES, BYTES, _i8, _i8, OUT_INT32))
def choose_partitions(ends: Any, keys: Any, nulls: Any, partitions: Any, first: Any, chosen: Any) -> None:
    """Choose a partition for each row that has none (-1): by its key's hash, as Kafka's own producer does.

    Rows without a key go to all partitions evenly, in runs, from partition ``first`` on.
    """
    keyless = np.int64(0)
    for row in range(len(chosen)):
        keyless += chosen[row] < 0 and nulls[row] != 0
    met = np.int64(0)
    for row in range(len(chosen)):
        if chosen[row] >= 0:
            continue
        if nulls[row]:
            chosen[row] = (first + met * partitions // keyless) % partitions
            met += 1
        else:
            found = np.int64(_murmur2(keys, ends[row], ends[row + 1]))
            chosen[row] = (found & 0x7FFFFFFF) % partitions


@compiled(types.UniTuple(_i8, 3)(INT64, _i8, _i8, ENDS, ENDS, ENDS, ENDS, ENDS, INT64))
def measure(
    rows: Any, first: Any, target: Any,
    key_ends: Any, value_ends: Any, header_ends: Any, name_ends: Any, content_ends: Any, times: Any,
) -> Any:  # fmt: skip
    """Return (row after the last that fits in ``target`` bytes, at least one; room needed at most; latest time)."""
    room = np.int64(0)
    latest = times[rows[first]]
    at = first
    while at < len(rows):
        row = rows[at]
        low, high = header_ends[row], header_ends[row + 1]
        size = (
            _RECORD_BYTES
            + (key_ends[row + 1] - key_ends[row])
            + (value_ends[row + 1] - value_ends[row])
            + (name_ends[high] - name_ends[low])
            + (content_ends[high] - content_ends[low])
            + _HEADER_BYTES * (high - low)
        )
        if at > first and room + size > target:
            break
        room += size
        latest = max(latest, times[row])
        at += 1
    return at, room, latest


@compiled(_i8(OUT_BYTES, _i8, BYTES, _i8, _i8, types.boolean))
def _put_bytes(out: Any, at: Any, data: Any, start: Any, end: Any, null: Any) -> Any:
    if null:
        return put_zigzag(out, at, -1)
    at = put_zigzag(out, at, end - start)
    _copy(out, at, data, start, end - start)
    return at + end - start


@compiled(
    _i8(
        INT64, _i8, _i8, INT64, OUT_BYTES,
        ENDS, BYTES, BYTES, ENDS, BYTES, BYTES,
        ENDS, ENDS, BYTES, ENDS, BYTES, BYTES,
    )
)  # fmt: skip
def write_rows(
    rows: Any, first: Any, stop: Any, times: Any, out: Any,
    key_ends: Any, keys: Any, null_keys: Any, value_ends: Any, values: Any, null_values: Any,
    header_ends: Any, name_ends: Any, names: Any, content_ends: Any, contents: Any, null_contents: Any,
) -> Any:  # fmt: skip
    """Lay ``rows[first:stop]`` out as the records of one batch whose base time is the first row's; give their size.

    ``out`` must have the room that `measure` told. Null is marked by 1 in ``null_...``.
    """
    at = np.int64(0)
    base_time = times[rows[first]]
    for number in range(first, stop):
        row = rows[number]
        time_delta = times[row] - base_time
        offset_delta = number - first
        key_size = np.int64(key_ends[row + 1] - key_ends[row])
        value_size = np.int64(value_ends[row + 1] - value_ends[row])
        headers = np.int64(header_ends[row + 1] - header_ends[row])
        size = 1 + zigzag_bytes(time_delta) + zigzag_bytes(offset_delta) + zigzag_bytes(headers)
        size += 1 if null_keys[row] else zigzag_bytes(key_size) + key_size
        size += 1 if null_values[row] else zigzag_bytes(value_size) + value_size
        for header in range(header_ends[row], header_ends[row + 1]):
            name_size = np.int64(name_ends[header + 1] - name_ends[header])
            content_size = np.int64(content_ends[header + 1] - content_ends[header])
            size += zigzag_bytes(name_size) + name_size
            size += 1 if null_contents[header] else zigzag_bytes(content_size) + content_size
        at = put_zigzag(out, at, size)
        out[at] = 0
        at = put_zigzag(out, at + 1, time_delta)
        at = put_zigzag(out, at, offset_delta)
        at = _put_bytes(out, at, keys, key_ends[row], key_ends[row + 1], null_keys[row] != 0)
        at = _put_bytes(out, at, values, value_ends[row], value_ends[row + 1], null_values[row] != 0)
        at = put_zigzag(out, at, headers)
        for header in range(header_ends[row], header_ends[row + 1]):
            at = _put_bytes(out, at, names, name_ends[header], name_ends[header + 1], False)
            at = _put_bytes(
                out, at, contents, content_ends[header], content_ends[header + 1], null_contents[header] != 0
            )
    return at
