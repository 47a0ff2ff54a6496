"""Whole batches between Kafka's and Pulsar's form in machine code: `magnetar.records.mapping` without Python objects.

Nothing here raises or words a fault. A function either does exactly what the plain form would do, or says that it
would not (`Status.PLAIN`): for what is damaged, and for the rare cases (a header twice or binary, times before 1970,
chunks, encryption, markers). Then the plain form is asked, which knows them all.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
from numba import types

from magnetar.records.kernel import (
    BYTES,
    OUT_BYTES,
    OUT_INT64,
    _copy,
    big_endian,
    compiled,
    crc32c,
    unsigned,
    zigzag,
)

_i8, _u8 = types.int64, types.uint64


class Status(IntEnum):
    """What came of a call."""

    DONE = 0
    PLAIN = 1
    """The plain form has to do it."""
    COMPRESSED = 2
    """The payload must be decompressed first."""


_DONE, _PLAIN, _COMPRESSED = 0, 1, 2

# What `open_entry` tells, and what `fill_batch` reads.
STATUS, PAYLOAD_AT, COMPRESSION, UNCOMPRESSED_SIZE, MESSAGES, BATCHED, INDEX, PUBLISH_TIME = range(8)
METADATA_AT, ATTRIBUTES, PRODUCER_ID, PRODUCER_EPOCH, BASE_SEQUENCE = range(8, 13)
FACTS = 13
RECORD_BYTES = 40
"""How much longer than a message its record may be, besides its content."""
HEADER_BYTES = 61

_PREFIX = np.frombuffer(b"__kafka.", np.uint8)
_BATCH = np.frombuffer(b"__kafka.batch", np.uint8)
_FORMAT = np.frombuffer(b"entry.format", np.uint8)
_ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_SEXTETS = np.full(256, 255, np.uint8)
_SEXTETS[_ALPHABET] = np.arange(64)

_KEPT_ATTRIBUTES = 0x18
_MOST_TIME = 1 << 61
_MOST_HEADERS = 64


# --- bytes and numbers -----------------------------------------------------------------------------------------


@compiled(_i8(OUT_BYTES, _i8, _i8))
def _put_unsigned(out: Any, at: Any, value: Any) -> Any:
    """Write a plain varint; give where it ends."""
    rest = np.uint64(value)
    while rest >= np.uint64(0x80):
        out[at] = np.uint8(rest & np.uint64(0x7F)) | np.uint8(0x80)
        rest >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(rest)
    return at + 1


@compiled(_i8(OUT_BYTES, _i8, _i8))
def _put_zigzag(out: Any, at: Any, value: Any) -> Any:
    """Write Kafka's signed varint; give where it ends."""
    return _put_unsigned(out, at, (value << 1) ^ (value >> 63))


@compiled(_i8(_i8))
def _varint_bytes(value: Any) -> Any:
    size, rest = 1, np.uint64(value)
    while rest >= np.uint64(0x80):
        rest >>= np.uint64(7)
        size += 1
    return size


@compiled(_i8(_i8))
def _zigzag_bytes(value: Any) -> Any:
    return _varint_bytes((value << 1) ^ (value >> 63))


@compiled(types.void(OUT_BYTES, _i8, _i8, _i8))
def _put_big_endian(out: Any, at: Any, size: Any, value: Any) -> None:
    for i in range(size):
        out[at + i] = np.uint8(value >> (8 * (size - 1 - i)) & 0xFF)


@compiled(types.boolean(BYTES, _i8, _i8, BYTES))
def _begins(data: Any, start: Any, end: Any, text: Any) -> Any:
    if end - start < len(text):
        return False
    for i in range(len(text)):  # noqa: SIM110  (numba has no generators here)
        if data[start + i] != text[i]:
            return False
    return True


@compiled(types.boolean(BYTES, _i8, _i8))
def _is_utf8(data: Any, at: Any, end: Any) -> Any:
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
def _put_base64(out: Any, at: Any, data: Any, start: Any, size: Any) -> Any:
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
def _base64_size(data: Any, start: Any, size: Any) -> Any:
    """Give how many bytes are behind base64 text, or -1 if it is none."""
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
def _put_decoded(out: Any, at: Any, data: Any, start: Any, size: Any) -> None:
    """Write the ``size`` bytes behind base64 text that `_base64_size` has looked at."""
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
def _next(data: Any, at: Any, end: Any) -> Any:
    """Give (number, value or start, end of bytes or -1, position after) of a protobuf field; number 0 is a fault."""
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
def _pair(data: Any, at: Any, end: Any) -> Any:
    """Give (name, its end, value, its end, fault) of a KeyValue."""
    name = name_end = value = value_end = at
    while at < end:
        number, start, stop, at = _next(data, at, end)
        if number == 0 or stop < 0:
            return name, name_end, value, value_end, np.int64(1)
        if number == 1:
            name, name_end = start, stop
        elif number == 2:
            value, value_end = start, stop
    return name, name_end, value, value_end, np.int64(0)


# --- Pulsar to Kafka -------------------------------------------------------------------------------------------


@compiled(types.UniTuple(_i8, 2)(BYTES, _i8, _i8))
def _decimal(data: Any, at: Any, end: Any) -> Any:
    """Give (number, position of what is behind it) of a decimal; -1 as position if there is none."""
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
        or field == 20 or field == 24 or field == 25 or field == 27 or field == 29 or field == 30
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
        number, value, bytes_end, at = _next(data, at, stop)
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
    while at < stop:
        number, value, bytes_end, at = _next(data, at, stop)
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
            name, name_end, start, value_end, fault = _pair(data, value, bytes_end)
            if fault or (name_end - name == 12 and _begins(data, name, name_end, _FORMAT)):
                return _PLAIN
            if name_end - name == 13 and _begins(data, name, name_end, _BATCH):
                kept, kept_end = start, value_end
        elif number == 8:
            facts[COMPRESSION] = value
        elif number == 9:
            facts[UNCOMPRESSED_SIZE] = value
        elif number == 11:
            facts[MESSAGES], facts[BATCHED] = value, 1
    if facts[BATCHED] and kept >= 0 and not _take_batch(data, kept, kept_end, facts):
        return _PLAIN
    room = facts[UNCOMPRESSED_SIZE] if facts[COMPRESSION] else end - stop
    if facts[BATCHED] and not 0 < facts[MESSAGES] <= max(room // 6, 1):
        return _PLAIN
    if not 0 <= facts[PUBLISH_TIME] < _MOST_TIME:
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
        number, value, stop, at = _next(data, at, end)
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
                name, name_end, content, content_end, fault = _pair(data, value, stop)
                if fault:
                    return plain
                if _begins(data, name, name_end, _PREFIX):
                    return plain
                headers += 1
                headers_bytes += _zigzag_bytes(name_end - name) + name_end - name
                headers_bytes += _zigzag_bytes(content_end - content) + content_end - content
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
    if event_time >= _MOST_TIME:
        return plain
    time = event_time if event_time > 0 else publish_time
    key_size = np.int64(-1)
    decode = False
    if ordering >= 0:
        key, key_size = ordering, ordering_end - ordering
    elif key >= 0 and not null_key:
        key_size = key_end - key
        if in_base64:
            decoded = _base64_size(data, key, key_size)
            if decoded >= 0:
                decode, key_size = True, decoded
    value_size = np.int64(-1) if null else payload_end - payload
    length = (
        1
        + _zigzag_bytes(time - base_time)
        + _zigzag_bytes(delta)
        + _zigzag_bytes(key_size)
        + max(key_size, 0)
        + _zigzag_bytes(value_size)
        + max(value_size, 0)
        + _zigzag_bytes(headers)
        + headers_bytes
    )
    at = _put_zigzag(out, to, length)
    out[at] = 0
    at = _put_zigzag(out, at + 1, time - base_time)
    at = _put_zigzag(out, at, delta)
    at = _put_zigzag(out, at, key_size)
    if key_size > 0:
        if decode:
            _put_decoded(out, at, data, key, key_size)
        else:
            _copy(out, at, data, key, key_size)
        at += key_size
    at = _put_zigzag(out, at, value_size)
    if value_size > 0:
        _copy(out, at, body, payload, value_size)
        at += value_size
    at = _put_zigzag(out, at, headers)
    if headers:
        place = start
        while place < end:
            number, value, stop, place = _next(data, place, end)
            if number == properties:
                name, name_end, content, content_end, fault = _pair(data, value, stop)
                at = _put_zigzag(out, at, name_end - name)
                _copy(out, at, data, name, name_end - name)
                at += name_end - name
                at = _put_zigzag(out, at, content_end - content)
                _copy(out, at, data, content, content_end - content)
                at += content_end - content
    return at, time, payload_end


@compiled(types.UniTuple(_i8, 3)(BYTES, BYTES, _i8, OUT_INT64, _i8, _i8, OUT_BYTES, _i8))
def fill_records(
    data: Any, body: Any, at: Any, facts: Any, first_delta: Any, base_time: Any, out: Any, to: Any
) -> Any:
    """Write the records of an opened entry, payload ``body[at:]``, from ``out[to]`` on, for a batch of these bases.

    Gives (end, records, latest time); -1 as the end leaves the entry to the plain form.
    """
    plain = np.int64(-1), np.int64(0), np.int64(0)
    messages, publish_time = facts[MESSAGES], facts[PUBLISH_TIME]
    end = np.int64(len(body))
    count = np.int64(0)
    latest = np.int64(-1)
    if not facts[BATCHED]:
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
    return to, count, latest


@compiled(types.void(OUT_BYTES, _i8, _i8, OUT_INT64, _i8, _i8, _i8))
def put_head(out: Any, start: Any, end: Any, facts: Any, last_delta: Any, count: Any, latest: Any) -> None:
    """Write the head of the batch ``out[start:end]``, whose first entry is that of ``facts``."""
    attributes = facts[ATTRIBUTES] & _KEPT_ATTRIBUTES
    if attributes & 0x08 or count == 0:
        latest = facts[PUBLISH_TIME]
    _put_big_endian(out, start, 8, facts[INDEX] - facts[MESSAGES] + 1)
    _put_big_endian(out, start + 8, 4, end - start - 12)
    _put_big_endian(out, start + 12, 4, 0)
    out[start + 16] = 2
    _put_big_endian(out, start + 21, 2, attributes)
    _put_big_endian(out, start + 23, 4, last_delta)
    _put_big_endian(out, start + 27, 8, facts[PUBLISH_TIME])
    _put_big_endian(out, start + 35, 8, latest)
    _put_big_endian(out, start + 43, 8, facts[PRODUCER_ID])
    _put_big_endian(out, start + 51, 2, facts[PRODUCER_EPOCH])
    _put_big_endian(out, start + 53, 4, facts[BASE_SEQUENCE])
    _put_big_endian(out, start + 57, 4, count)
    _put_big_endian(out, start + 17, 4, np.int64(crc32c(out, start + 21, end, 0)))


@compiled(_i8(BYTES, BYTES, _i8, OUT_INT64, OUT_BYTES))
def fill_batch(data: Any, body: Any, at: Any, facts: Any, out: Any) -> Any:
    """Write the record batch of an opened entry, payload ``body[at:]``; give its size, -1 for the plain form."""
    end, count, latest = fill_records(
        data, body, at, facts, np.int64(0), facts[PUBLISH_TIME], out, np.int64(HEADER_BYTES)
    )
    if end >= 0:
        put_head(out, np.int64(0), end, facts, facts[MESSAGES] - 1, count, latest)
    return end


# --- Kafka to Pulsar -------------------------------------------------------------------------------------------


@compiled(_i8(OUT_BYTES, _i8, _i8, BYTES, _i8, _i8))
def _put_bytes(out: Any, at: Any, tag: Any, data: Any, start: Any, size: Any) -> Any:
    out[at] = np.uint8(tag)
    at = _put_unsigned(out, at + 1, size)
    _copy(out, at, data, start, size)
    return at + size


@compiled(types.UniTuple(_i8, 2)(BYTES, _i8, _i8))
def _sized(data: Any, at: Any, end: Any) -> Any:
    """Give (start, size) of a length-prefixed field; size -1 means null, -2 a fault."""
    size, start = zigzag(data, at, end, 5)
    if start < 0 or size < -1 or size > end - start:
        return np.int64(0), np.int64(-2)
    return start, size


@compiled(_i8(BYTES, _i8, _i8, OUT_BYTES, _i8))
def _put_properties(data: Any, at: Any, end: Any, out: Any, to: Any) -> Any:
    """Write a record's headers as properties; give where they end, -1 for the plain form."""
    count, at = zigzag(data, at, end, 5)
    if at < 0 or count < 0 or count > min(_MOST_HEADERS, end - at):
        return np.int64(-1)
    first = at
    for number in range(count):
        name, name_size = _sized(data, at, end)
        if name_size < 0 or not _is_utf8(data, name, name + name_size):
            return np.int64(-1)
        if _begins(data, name, name + name_size, _PREFIX):
            return np.int64(-1)
        value, value_size = _sized(data, name + name_size, end)
        if value_size < 0 or not _is_utf8(data, value, value + value_size):
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
        inside = 2 + _varint_bytes(name_size) + name_size + _varint_bytes(value_size) + value_size
        out[to] = 0x0A
        to = _put_unsigned(out, to + 1, inside)
        to = _put_bytes(out, to, 0x0A, data, name, name_size)
        to = _put_bytes(out, to, 0x12, data, value, value_size)
    return to if at == end else np.int64(-1)


@compiled(_i8(BYTES, _i8, _i8, _i8, _i8, _i8, OUT_BYTES, _i8))
def fill_payload(
    data: Any, at: Any, count: Any, base_time: Any, append_time: Any, base_sequence: Any, out: Any, to: Any
) -> Any:
    """Write the records ``data[at:]`` as the messages of a Pulsar batch from ``out[to]`` on.

    ``append_time`` is the time of all of them if it is not negative; ``base_sequence`` -1 means that they have none.
    Gives where they end, -1 for the plain form.
    """
    end = np.int64(len(data))
    if not 0 <= base_time < _MOST_TIME:
        return -1
    for delta in range(count):
        size, first = zigzag(data, at, end, 5)
        if first < 0 or size < 6 or size > end - first:
            return -1
        last = first + size
        time_delta, at = zigzag(data, first + 1, last, 10)
        if at < 0 or not -_MOST_TIME < time_delta < _MOST_TIME:
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
            in_base64 = not _is_utf8(data, key, key + key_size)
            if in_base64:
                out[to] = 0x12
                to = _put_unsigned(out, to + 1, (key_size + 2) // 3 * 4)
                to = _put_base64(out, to, data, key, key_size)
            else:
                to = _put_bytes(out, to, 0x12, data, key, key_size)
        out[to] = 0x18
        to = _put_unsigned(out, to + 1, max(value_size, 0))
        out[to] = 0x28
        to = _put_unsigned(out, to + 1, time)
        if in_base64:
            out[to], out[to + 1] = 0x30, 1
            to += 2
        if key_size >= 0:
            to = _put_bytes(out, to, 0x3A, data, key, key_size)
        if base_sequence >= 0:
            out[to] = 0x40
            to = _put_unsigned(out, to + 1, (base_sequence + delta) & 0x7FFFFFFF)
        if value_size < 0:
            out[to], out[to + 1] = 0x48, 1
            to += 2
        _put_big_endian(out, start - 4, 4, to - start)
        if value_size > 0:
            _copy(out, to, data, value, value_size)
            to += value_size
        at = last
    return to if at == end else -1
