"""How many parts a command has, found out before protobuf reads it: five MB may hold a million of them.

What a command costs goes by its fields and the messages in it, not by its bytes: a schema of a MB is one field, and
reading it is a copy. protobuf reads in one piece, and nothing else happens meanwhile.
"""

from __future__ import annotations

from functools import cache
from typing import Any

MAX_PARTS = 70_000
"""Fields of a command, with those of messages in it. Twice as many hash ranges as there are hashes would be no sense;
clients acknowledge a thousand messages at a time, each with at most some hundred words of an ack set."""
FEW_BYTES = 16 << 10
"""Commands up to that are not looked through."""
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


def _count(kind: Any, data: bytes, at: int, end: int, left: int) -> int:
    """Return how many parts may still be, behind those of ``data[at:end]``."""
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
                left = _count(found, data, at, min(at + size, end), left)
            at += size
        elif wire == _VARINT:
            while data[at] & 0x80:
                at += 1
            at += 1
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
