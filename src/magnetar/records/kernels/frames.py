"""Walking a ledger's file in machine code: frames, entries and the heads of their record batches, into one table.

The layouts are those of ``magnetar.ledger.formats.layout``, `magnetar.records.entry` and `magnetar.records.batch`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from magnetar.records import batch_table
from magnetar.records.batch_table import (
    ENTRY_ID,
    FOREIGN,
    FRAME_AT,
    LAST_OFFSET,
    MARKER,
    PRODUCER_ID,
    UNKNOWN_TIME,
)
from magnetar.records.compiling import compiled
from magnetar.records.kernels.arrow import BYTES, TABLE, big_endian, crc32c, unsigned
from magnetar.records.kernels.bytes import equals

_i8 = types.int64
_CUT_SHORT, _WRONG_ENTRY, _BAD_CRC, _BAD_ENTRY, _BAD_BATCH = 1, 2, 3, 4, 6
_FORMAT = np.frombuffer(b"entry.format", np.uint8)
_KAFKA = np.frombuffer(b"kafka", np.uint8)
_TRANSACTIONAL, _CONTROL, _COMMIT_MARKER, _ABORT_MARKER = 0x10, 0x20, 21, 22
# Of a producer id that stands for a Pulsar transaction; see `magnetar.records.pulsar_transactions`.
_FIRST_TXN, _TXN_SHIFT, _MAX_COORDINATOR, _MAX_NUMBER = 1 << 62, 48, (1 << 14) - 1, (1 << 48) - 1


@compiled(types.UniTuple(_i8, 4)(BYTES, _i8, _i8))
def _next_field(data: Any, at: Any, end: Any) -> Any:
    """Return (number, value or start, end of bytes or -1, position after) of a protobuf field; 0 as number is a
    fault.
    """
    key, at = unsigned(data, at, end, 10)
    if at > 0 and key & 7 == 0:
        value, at = unsigned(data, at, end, 10)
        if at > 0:
            return key >> 3, value, np.int64(-1), at
    elif at > 0 and key & 7 == 2:
        size, at = unsigned(data, at, end, 10)
        if at > 0 and 0 <= size <= end - at:
            return key >> 3, at, at + size, at + size
    elif at > 0 and (key & 7 == 1 or key & 7 == 5):
        at += 8 if key & 7 == 1 else 4
        if at <= end:
            return key >> 3, np.int64(0), np.int64(-1), at
    return np.int64(0), np.int64(0), np.int64(0), np.int64(0)


@compiled(types.boolean(BYTES, _i8, _i8))
def _says_kafka(data: Any, at: Any, end: Any) -> Any:
    """Return whether this property is ``entry.format`` = ``kafka``."""
    key = value = False
    while at < end:
        number, start, stop, at = _next_field(data, at, end)
        if number == 0:
            return False
        key |= number == 1 and equals(data, start, stop, _FORMAT)
        value |= number == 2 and equals(data, start, stop, _KAFKA)
    return key and value


@compiled(types.UniTuple(_i8, 2)(BYTES, _i8, _i8, TABLE, _i8))
def _open_entry(data: Any, at: Any, end: Any, rows: Any, row: Any) -> Any:
    """Note what an entry's metadata say; give (where the payload begins, fault)."""
    bad = np.int64(0), np.int64(_BAD_ENTRY)
    last_offset = np.int64(-1)
    if end - at < 10 or data[at] != 0x0E or data[at + 1] != 0x02:
        return bad
    stop = at + 6 + big_endian(data, at + 2, 4)
    at += 6
    if stop < at or stop + 4 > end:
        return bad
    while at < stop:
        number, value, _, at = _next_field(data, at, stop)
        if number == 0:
            return bad
        if number == 2:
            last_offset = value
    if data[at] == 0x0E and data[at + 1] == 0x01:
        at += 6
    if last_offset < 0 or at + 4 > end:
        return bad
    stop = at + 4 + big_endian(data, at, 4)
    at += 4
    if stop < at or stop > end:
        return bad
    kafka = False
    publish_time = np.int64(0)
    messages = np.int64(1)
    most = least = marker = np.int64(0)
    in_txn = 0
    while at < stop:
        number, start, after, at = _next_field(data, at, stop)
        if number == 0:
            return bad
        if number == 3:
            publish_time = start
        elif number == 11:
            messages = start
        elif number == 4 and after >= 0:
            kafka |= _says_kafka(data, start, after)
        elif number == 20:
            marker = start
        elif number == 22:
            least, in_txn = start, in_txn | 1
        elif number == 23:
            most, in_txn = start, in_txn | 2
    if messages < 1 or messages > last_offset + 1:
        return bad
    rows[row, LAST_OFFSET] = last_offset
    rows[row, batch_table.PUBLISH_TIME] = publish_time
    rows[row, batch_table.LAST_DELTA] = messages - 1
    rows[row, FOREIGN] = 0 if kafka else 1
    rows[row, MARKER] = rows[row, batch_table.ATTRIBUTES] = 0
    rows[row, PRODUCER_ID] = -1
    if in_txn == 3:
        rows[row, PRODUCER_ID] = _FIRST_TXN | (most & _MAX_COORDINATOR) << _TXN_SHIFT | (least & _MAX_NUMBER)
        rows[row, batch_table.ATTRIBUTES] = _TRANSACTIONAL
        if marker in (_COMMIT_MARKER, _ABORT_MARKER):
            rows[row, batch_table.ATTRIBUTES] = _TRANSACTIONAL | _CONTROL
            rows[row, MARKER] = marker
    return stop, np.int64(0)


@compiled(types.void(TABLE, _i8, _i8, _i8))
def _note_foreign(rows: Any, row: Any, start: Any, end: Any) -> None:
    """Note an entry that is to be opened elsewhere."""
    rows[row, batch_table.INFLATED] = 0
    rows[row, batch_table.START] = start
    rows[row, batch_table.END] = end
    rows[row, batch_table.BASE_OFFSET] = rows[row, LAST_OFFSET] - rows[row, batch_table.LAST_DELTA]
    rows[row, batch_table.COUNT] = rows[row, batch_table.LAST_DELTA] + 1
    rows[row, batch_table.BASE_TIME] = rows[row, batch_table.PUBLISH_TIME]
    rows[row, batch_table.MAX_TIME] = UNKNOWN_TIME


@compiled(types.boolean(BYTES, _i8, _i8, TABLE, _i8))
def _open_batch(data: Any, at: Any, end: Any, rows: Any, row: Any) -> Any:
    """Note the head of the record batch that must fill ``data[at:end]``; tell whether it does."""
    if end - at < 61 or data[at + 16] != 2 or big_endian(data, at + 8, 4) != end - at - 12:
        return False
    rows[row, batch_table.INFLATED] = 0
    rows[row, batch_table.START] = at + 61
    rows[row, batch_table.END] = end
    rows[row, batch_table.BASE_OFFSET] = big_endian(data, at, 8)
    rows[row, batch_table.LAST_DELTA] = big_endian(data, at + 23, 4)
    rows[row, batch_table.BASE_TIME] = big_endian(data, at + 27, 8)
    rows[row, batch_table.MAX_TIME] = big_endian(data, at + 35, 8)
    rows[row, batch_table.ATTRIBUTES] = big_endian(data, at + 21, 2)
    rows[row, PRODUCER_ID] = big_endian(data, at + 43, 8)
    rows[row, batch_table.COUNT] = big_endian(data, at + 57, 4)
    return rows[row, batch_table.COUNT] >= 0


@compiled(types.UniTuple(_i8, 4)(BYTES, _i8, _i8, _i8, _i8, types.boolean, _i8, _i8, TABLE))
def walk(
    data: Any,
    at: Any,
    end: Any,
    ledger_id: Any,
    entry_id: Any,
    verify: Any,
    max_rows: Any,
    most_bytes: Any,
    rows: Any,
) -> Any:
    place = np.zeros(20, np.uint8)
    for i in range(8):
        place[i] = ledger_id >> (56 - 8 * i) & 0xFF
    start = at
    count = records = np.int64(0)
    while at < end and count < rows.shape[0] and records < max_rows and at - start < most_bytes:
        if end - at < 16:
            return count, at, entry_id, np.int64(_CUT_SHORT)
        size = big_endian(data, at, 4) & 0xFFFFFFFF
        stop = at + 16 + size
        if big_endian(data, at + 8, 8) != entry_id:
            return count, at, entry_id, np.int64(_WRONG_ENTRY)
        if stop > end:
            return count, at, entry_id, np.int64(_CUT_SHORT)
        if verify:
            for i in range(8):
                place[8 + i] = data[at + 8 + i]
            for i in range(4):
                place[16 + i] = data[at + i]
            if crc32c(data, at + 16, stop, crc32c(place, 0, 20, 0)) != np.uint32(big_endian(data, at + 4, 4)):
                return count, at, entry_id, np.int64(_BAD_CRC)
        payload, fault = _open_entry(data, at + 16, stop, rows, count)
        if fault:
            return count, at, entry_id, fault
        if rows[count, FOREIGN]:
            _note_foreign(rows, count, at + 16, stop)
        elif not _open_batch(data, payload, stop, rows, count):
            return count, at, entry_id, np.int64(_BAD_BATCH)
        if (
            rows[count, batch_table.BASE_OFFSET] + rows[count, batch_table.LAST_DELTA]
            != rows[count, LAST_OFFSET]
        ):
            return count, at, entry_id, np.int64(_BAD_BATCH)
        rows[count, FRAME_AT] = at
        rows[count, ENTRY_ID] = entry_id
        rows[count, batch_table.TAKEN] = 0
        records += rows[count, batch_table.COUNT]
        count += 1
        at = stop
        entry_id += 1
    return count, at, entry_id, np.int64(0)
