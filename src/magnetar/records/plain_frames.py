"""Walking a ledger's file in plain Python: what `magnetar.records.kernels.frames` does, for while that is compiled.

The same rows and the same faults, for any bytes; a test holds the two together.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from magnetar.records import batch_table
from magnetar.records.batch_table import UNKNOWN_TIME, FrameFault
from magnetar.records.crc import crc32c
from magnetar.records.plain_arrow import unsigned

_FRAME = struct.Struct(">iIq")
_PLACE = struct.Struct(">qqi")
_BATCH = struct.Struct(">qi4xb4xhiqqq6xi")
_MOST = (1 << 63) - 1
_TRANSACTIONAL, _CONTROL, _COMMIT_MARKER, _ABORT_MARKER = 0x10, 0x20, 21, 22
# Of a producer id that stands for a Pulsar transaction; see `magnetar.records.pulsar_transactions`.
_FIRST_TXN, _TXN_SHIFT, _MAX_COORDINATOR, _MAX_NUMBER = 1 << 62, 48, (1 << 14) - 1, (1 << 48) - 1


class _Bad(Exception):
    """An entry's metadata cannot be read."""


class _Entry(NamedTuple):
    """An entry's metadata; ``payload`` is where what they are about begins."""

    payload: int
    last_offset: int
    publish_time: int
    messages: int
    is_kafka: bool
    attributes: int
    producer_id: int
    marker: int


def walk(
    data: Any, at: int, end: int, ledger_id: int, entry_id: int, verify: bool, max_rows: int, most_bytes: int,
    rows: Any,
) -> tuple[int, int, int, int]:  # fmt: skip
    """Fill ``rows`` with frames of ``data[at:end]``; return how many, where and at which entry it ended, and why."""
    view = memoryview(data)
    start, found, records = at, list[tuple[int, ...]](), 0
    fault = FrameFault.NONE
    while at < end and len(found) < len(rows) and records < max_rows and at - start < most_bytes:
        fault, row = _row(view, at, end, ledger_id, entry_id, verify)
        if row is None:
            break
        found.append(row)
        records += row[batch_table.COUNT]
        at = row[-1]
        entry_id += 1
    if found:
        rows[: len(found)] = [row[:-1] for row in found]
    return len(found), at, entry_id, fault


def _row(
    data: memoryview, at: int, end: int, ledger_id: int, entry_id: int, verify: bool
) -> tuple[FrameFault, tuple[int, ...] | None]:
    """Return a frame's row, with the frame's end behind it, or why there is none."""
    if end - at < _FRAME.size:
        return FrameFault.CUT_SHORT, None
    size, crc, there = _FRAME.unpack_from(data, at)
    begin = at + _FRAME.size
    stop = begin + (size & 0xFFFFFFFF)
    if there != entry_id:
        return FrameFault.WRONG_ENTRY, None
    if stop > end:
        return FrameFault.CUT_SHORT, None
    if verify and crc32c(data[begin:stop], crc32c(_PLACE.pack(ledger_id, there, size))) != crc:
        return FrameFault.BAD_CRC, None
    try:
        entry = _opened(data, begin, stop)
    except _Bad:
        return FrameFault.BAD_ENTRY, None
    made = _batch(data, entry, stop) if entry.is_kafka else _foreign(entry, begin, stop)
    if (
        made is None
        or made[0][batch_table.BASE_OFFSET] + made[0][batch_table.LAST_DELTA] != entry.last_offset
    ):
        return FrameFault.BAD_BATCH, None
    columns, producer_id = made
    told = 0, entry.publish_time, entry_id, at, entry.last_offset, producer_id
    return FrameFault.NONE, (*columns, *told, int(not entry.is_kafka), entry.marker, stop)


def _foreign(entry: _Entry, begin: int, stop: int) -> tuple[tuple[int, ...], int]:
    """Return the columns up to COUNT, and the producer id, of an entry that is to be opened elsewhere."""
    last = entry.messages - 1
    first = entry.last_offset - last
    times = entry.publish_time, UNKNOWN_TIME
    return (0, begin, stop, first, last, *times, entry.attributes, entry.messages), entry.producer_id


def _batch(data: memoryview, entry: _Entry, stop: int) -> tuple[tuple[int, ...], int] | None:
    """Return the columns up to COUNT, and the producer id, of the batch that fills the rest, if one does."""
    at = entry.payload
    if stop - at < _BATCH.size:
        return None
    base, length, magic, attributes, delta, base_time, max_time, producer_id, count = _BATCH.unpack_from(
        data, at
    )
    if magic != 2 or length != stop - at - 12 or count < 0:
        return None
    return (0, at + _BATCH.size, stop, base, delta, base_time, max_time, attributes, count), producer_id


def _opened(data: memoryview, at: int, end: int) -> _Entry:
    """Return what an entry's metadata say; raise `_Bad`."""
    at, last_offset = _broker_entry(data, at, end)
    if data[at] == 0x0E and data[at + 1] == 0x01:
        at += 6
    if last_offset < 0 or at + 4 > end:
        raise _Bad
    stop = at + 4 + _size(data, at)
    at += 4
    if stop < at or stop > end:
        raise _Bad
    told = {3: 0, 11: 1, 20: 0}
    transaction: dict[int, int] = {}
    kafka = False
    while at < stop:
        number, value, after, at = _next_field(data, at, stop)
        if number in told:
            told[number] = value
        elif number == 4 and after >= 0:
            kafka = kafka or _says_kafka(data, value, after)
        elif number in (22, 23):
            transaction[number] = value
    messages = told[11]
    if messages < 1 or messages > last_offset + 1 or last_offset == _MOST:
        raise _Bad
    attributes, producer_id, marker = _of_transaction(transaction, told[20])
    return _Entry(stop, last_offset, told[3], messages, kafka, attributes, producer_id, marker)


def _broker_entry(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """Return where the broker's metadata end, and which last offset they name; raise `_Bad`."""
    if end - at < 10 or data[at] != 0x0E or data[at + 1] != 0x02:
        raise _Bad
    stop = at + 6 + _size(data, at + 2)
    at += 6
    if stop < at or stop + 4 > end:
        raise _Bad
    last_offset = -1
    while at < stop:
        number, value, _, at = _next_field(data, at, stop)
        if number == 2:
            last_offset = value
    return at, last_offset


def _size(data: memoryview, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "big", signed=True)


def _of_transaction(told: dict[int, int], marker: int) -> tuple[int, int, int]:
    """Return attributes, producer id and marker of an entry by its transaction, if it is of one."""
    if len(told) < 2:
        return 0, -1, 0
    producer_id = _FIRST_TXN | (told[23] & _MAX_COORDINATOR) << _TXN_SHIFT | (told[22] & _MAX_NUMBER)
    if marker in (_COMMIT_MARKER, _ABORT_MARKER):
        return _TRANSACTIONAL | _CONTROL, producer_id, marker
    return _TRANSACTIONAL, producer_id, 0


def _next_field(data: memoryview, at: int, end: int) -> tuple[int, int, int, int]:
    """Return (number, value or start, end of bytes or -1, position after) of a protobuf field; raise `_Bad`."""
    key, at = unsigned(data, at, end, 10)
    number, kind = key >> 3, key & 7
    if at > 0 and number:
        if kind == 0:
            value, at = unsigned(data, at, end, 10)
            if at > 0:
                return number, value, -1, at
        elif kind == 2:
            size, at = unsigned(data, at, end, 10)
            if at > 0 and 0 <= size <= end - at:
                return number, at, at + size, at + size
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
            if at <= end:
                return number, 0, -1, at
    raise _Bad


def _says_kafka(data: memoryview, at: int, end: int) -> bool:
    """Return whether this property is ``entry.format`` = ``kafka``."""
    key = value = False
    try:
        while at < end:
            number, start, stop, at = _next_field(data, at, end)
            key = key or (number == 1 and bytes(data[start:stop]) == b"entry.format")
            value = value or (number == 2 and bytes(data[start:stop]) == b"kafka")
    except _Bad:
        return False
    return key and value
