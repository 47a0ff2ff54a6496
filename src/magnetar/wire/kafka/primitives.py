"""The slow paths of Kafka's primitive types; generated messages inline the common case themselves.

    unsigned varint   seven bits per byte, least significant first; at most 5 bytes
    compact length    unsigned varint of length + 1; 0 stands for null
    tagged fields     varint count, then per field: varint tag, varint size, value

Readers take ``(data, at)`` and give ``(value, at)`` behind it. They may raise IndexError at the end of the
data, which ``Message.decode`` turns into ``WireError``.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct, unpack_from
from typing import Any

from magnetar.wire.kafka.malformed import WireError

#: Kafka allows so many in one array; we, in all arrays of a message, as each may take 100 bytes and a microsecond.
MAX_ELEMENTS = 1_000_000
#: A request may have so many: with its answer's each takes up to 500 bytes, and one client shall not take all memory.
MAX_REQUEST_ELEMENTS = 250_000
MAX_TAGS = 10_000
MAX_STRING_BYTES = 0x7FFF
NEVER_FLEXIBLE = 0x8000
ZERO_UUID = bytes(16)

#: The default of list parameters: it stands for "a new empty list", so that no two messages share one.
EMPTY: list[Any] = []

Buffer = bytes | memoryview
#: Record batches of an answer may be given in pieces, which are not joined before they are sent.
Records = bytes | memoryview | list[Buffer]
Append = Callable[[Buffer], object]

pack_int16 = Struct(">h").pack
pack_int32 = Struct(">i").pack
unpack_int16 = Struct(">h").unpack_from
unpack_int32 = Struct(">i").unpack_from


def read_varint(data: Buffer, at: int) -> tuple[int, int]:
    """Read an unsigned varint of up to 32 bits."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise WireError("a varint is longer than 5 bytes")
    if value > 0xFFFFFFFF:
        raise WireError("a varint does not fit in 32 bits")
    return value, at


def read_long_length(data: Buffer, at: int) -> tuple[int, int]:
    """Read a compact length of more than one byte; -1 is null."""
    value, at = read_varint(data, at)
    return value - 1, at


def read_long_string_length(data: Buffer, at: int) -> tuple[int, int]:
    """Read a compact length of more than one byte, of a string: Kafka allows strings 32767 bytes."""
    value, at = read_varint(data, at)
    if value > MAX_STRING_BYTES + 1:
        raise WireError(f"a string of {value - 1} bytes is too long")
    return value - 1, at


def read_tag_count(data: Buffer, at: int) -> tuple[int, int]:
    """Read how many tagged fields follow."""
    count, at = read_varint(data, at)
    if count > MAX_TAGS or count * 2 > len(data) - at:
        raise WireError(f"{count} tagged fields are more than the bytes can hold or we allow")
    return count, at


def skip_tags(data: Buffer, at: int) -> int:
    """Step over tagged fields, none of which is known, and tell where they end."""
    count, at = read_tag_count(data, at)
    for _ in range(count):
        _, at = read_varint(data, at)
        size, at = read_varint(data, at)
        at += size
    return at


def read_numbers(data: Buffer, at: int, code: str, size: int, count: int) -> tuple[list[Any], int]:
    """Read ``count`` neighbouring numbers, each of ``size`` bytes and of this ``struct`` code."""
    return list(unpack_from(f">{count}{code}", data, at)), at + count * size


def varint(value: int) -> bytes:
    """Write an unsigned varint."""
    if value < 0x80:
        return ONE_BYTE[value]
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def string_length(length: int) -> bytes:
    """Write the classic length of a string, two bytes."""
    if length > MAX_STRING_BYTES:
        raise WireError(f"a string of {length} bytes is too long")
    return pack_int16(length)


def compact_string_length(length: int) -> bytes:
    """Write the compact length of a string, for those too long for one byte."""
    if length > MAX_STRING_BYTES:
        raise WireError(f"a string of {length} bytes is too long")
    return varint(length + 1)


def tagged_fields(fields: list[tuple[int, bytes]]) -> bytes:
    """Write tagged fields, in the order of their tags."""
    parts = [varint(len(fields))]
    for tag, value in sorted(fields):
        parts += (varint(tag), varint(len(value)), value)
    return b"".join(parts)


def wrong_uuid(field: str) -> WireError:
    return WireError(f"{field} must be 16 bytes")


#: The varints below 128, ready to be written.
ONE_BYTE = tuple(bytes((value,)) for value in range(128))
