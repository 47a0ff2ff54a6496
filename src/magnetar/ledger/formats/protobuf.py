"""As much of protobuf's encoding as Pulsar's metadata needs: numbers and messages in messages."""

from __future__ import annotations

from collections.abc import Iterator

from magnetar.records.errors import CorruptBatch
from magnetar.records.varint import decode_unsigned, encode_unsigned

_SIGN = 1 << 64


def number(field: int, value: int) -> bytes:
    """Return a varint field; negative ones take ten bytes, as int64 does."""
    return encode_unsigned(field << 3) + encode_unsigned(value % _SIGN)


def message(field: int, body: bytes) -> bytes:
    """Return a field of bytes, text or a message."""
    return encode_unsigned(field << 3 | 2) + encode_unsigned(len(body)) + body


def signed(value: int) -> int:
    """Return an int64 that was read as if it had no sign."""
    return value - _SIGN if value >= _SIGN >> 1 else value


def fields(data: object) -> Iterator[tuple[int, int | bytes]]:
    """Yield (number, value) of each field; raise ``CorruptBatch`` or ``TypeError`` where there is none."""
    if not isinstance(data, bytes):
        raise TypeError("a message is due where a number stands")
    at = 0
    while at < len(data):
        key, at = decode_unsigned(data, at)
        value, at = decode_unsigned(data, at)
        if key & 7 == 2:
            if at + value > len(data):
                raise CorruptBatch("a field runs past its message")
            yield key >> 3, data[at : at + value]
            at += value
        elif key & 7 == 0:
            yield key >> 3, value
        else:
            raise CorruptBatch(f"unknown wire type {key & 7}")
