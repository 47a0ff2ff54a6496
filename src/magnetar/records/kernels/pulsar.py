"""Pulsar's messages to Kafka's records in machine code: `magnetar.records.mapping` without Python objects.

`magnetar.records.kernels.kafka` is the way back.

Nothing here raises or words a fault. A function either does exactly what the plain form would do, or says that it
would not (`KernelStatus.PLAIN`): for what is damaged, and for the rare cases (a header twice or binary, times before
1970, chunks, encryption, markers). Then the plain form is asked, which knows them all.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
from numba import types

from magnetar.records.compiling import compiled
from magnetar.records.kernels.arrow import (
    BYTES,
    OUT_BYTES,
    OUT_INT64,
    _copy,
    big_endian,
    crc32c,
)
from magnetar.records.kernels.bytes import (
    base64_size,
    begins,
    next_field,
    pair,
    put_big_endian,
    put_decoded,
    put_zigzag,
    zigzag_bytes,
)

_i8, _u8 = types.int64, types.uint64


class KernelStatus(IntEnum):
    """What came of a call."""

    DONE = 0
    PLAIN = 1
    """The plain form has to do it."""
    COMPRESSED = 2
    """The payload must be decompressed first."""


_DONE, _PLAIN, _COMPRESSED = 0, 1, 2

# What `open_entry` tells, and what `fill_batch` reads.
STATUS, PAYLOAD_AT, COMPRESSION, UNCOMPRESSED_SIZE, MESSAGES, BATCHED, INDEX, PUBLISH_TIME = range(8)
METADATA_AT, ATTRIBUTES, PRODUCER_ID, PRODUCER_EPOCH, BASE_SEQUENCE, LIMIT, PARTS = range(8, 15)
FACTS = 15
TOO_MANY = -2
"""As an end: there are more messages and properties than ``LIMIT`` (0 is for none), which the caller sets. Of entries
that are done one after the other, ``PARTS`` tells how many there were so far, about."""
RECORD_BYTES = 40
"""How much longer than a message its record may be, besides its content."""
HEADER_BYTES = 61

PREFIX = np.frombuffer(b"__kafka.", np.uint8)
_BATCH = np.frombuffer(b"__kafka.batch", np.uint8)
_FORMAT = np.frombuffer(b"entry.format", np.uint8)

_KEPT_ATTRIBUTES = 0x18
_TRANSACTIONAL = 0x10
# Of a producer id that stands for one of Pulsar's transactions; see `magnetar.records.pulsar_transactions`.
_FIRST_TXN, _TXN_SHIFT, _MAX_COORDINATOR, _MAX_NUMBER = 1 << 62, 48, (1 << 14) - 1, (1 << 48) - 1
MAX_TIME = 1 << 61
MAX_HEADERS = 64
_PLAIN_METADATA_BYTES = 64


@compiled(types.UniTuple(_i8, 2)(BYTES, _i8, _i8))
def _decimal(data: Any, at: Any, end: Any) -> Any:
    """Return (number, position of what is behind it) of a decimal; -1 as position if there is none."""
    negative = at < end and data[at] == 0x2D
    at += negative
    start, value = at, np.int64(0)
    while at < end and 0x30 <= data[at] <= 0x39 and at - start < 18:
        value = value * 10 + np.int64(data[at] - 0x30)
        at += 1
    if at == start:
        return np.int64(0), np.int64(-1)
    return (-value if negative else value), at


@compiled(types.boolean(BYTES, _i8, _i8, OUT_INT64))
def _take_batch(data: Any, at: Any, end: Any, facts: Any) -> Any:
    """Read the value of ``__kafka.batch``; tell whether it is one."""
    for number in range(4):
        value, at = _decimal(data, at, end)
        if at < 0 or (number < 3 and (at >= end or data[at] != 0x3A)):
            return False
        facts[ATTRIBUTES + number] = value
        at += 1
    return at == end + 1


@compiled(types.boolean(_i8))
def _is_number(field: Any) -> Any:
    """Tell whether MessageMetadata has a number in this field that the plain form reads."""
    return (
        field == 2 or field == 3 or field == 8 or field == 9 or field == 11 or field == 12 or field == 17
        or field == 20 or field == 22 or field == 23 or field == 24 or field == 25 or field == 27 or field == 29
        or field == 30
    )  # fmt: skip


@compiled(_i8(BYTES, OUT_INT64))
def open_entry(data: Any, facts: Any) -> Any:
    """Read an entry's metadata into ``facts``; give its status."""
    end = np.int64(len(data))
    facts[:] = 0
    if end < 14 or data[0] != 0x0E or data[1] != 0x02:
        return _PLAIN
    at, stop = np.int64(6), 6 + big_endian(data, 2, 4)
    if stop < 6 or stop + 4 > end:
        return _PLAIN
    seen = 0
    while at < stop:
        number, value, bytes_end, at = next_field(data, at, stop)
        if number == 0 or bytes_end >= 0:
            return _PLAIN
        if number == 2:
            facts[INDEX] = value
        seen |= (number == 1) | (number == 2) << 1
    if seen != 3:
        return _PLAIN
    if data[at] == 0x0E and data[at + 1] == 0x01:
        at += 6
    if at + 4 > end:
        return _PLAIN
    stop = at + 4 + big_endian(data, at, 4)
    at += 4
    if stop < at or stop > end:
        return _PLAIN
    facts[METADATA_AT], facts[PAYLOAD_AT] = at, stop
    facts[MESSAGES] = 1
    facts[PRODUCER_ID] = facts[PRODUCER_EPOCH] = facts[BASE_SEQUENCE] = -1
    kept = np.int64(-1)
    kept_end = np.int64(0)
    most = least = np.int64(0)
    in_txn = 0
    while at < stop:
        number, value, bytes_end, at = next_field(data, at, stop)
        # numbers where bytes are due and the other way round, encryption, markers, chunks
        as_bytes = bytes_end >= 0
        if number == 0 or number == 13 or number == 20 or (number == 27 and value != 1):
            return _PLAIN
        is_bytes = number == 1 or number == 4 or number == 6 or number == 14 or number == 18 or number == 26
        if (is_bytes and not as_bytes) or (as_bytes and not is_bytes and _is_number(number)):
            return _PLAIN
        if number == 3:
            facts[PUBLISH_TIME] = value
        elif number == 4:
            name, name_end, start, value_end, fault = pair(data, value, bytes_end)
            if fault or (name_end - name == 12 and begins(data, name, name_end, _FORMAT)):
                return _PLAIN
            if name_end - name == 13 and begins(data, name, name_end, _BATCH):
                kept, kept_end = start, value_end
        elif number == 8:
            facts[COMPRESSION] = value
        elif number == 9:
            facts[UNCOMPRESSED_SIZE] = value
        elif number == 11:
            facts[MESSAGES], facts[BATCHED] = value, 1
        elif number == 22:
            least, in_txn = value, in_txn | 1
        elif number == 23:
            most, in_txn = value, in_txn | 2
    if in_txn == 3:
        facts[ATTRIBUTES] = _TRANSACTIONAL
        facts[PRODUCER_ID] = _FIRST_TXN | (most & _MAX_COORDINATOR) << _TXN_SHIFT | (least & _MAX_NUMBER)
        facts[PRODUCER_EPOCH] = 0
    elif facts[BATCHED] and kept >= 0 and not _take_batch(data, kept, kept_end, facts):
        return _PLAIN
    room = facts[UNCOMPRESSED_SIZE] if facts[COMPRESSION] else end - stop
    if facts[BATCHED] and not 0 < facts[MESSAGES] <= max(room // 6, 1):
        return _PLAIN
    if not 0 <= facts[PUBLISH_TIME] < MAX_TIME:
        return _PLAIN
    return _COMPRESSED if facts[COMPRESSION] else _DONE


@compiled(
    types.UniTuple(_i8, 3)(BYTES, _i8, _i8, types.boolean, BYTES, _i8, _i8, _i8, _i8, _i8, OUT_BYTES, _i8)
)
def _put_record(
    data: Any, at: Any, end: Any, single: Any, body: Any, payload: Any, payload_end: Any,
    delta: Any, publish_time: Any, base_time: Any, out: Any, to: Any,
) -> Any:  # fmt: skip
    """Write the record of the message whose metadata is ``data[at:end]``; give (end, time, end of its payload).

    In a batch (``single``) the payload begins at ``payload``, and the metadata says how long it is. -1 as the end
    leaves it to the plain form; the record of a message compacted out is nothing, and its time -1.
    """
    plain = np.int64(-1), np.int64(0), np.int64(0)
    # the fields' numbers in MessageMetadata, and in SingleMessageMetadata
    properties, key_field, event_field, b64_field, ordering_field, null_field, null_key_field = (
        4,
        6,
        12,
        17,
        18,
        25,
        30,
    )
    if single:
        properties, key_field, event_field, b64_field, ordering_field, null_field, null_key_field = (
            1,
            2,
            5,
            6,
            7,
            9,
            10,
        )
    start = at
    headers = np.int64(0)
    headers_bytes = np.int64(0)
    key = ordering = np.int64(-1)
    key_end = ordering_end = event_time = np.int64(0)
    in_base64 = null = null_key = compacted = False
    size = np.int64(0)
    while at < end:
        number, value, stop, at = next_field(data, at, end)
        if number == 0:
            return plain
        if number in (properties, key_field, ordering_field):
            if stop < 0:
                return plain
            if number == key_field:
                key, key_end = value, stop
            elif number == ordering_field:
                ordering, ordering_end = value, stop
            else:
                name, name_end, content, content_end, fault = pair(data, value, stop)
                if fault:
                    return plain
                if begins(data, name, name_end, PREFIX):
                    return plain
                headers += 1
                headers_bytes += zigzag_bytes(name_end - name) + name_end - name
                headers_bytes += zigzag_bytes(content_end - content) + content_end - content
        elif stop >= 0:
            if not single and _is_number(number):
                return plain
            if single and number <= 10:
                return plain
        elif number == event_field:
            event_time = value
        elif number == b64_field:
            in_base64 = value != 0
        elif number == null_field:
            null = value != 0
        elif number == null_key_field:
            null_key = value != 0
        elif single and number == 3:
            size = value
        elif single and number == 4:
            compacted = value != 0
    if single:
        if size < 0 or size > payload_end - payload:
            return plain
        payload_end = payload + size
    if compacted:
        return to, np.int64(-1), payload_end
    if event_time >= MAX_TIME:
        return plain
    time = event_time if event_time > 0 else publish_time
    key_size = np.int64(-1)
    decode = False
    if ordering >= 0:
        key, key_size = ordering, ordering_end - ordering
    elif key >= 0 and not null_key:
        key_size = key_end - key
        if in_base64:
            decoded = base64_size(data, key, key_size)
            if decoded >= 0:
                decode, key_size = True, decoded
    value_size = np.int64(-1) if null else payload_end - payload
    length = (
        1
        + zigzag_bytes(time - base_time)
        + zigzag_bytes(delta)
        + zigzag_bytes(key_size)
        + max(key_size, 0)
        + zigzag_bytes(value_size)
        + max(value_size, 0)
        + zigzag_bytes(headers)
        + headers_bytes
    )
    at = put_zigzag(out, to, length)
    out[at] = 0
    at = put_zigzag(out, at + 1, time - base_time)
    at = put_zigzag(out, at, delta)
    at = put_zigzag(out, at, key_size)
    if key_size > 0:
        if decode:
            put_decoded(out, at, data, key, key_size)
        else:
            _copy(out, at, data, key, key_size)
        at += key_size
    at = put_zigzag(out, at, value_size)
    if value_size > 0:
        _copy(out, at, body, payload, value_size)
        at += value_size
    at = put_zigzag(out, at, headers)
    if headers:
        place = start
        while place < end:
            number, value, stop, place = next_field(data, place, end)
            if number == properties:
                name, name_end, content, content_end, fault = pair(data, value, stop)
                at = put_zigzag(out, at, name_end - name)
                _copy(out, at, data, name, name_end - name)
                at += name_end - name
                at = put_zigzag(out, at, content_end - content)
                _copy(out, at, data, content, content_end - content)
                at += content_end - content
    return at, time, payload_end


@compiled(_i8(_i8))
def _parts(size: Any) -> Any:
    """Return about how many parts a message of so many bytes of metadata is: itself, and what are properties then."""
    return 1 + max(size - _PLAIN_METADATA_BYTES, 0) // 8


@compiled(types.UniTuple(_i8, 3)(BYTES, BYTES, _i8, OUT_INT64, _i8, _i8, OUT_BYTES, _i8))
def fill_records(
    data: Any, body: Any, at: Any, facts: Any, first_delta: Any, base_time: Any, out: Any, to: Any
) -> Any:
    """Write the records of an opened entry, payload ``body[at:]``, from ``out[to]`` on, for a batch of these bases.

    Gives (end, records, latest time: without records that of the entry); -1 as the end leaves it to the plain form,
    `TOO_MANY` to who has more time.
    """
    plain = np.int64(-1), np.int64(0), np.int64(0)
    too_many = np.int64(TOO_MANY), np.int64(0), np.int64(0)
    most = facts[LIMIT] if facts[LIMIT] else np.int64(1) << 62
    parts = facts[PARTS]
    messages, publish_time = facts[MESSAGES], facts[PUBLISH_TIME]
    end = np.int64(len(body))
    count = np.int64(0)
    latest = np.int64(-1)
    if not facts[BATCHED]:
        parts += _parts(facts[PAYLOAD_AT] - facts[METADATA_AT])
        if parts > most:
            return too_many
        facts[PARTS] = parts
        to, latest, _ = _put_record(
            data, facts[METADATA_AT], facts[PAYLOAD_AT], False, body, at, end, first_delta, publish_time,
            base_time, out, to,
        )  # fmt: skip
        return to, np.int64(1), latest
    for delta in range(messages):
        if at + 4 > end:
            return plain
        size = big_endian(body, at, 4)
        at += 4
        if size < 0 or size > end - at:
            return plain
        parts += _parts(size)
        if parts > most:
            return too_many
        to, time, at = _put_record(
            body, at, at + size, True, body, at + size, end, first_delta + delta, publish_time, base_time,
            out, to,
        )  # fmt: skip
        if to < 0:
            return plain
        if time >= 0:
            count += 1
            latest = max(latest, time)
    if at != end:
        return plain
    facts[PARTS] = parts
    return to, count, latest if count else publish_time


@compiled(types.void(OUT_BYTES, _i8, _i8, OUT_INT64, _i8, _i8, _i8))
def put_head(out: Any, start: Any, end: Any, facts: Any, last_delta: Any, count: Any, latest: Any) -> None:
    """Write the head of the batch ``out[start:end]``, whose first entry is that of ``facts``."""
    attributes = facts[ATTRIBUTES] & _KEPT_ATTRIBUTES
    if attributes & 0x08:
        latest = facts[PUBLISH_TIME]
    put_big_endian(out, start, 8, facts[INDEX] - facts[MESSAGES] + 1)
    put_big_endian(out, start + 8, 4, end - start - 12)
    put_big_endian(out, start + 12, 4, -1)  # the leader epoch: a message of Pulsar's does not say
    out[start + 16] = 2
    put_big_endian(out, start + 21, 2, attributes)
    put_big_endian(out, start + 23, 4, last_delta)
    put_big_endian(out, start + 27, 8, facts[PUBLISH_TIME])
    put_big_endian(out, start + 35, 8, latest)
    put_big_endian(out, start + 43, 8, facts[PRODUCER_ID])
    put_big_endian(out, start + 51, 2, facts[PRODUCER_EPOCH])
    put_big_endian(out, start + 53, 4, facts[BASE_SEQUENCE])
    put_big_endian(out, start + 57, 4, count)
    put_big_endian(out, start + 17, 4, np.int64(crc32c(out, start + 21, end, 0)))


@compiled(_i8(BYTES, BYTES, _i8, OUT_INT64, OUT_BYTES))
def fill_batch(data: Any, body: Any, at: Any, facts: Any, out: Any) -> Any:
    """Write the record batch of an opened entry, payload ``body[at:]``; give its size, -1 for the plain form."""
    end, count, latest = fill_records(
        data, body, at, facts, np.int64(0), facts[PUBLISH_TIME], out, np.int64(HEADER_BYTES)
    )
    if end >= 0:
        put_head(out, np.int64(0), end, facts, facts[MESSAGES] - 1, count, latest)
    return end
