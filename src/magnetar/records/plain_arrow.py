"""Records to columns in plain Python: what `magnetar.records.kernels.arrow` does, for while that is compiled.

The same columns and the same faults, for any bytes; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from magnetar.records import batch_table
from magnetar.records.batch_table import WANT_HEADERS, WANT_KEY, WANT_VALUE, Fault

_LOG_APPEND_TIME = 0x08
_MOST = (1 << 63) - 1
_MAX_MS = _MOST // 1000 - 1
_MORE = 1 << 64

Field = bytes | None


class _Faulty(Exception):
    """The records of a batch cannot be read further."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault


def unsigned(data: Any, at: int, end: int, most_bytes: int) -> tuple[int, int]:
    """Return (value of 64 bits with a sign, position after it) of a varint; the position is -1 if it is bad."""
    value = 0
    for number in range(min(most_bytes, end - at)):
        byte = data[at + number]
        value |= (byte & 0x7F) << 7 * number
        if byte < 0x80:
            if number == 9 and byte > 1:
                break
            return value if value <= _MOST else value - _MORE, at + number + 1
    return 0, -1


def zigzag(data: Any, at: int, end: int, most_bytes: int) -> tuple[int, int]:
    """Return (value, position after it) of Kafka's signed varint; see `unsigned` for what is wrong."""
    if at < end and data[at] < 0x80:
        value = data[at]
        return value >> 1 ^ -(value & 1), at + 1
    value, after = unsigned(data, at, end, most_bytes)
    value &= _MORE - 1
    return value >> 1 ^ -(value & 1), after


def _field(data: bytes, at: int, end: int) -> tuple[Field, int]:
    """Return a length-prefixed field, and where it ends; raise `_Faulty`."""
    size, start = zigzag(data, at, end, 5)
    if start < 0:
        raise _Faulty(Fault.BAD_NUMBER)
    if size < -1 or start + size > end:
        raise _Faulty(Fault.FIELD_TOO_LONG)
    return (None, start) if size < 0 else (data[start : start + size], start + size)


def _headers(data: bytes, at: int, end: int) -> list[tuple[bytes, Field]]:
    """Return the headers of one record, which must end at ``end``; raise `_Faulty`."""
    count, at = zigzag(data, at, end, 5)
    if at < 0 or not 0 <= count <= end - at:
        raise _Faulty(Fault.BAD_HEADERS)
    found = []
    for _ in range(count):
        name, at = _field(data, at, end)
        if name is None:
            raise _Faulty(Fault.BAD_HEADERS)
        content, at = _field(data, at, end)
        found.append((name, content))
    if at != end:
        raise _Faulty(Fault.NOT_FILLED)
    return found


class _Columns:
    """The rows so far, a list for each column."""

    def __init__(self, low: int, high: int, earliest: int, latest: int) -> None:
        self._low, self._high, self._earliest, self._latest = low, high, earliest, latest
        self.offsets: list[int] = []
        self.times: list[int] = []
        self.time_types: list[int] = []
        self.keys: list[Field] = []
        self.values: list[Field] = []
        self.headers: list[list[tuple[bytes, Field]]] = []
        self.at = 0

    def take(self, data: bytes, batch: Sequence[int]) -> None:
        """Take the wanted records of one batch, which ``data`` is all of; raise `_Faulty` at record `at`."""
        base_offset, last_delta = batch[batch_table.BASE_OFFSET], batch[batch_table.LAST_DELTA]
        base_time, max_time = batch[batch_table.BASE_TIME], batch[batch_table.MAX_TIME]
        append_time = int(batch[batch_table.ATTRIBUTES] & _LOG_APPEND_TIME != 0)
        self.at, end = 0, len(data)
        for _ in range(batch[batch_table.COUNT]):
            size, first = zigzag(data, self.at, end, 5)
            last = first + size
            if first < 0 or size < 0 or last > end:
                raise _Faulty(Fault.RECORD_TOO_LONG)
            delta, after = zigzag(data, first + 1, last, 10)
            if after < 0:
                raise _Faulty(Fault.BAD_NUMBER)
            time = max_time if append_time else _wrapped(base_time + delta)
            if self._earliest <= time <= self._latest:
                delta, after = zigzag(data, after, last, 5)
                if after < 0 or not 0 <= delta <= last_delta:
                    raise _Faulty(Fault.BAD_OFFSET)
                key, after = _field(data, after, last)
                value, after = _field(data, after, last)
                bare = after + 1 == last and data[after] == 0
                headers = [] if bare else _headers(data, after, last)
                offset = _wrapped(base_offset + delta)
                if self._low <= offset < self._high:
                    self.offsets.append(offset)
                    self.times.append(max(min(time, _MAX_MS), -_MAX_MS) * 1000)
                    self.time_types.append(append_time)
                    self.keys.append(key)
                    self.values.append(value)
                    self.headers.append(headers)
            self.at = last
        if self.at != end:
            raise _Faulty(Fault.BYTES_LEFT)


def _wrapped(number: int) -> int:
    """Return a number as 64 bits hold it."""
    return number if -_MOST <= number <= _MOST else (number + _MOST + 1) % _MORE - _MOST - 1


def decode_rows(
    stored: Any, inflated: Any, batches: Any, low: int, high: int, earliest: int, latest: int, wants: int, totals: Any,
    offsets: Any, times: Any, time_types: Any,
    key_ends: Any, keys: Any, key_bits: Any,
    value_ends: Any, values: Any, value_bits: Any,
    header_ends: Any, header_bits: Any,
    name_ends: Any, names: Any, content_ends: Any, contents: Any, content_bits: Any,
) -> None:  # fmt: skip
    """Lay out the records of ``batches``, as the function of this name in machine code."""
    columns = _Columns(low, high, earliest, latest)
    for number, batch in enumerate(batches.tolist()):
        data = (inflated if batch[batch_table.INFLATED] else stored)[
            batch[batch_table.START] : batch[batch_table.END]
        ]
        before = len(columns.offsets)
        try:
            columns.take(data.tobytes(), batch)
        except _Faulty as error:
            totals[batch_table.FAULT : batch_table.FAULT_AT + 1] = error.fault, number, columns.at
            return
        batches[number, batch_table.TAKEN] = len(columns.offsets) - before
    rows = totals[batch_table.ROWS] = len(columns.offsets)
    offsets[:rows], times[:rows], time_types[:rows] = columns.offsets, columns.times, columns.time_types
    if wants & WANT_KEY:
        told = _lay(columns.keys, key_ends, keys, key_bits)
        totals[batch_table.KEY_BYTES], totals[batch_table.NULL_KEYS] = told
    if wants & WANT_VALUE:
        told = _lay(columns.values, value_ends, values, value_bits)
        totals[batch_table.VALUE_BYTES], totals[batch_table.NULL_VALUES] = told
    if wants & WANT_HEADERS:
        header_ends[1 : rows + 1] = np.cumsum([len(each) for each in columns.headers], dtype=np.int32)
        totals[batch_table.BARE_ROWS] = _mark(columns.headers, header_bits, lambda each: bool(each))
        every = [each for some in columns.headers for each in some]
        totals[batch_table.HEADERS] = len(every)
        totals[batch_table.NAME_BYTES], _ = _lay([name for name, _ in every], name_ends, names, None)
        totals[batch_table.FOREIGN_NAMES] = int(not all(name.isascii() for name, _ in every))
        told = _lay([content for _, content in every], content_ends, contents, content_bits)
        totals[batch_table.CONTENT_BYTES], totals[batch_table.NULL_CONTENTS] = told


def _lay(column: Sequence[Field], ends: Any, data: Any, bits: Any) -> tuple[int, int]:
    """Lay a column out as Arrow has it; return its bytes and its nulls."""
    together = b"".join([each or b"" for each in column])
    ends[1 : len(column) + 1] = np.cumsum([len(each or b"") for each in column], dtype=np.int32)
    data[: len(together)] = np.frombuffer(together, np.uint8)
    return len(together), 0 if bits is None else _mark(column, bits, lambda each: each is not None)


def _mark(column: Sequence[Any], bits: Any, there: Any) -> int:
    """Set the bits of what is there; return how many are not."""
    marks = np.fromiter(map(there, column), np.bool_, len(column))
    bits[: (len(column) + 7) // 8] = np.packbits(marks, bitorder="little")
    return int(len(column) - marks.sum())
