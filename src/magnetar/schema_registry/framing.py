"""The wire format of Confluent's serializers: which schema a record was written with stands before its bytes.

offset  size  field
     0     1  magic 0
     1     4  schema id, big-endian
     5     n  protobuf only: message indexes, zigzag varints: how many, then each; a single 0 stands for [0]
   5+n        the data
"""

from __future__ import annotations

from typing import NamedTuple

_MAX_ID = (1 << 31) - 1
_MAX_REASON = 500


class Undecodable(Exception):
    """This record cannot be read; the message says why. It goes to the dead letters."""


def reason_of(error: BaseException) -> str:
    """Return the words of an error as a dead letter has them: what it quotes of the record is cut short."""
    text = " ".join(str(error).split()) or type(error).__name__
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= _MAX_REASON else f"{text[:_MAX_REASON]} ..."


class Framed(NamedTuple):
    """A record's bytes and the schema they were written with."""

    schema_id: int
    data: memoryview


def unframe(value: bytes) -> Framed:
    """Return the schema id and what lies behind it; raise `Undecodable`."""
    if len(value) < 5 or value[0] != 0:
        raise Undecodable("it does not begin with magic 0 and a schema id")
    schema_id = int.from_bytes(value[1:5], "big")
    if schema_id > _MAX_ID:
        raise Undecodable(f"its schema id would be {schema_id}, and the largest is {_MAX_ID}")
    return Framed(schema_id, memoryview(value)[5:])


def message_indexes(data: memoryview) -> tuple[tuple[int, ...], memoryview]:
    """Return which message of the file it is, outermost first, and the message's bytes; raise `Undecodable`."""
    count, at = _zigzag(data, 0)
    if count == 0:
        return (0,), data[at:]
    if not 0 < count <= len(data):
        raise Undecodable(f"its message indexes cannot be read: there would be {count}")
    found = []
    for _ in range(count):
        index, at = _zigzag(data, at)
        found.append(index)
    return tuple(found), data[at:]


def _zigzag(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise Undecodable("its message indexes cannot be read")
