"""Records to columns in machine code (numba): what Spark's executors spend their time in.

Compiled once for the types given here and kept on disk, so that a starting worker only loads it. Nothing here
raises: a function gives a `Fault` and where it found it, and `magnetar.records.arrow` puts that into words. Every
position is checked before it is read; the bytes may be anything.
"""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from magnetar.records.batch_table import (
    ATTRIBUTES,
    BARE_ROWS,
    BASE_OFFSET,
    BASE_TIME,
    CONTENT_BYTES,
    COUNT,
    END,
    FAULT,
    FAULT_AT,
    FAULT_BATCH,
    FOREIGN_NAMES,
    HEADERS,
    INFLATED,
    KEY_BYTES,
    LAST_DELTA,
    MAX_TIME,
    NAME_BYTES,
    NULL_CONTENTS,
    NULL_KEYS,
    NULL_VALUES,
    ROWS,
    START,
    TAKEN,
    VALUE_BYTES,
    WANT_HEADERS,
    WANT_KEY,
    WANT_VALUE,
)
from magnetar.records.compiling import compiled

BYTES = types.Array(types.uint8, 1, "C", readonly=True)
OUT_BYTES = types.Array(types.uint8, 1, "C")
OUT_INT32 = types.Array(types.int32, 1, "C")
OUT_INT64 = types.Array(types.int64, 1, "C")
TABLE = types.Array(types.int64, 2, "C")
_i8, _u4, _u8 = types.int64, types.uint32, types.uint64


_NONE, _BAD_NUMBER, _RECORD_TOO_LONG, _FIELD_TOO_LONG = 0, 2, 3, 4
_NOT_FILLED, _BYTES_LEFT, _BAD_OFFSET, _BAD_HEADERS = 5, 6, 7, 8

_LOG_APPEND_TIME = 0x08
_MAX_MS = (1 << 63) // 1000 - 1


# --- CRC-32C ---------------------------------------------------------------------------------------------------


def _has_crc_instruction() -> bool:
    return platform.machine() in ("x86_64", "AMD64") and bool(binding.get_host_cpu_features().get("sse4.2"))


def _crc_tables() -> np.ndarray[Any, Any]:
    """Return the tables of the slicing-by-8 method, for processors without an instruction for it."""
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        tables[0, byte] = crc
    for k in range(1, 8):
        tables[k] = tables[k - 1] >> 8 ^ tables[0][tables[k - 1] & 0xFF]
    return tables


_TABLES = _crc_tables()
_LANE = 1024  # bytes


def _lane_tables() -> np.ndarray[Any, Any]:
    """Return the tables that take a CRC on by a lane of zeros: one per byte of the CRC."""
    crcs = np.arange(256, dtype=np.uint32) << np.array([[0], [8], [16], [24]], np.uint32)
    zeros: np.ndarray[Any, Any] = _TABLES[0][crcs & 0xFF] ^ (
        crcs >> 8
    )  # by one byte; each round doubles how far
    for _ in range(_LANE.bit_length() - 1):
        zeros = np.bitwise_xor.reduce([zeros[k][zeros >> (8 * k) & 0xFF] for k in range(4)])
    return zeros


_LANES = _lane_tables()


@intrinsic  # type: ignore[untyped-decorator]
def _crc_instruction(typing: Any, crc: Any, word: Any) -> Any:
    """Return ``crc`` taken on by 8 bytes, with the processor's own instruction."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word_type = ir.IntType(64)
        kind = ir.FunctionType(word_type, [word_type, word_type])
        return builder.call(
            cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse42.crc32.64.64"), args
        )

    return _u8(_u8, _u8), generate


@intrinsic  # type: ignore[untyped-decorator]
def _word(typing: Any, data: Any, at: Any) -> Any:
    """Return the 8 bytes at ``at`` as a number in the machine's own order, by one load."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        place = builder.bitcast(builder.gep(array.data, [args[1]]), ir.IntType(64).as_pointer())
        return builder.load(place, align=1)

    return _u8(BYTES, _i8), generate


@compiled(_u8(_u8, _u8))
def _crc_by_tables(crc: Any, word: Any) -> Any:
    word ^= crc
    out = np.uint32(0)
    for i in range(8):
        out ^= _TABLES[7 - i, (word >> np.uint64(8 * i)) & np.uint64(0xFF)]
    return np.uint64(out)


if _has_crc_instruction():

    @compiled(_u8(_u8, _u8))
    def _crc_word(crc: Any, word: Any) -> Any:
        return _crc_instruction(crc, word)

else:
    _crc_word = _crc_by_tables


@compiled(_u8(_u8))
def _crc_lane(crc: Any) -> Any:
    """Return ``crc`` taken on by a lane of zeros."""
    low, byte = np.uint64(0xFF), np.uint64(8)
    out = _LANES[0, crc & low] ^ _LANES[1, (crc >> byte) & low]
    return np.uint64(out ^ _LANES[2, (crc >> (byte + byte)) & low] ^ _LANES[3, crc >> (byte + byte + byte)])


@compiled(_u4(BYTES, _i8, _i8, _u4))
def crc32c(data: Any, start: Any, end: Any, crc: Any) -> Any:
    """Return the CRC-32C of ``data[start:end]``, going on from ``crc``.

    The processor begins one step each cycle but needs three to finish it: three lanes side by side keep it busy.
    """
    state = np.uint64(~crc & 0xFFFFFFFF)
    at = start
    while at + 3 * _LANE <= end:
        second = third = np.uint64(0)
        for place in range(at, at + _LANE, 8):
            state = _crc_word(state, _word(data, place))
            second = _crc_word(second, _word(data, place + _LANE))
            third = _crc_word(third, _word(data, place + 2 * _LANE))
        state = _crc_lane(_crc_lane(state) ^ second) ^ third
        at += 3 * _LANE
    while at + 8 <= end:
        state = _crc_word(state, _word(data, at))
        at += 8
    while at < end:
        low = (state ^ np.uint64(data[at])) & np.uint64(0xFF)
        state = np.uint64(_TABLES[0, low]) ^ (state >> np.uint64(8))
        at += 1
    return np.uint32(~state & np.uint64(0xFFFFFFFF))


# --- numbers and bytes -----------------------------------------------------------------------------------------


@compiled(_i8(BYTES, _i8, _i8))
def big_endian(data: Any, at: Any, size: Any) -> Any:
    """Return the signed number of ``size`` bytes at ``at``."""
    value = np.int64(0)
    for i in range(size):
        value = value << 8 | np.int64(data[at + i])
    if size < 8 and value >> (8 * size - 1):
        value -= np.int64(1) << (8 * size)
    return value


@compiled(types.UniTuple(_i8, 2)(BYTES, _i8, _i8, _i8))
def unsigned(data: Any, at: Any, end: Any, most_bytes: Any) -> Any:
    """Return (value, position after it) of a plain varint; the position is -1 if it is cut, too long or too large."""
    value = np.uint64(0)
    for i in range(min(most_bytes, end - at)):
        byte = np.uint64(data[at + i])
        value |= (byte & np.uint64(0x7F)) << np.uint64(7 * i)
        if byte < 0x80:
            return (np.int64(value), at + i + 1) if i < 9 or byte < 2 else (np.int64(0), np.int64(-1))
    return np.int64(0), np.int64(-1)


@compiled(types.UniTuple(_i8, 2)(BYTES, _i8, _i8, _i8))
def zigzag(data: Any, at: Any, end: Any, most_bytes: Any) -> Any:
    """Return (value, position after it) of Kafka's signed varint; see `unsigned` for what is wrong."""
    if at < end and data[at] < 0x80:
        small = np.int64(data[at])
        return (small >> 1) ^ -(small & 1), at + 1
    value, after = unsigned(data, at, end, most_bytes)
    return np.int64(np.uint64(value) >> np.uint64(1)) ^ -(value & 1), after


@intrinsic  # type: ignore[untyped-decorator]
def _copy(typing: Any, target: Any, to: Any, source: Any, at: Any, size: Any) -> Any:
    """Copy ``size`` bytes with the C library's own routine; a loop here is several times slower."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        out = context.make_array(signature.args[0])(context, builder, args[0])
        data = context.make_array(signature.args[2])(context, builder, args[2])
        to, at = builder.gep(out.data, [args[1]]), builder.gep(data.data, [args[3]])
        cgutils.raw_memcpy(builder, to, at, args[4], 1)
        return context.get_dummy_value()

    return types.void(OUT_BYTES, _i8, source, _i8, _i8), generate


@compiled(types.void(OUT_BYTES, _i8))
def _set_bit(bits: Any, row: Any) -> None:
    bits[row >> 3] |= np.uint8(1 << (row & 7))


@compiled(types.UniTuple(_i8, 3)(BYTES, _i8, _i8))
def _field(data: Any, at: Any, end: Any) -> Any:
    """Return (start, size, fault) of a length-prefixed field; size -1 means null."""
    size, start = zigzag(data, at, end, 5)
    if start < 0:
        return np.int64(0), np.int64(0), np.int64(_BAD_NUMBER)
    if size < -1 or start + size > end:
        return np.int64(0), np.int64(0), np.int64(_FIELD_TOO_LONG)
    return start, size, np.int64(_NONE)


# --- records to columns ----------------------------------------------------------------------------------------


@compiled(_i8(BYTES, _i8, _i8, _i8, OUT_INT64, OUT_INT32, OUT_BYTES, OUT_INT32, OUT_BYTES, OUT_BYTES))
def _headers(
    data: Any, at: Any, end: Any, wants: Any, totals: Any,
    name_ends: Any, names: Any, content_ends: Any, contents: Any, content_bits: Any,
) -> Any:  # fmt: skip
    """Take the headers of one record, which must end at ``end``; give the fault."""
    count, at = zigzag(data, at, end, 5)
    if at < 0 or count < 0 or count > end - at:
        return np.int64(_BAD_HEADERS)
    for _ in range(count):
        name, name_size, fault = _field(data, at, end)
        if fault or name_size < 0:
            return fault if fault else np.int64(_BAD_HEADERS)
        at = name + name_size
        content, content_size, fault = _field(data, at, end)
        if fault:
            return fault
        at = content + max(content_size, 0)
        if wants & WANT_HEADERS:
            number = totals[HEADERS]
            for i in range(name_size):
                byte = data[name + i]
                names[totals[NAME_BYTES] + i] = byte
                totals[FOREIGN_NAMES] |= byte >> 7
            totals[NAME_BYTES] += name_size
            name_ends[number + 1] = totals[NAME_BYTES]
            if content_size < 0:
                totals[NULL_CONTENTS] += 1
            else:
                _copy(contents, totals[CONTENT_BYTES], data, content, content_size)
                totals[CONTENT_BYTES] += content_size
                _set_bit(content_bits, number)
            content_ends[number + 1] = totals[CONTENT_BYTES]
            totals[HEADERS] = number + 1
    return np.int64(_NONE if at == end else _NOT_FILLED)


@compiled(
    types.void(
        BYTES, BYTES, TABLE, _i8, _i8, _i8, _i8, _i8, OUT_INT64,
        OUT_INT64, OUT_INT64, OUT_INT32,
        OUT_INT32, OUT_BYTES, OUT_BYTES,
        OUT_INT32, OUT_BYTES, OUT_BYTES,
        OUT_INT32, OUT_BYTES,
        OUT_INT32, OUT_BYTES, OUT_INT32, OUT_BYTES, OUT_BYTES,
    )
)  # fmt: skip
def decode_rows(
    stored: Any, inflated: Any, batches: Any, low: Any, high: Any, earliest: Any, latest: Any, wants: Any, totals: Any,
    offsets: Any, times: Any, time_types: Any,
    key_ends: Any, keys: Any, key_bits: Any,
    value_ends: Any, values: Any, value_bits: Any,
    header_ends: Any, header_bits: Any,
    name_ends: Any, names: Any, content_ends: Any, contents: Any, content_bits: Any,
) -> None:  # fmt: skip
    """Lay the records of ``batches`` with offsets in ``[low, high)`` and earliest <= time <= latest out as columns.

    A batch's records lie in ``stored`` (the ledger's file) or, once decompressed, in ``inflated``. ``totals`` tells
    how much was filled in, and the first fault with its batch and the position within that batch's records. Each
    batch's TAKEN becomes the number of its rows. A record of another time is passed over by its length alone.
    """
    row = np.int64(0)
    key_bytes = np.int64(0)
    value_bytes = np.int64(0)
    for number in range(batches.shape[0]):
        data = inflated if batches[number, INFLATED] else stored
        at = batches[number, START]
        end = batches[number, END]
        base_offset = batches[number, BASE_OFFSET]
        last_delta = batches[number, LAST_DELTA]
        base_time = batches[number, BASE_TIME]
        append_time = np.int32(batches[number, ATTRIBUTES] & _LOG_APPEND_TIME != 0)
        fault = np.int64(_NONE)
        before_batch = row
        for _ in range(batches[number, COUNT]):
            size, first = zigzag(data, at, end, 5)
            if first < 0 or size < 0 or first + size > end:
                fault = np.int64(_RECORD_TOO_LONG)
                break
            last = first + size
            time_delta, after = zigzag(data, first + 1, last, 10)
            if after < 0:
                fault = np.int64(_BAD_NUMBER)
                break
            time = batches[number, MAX_TIME] if append_time else base_time + time_delta
            if time < earliest or time > latest:
                at = last
                continue
            offset_delta, after = zigzag(data, after, last, 5)
            if after < 0 or offset_delta < 0 or offset_delta > last_delta:
                fault = np.int64(_BAD_OFFSET)
                break
            key, key_size, fault = _field(data, after, last)
            if fault:
                break
            value, value_size, fault = _field(data, key + max(key_size, 0), last)
            if fault:
                break
            offset = base_offset + offset_delta
            wanted = low <= offset < high
            before = totals[HEADERS]
            after = value + max(value_size, 0)
            if after + 1 != last or data[after] != 0:
                fault = _headers(
                    data, after, last, wants if wanted else 0, totals,
                    name_ends, names, content_ends, contents, content_bits,
                )  # fmt: skip
                if fault:
                    break
            at = last
            if not wanted:
                continue
            offsets[row] = offset
            times[row] = max(min(time, _MAX_MS), -_MAX_MS) * 1000
            time_types[row] = append_time
            if wants & WANT_KEY:
                if key_size < 0:
                    totals[NULL_KEYS] += 1
                else:
                    _copy(keys, key_bytes, data, key, key_size)
                    key_bytes += key_size
                    _set_bit(key_bits, row)
                key_ends[row + 1] = key_bytes
            if wants & WANT_VALUE:
                if value_size < 0:
                    totals[NULL_VALUES] += 1
                else:
                    _copy(values, value_bytes, data, value, value_size)
                    value_bytes += value_size
                    _set_bit(value_bits, row)
                value_ends[row + 1] = value_bytes
            if wants & WANT_HEADERS:
                header_ends[row + 1] = totals[HEADERS]
                if totals[HEADERS] == before:
                    totals[BARE_ROWS] += 1
                else:
                    _set_bit(header_bits, row)
            row += 1
        batches[number, TAKEN] = row - before_batch
        if not fault and at != end:
            fault = np.int64(_BYTES_LEFT)
        if fault:
            totals[FAULT] = fault
            totals[FAULT_BATCH] = number
            totals[FAULT_AT] = at - batches[number, START]
            break
    totals[ROWS] = row
    totals[KEY_BYTES] = key_bytes
    totals[VALUE_BYTES] = value_bytes
