"""Variable-length integers: Kafka's zigzag ones and protobuf's plain ones (7 bits a byte, low bits first)."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.records.errors import CorruptBatch


def encode_unsigned(value: int) -> bytes:
    """Return the plain varint of a non-negative integer."""
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x200000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_zigzag(value: int) -> bytes:
    """Return Kafka's varint or varlong of a signed integer."""
    return encode_unsigned(value << 1 if value >= 0 else (-value << 1) - 1)


def decode_unsigned(data: Sequence[int], at: int, *, most_bytes: int = 10) -> tuple[int, int]:
    """Return (value, position after it); raise ``CorruptBatch`` on one that is cut or too long."""
    try:
        byte = data[at]
        if byte < 0x80:
            return byte, at + 1
        value = byte & 0x7F
        for shift in range(7, 7 * most_bytes, 7):
            at += 1
            byte = data[at]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at + 1
    except IndexError:
        raise CorruptBatch(f"varint cut short at byte {at}") from None
    raise CorruptBatch(f"varint longer than {most_bytes} bytes ends at byte {at}")


def decode_zigzag(data: Sequence[int], at: int, *, most_bytes: int = 5) -> tuple[int, int]:
    """Return (value, position after it) of Kafka's signed varint (5 bytes at most) or varlong (10)."""
    value, at = decode_unsigned(data, at, most_bytes=most_bytes)
    return (value >> 1) ^ -(value & 1), at
