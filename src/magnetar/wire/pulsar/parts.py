"""How many parts a command has, found out before protobuf reads it: five MB may hold a million of them.

What a command costs goes by its fields and the messages in it, not by its bytes: a schema of a MB is one field, and
reading it is a copy. protobuf reads in one piece, and nothing else happens meanwhile: of the smallest parts that there
are, 8 ns a byte. To count them here takes sixty times as long as that, so only what is very large is counted.
"""

from __future__ import annotations

from functools import cache
from typing import Any

FEW_BYTES = 1 << 20
"""Commands up to that are not looked through: protobuf reads them in 8 ms at most."""
MAX_PARTS = 5_000
"""Fields of a larger command, with those of messages in it: what is so large is a schema, which is one of them."""
_MAX_DEPTH = 50  # protobuf's is 100
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


class TooManyParts(ValueError):
    """The command has more than `MAX_PARTS`."""


def check_parts(kind: Any, data: bytes) -> None:
    """Raise `TooManyParts` for a message of type ``kind`` (its descriptor) that has too many.

    What protobuf cannot read ends the count, for protobuf to say so.
    """
    try:
        _count(kind, data, 0, len(data), MAX_PARTS)
    except IndexError:
        return


def _count(kind: Any, data: bytes, at: int, end: int, left: int, depth: int = 0) -> int:
    """Return how many parts may still be, behind those of ``data[at:end]``."""
    if depth > _MAX_DEPTH:
        raise TooManyParts(f"a command of more than {_MAX_DEPTH} messages within each other")
    within = _messages_in(kind)
    while at < end:
        left -= 1
        if left < 0:
            raise TooManyParts(f"a command of more than {MAX_PARTS} fields")
        tag, at = _varint(data, at) if data[at] & 0x80 else (data[at], at + 1)
        wire = tag & 7
        if wire == _LENGTH:
            size, at = _varint(data, at) if data[at] & 0x80 else (data[at], at + 1)
            found = within.get(tag >> 3)
            if found is not None:
                left = _count(found, data, at, min(at + size, end), left, depth + 1)
            at += size
        elif wire == _VARINT:
            _, at = _varint(data, at) if data[at] & 0x80 else (0, at + 1)
        elif wire in (_FIXED64, _FIXED32):
            at += 8 if wire == _FIXED64 else 4
        else:
            raise IndexError  # groups: none of these messages has one
    return left


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
        shift += 7
    raise IndexError


@cache
def _messages_in(kind: Any) -> dict[int, Any]:
    """Return the fields by whose numbers there are messages that have messages or lists in them, and their types.

    Others are one part, whatever they hold.
    """
    return {
        number: field.message_type
        for number, field in kind.fields_by_number.items()
        if field.message_type is not None and _has_parts(field.message_type)
    }


def _has_parts(kind: Any) -> bool:
    return any(field.message_type is not None or field.is_repeated for field in kind.fields)
