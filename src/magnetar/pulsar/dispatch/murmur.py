"""MurmurHash3 for x86, 32 bits, seed 0: what Pulsar's brokers and clients hash keys with."""

from __future__ import annotations

from struct import iter_unpack

_MASK = 0xFFFFFFFF


def murmur3_32(data: bytes) -> int:
    """Return the hash, without a sign."""
    value = 0
    whole = len(data) & ~3
    for (word,) in iter_unpack("<I", data[:whole]):
        value ^= _scrambled(word)
        value = (value << 13 | value >> 19) & _MASK
        value = (value * 5 + 0xE6546B64) & _MASK
    if len(data) > whole:
        value ^= _scrambled(int.from_bytes(data[whole:], "little"))
    value ^= len(data)
    value = (value ^ value >> 16) * 0x85EBCA6B & _MASK
    value = (value ^ value >> 13) * 0xC2B2AE35 & _MASK
    return value ^ value >> 16


def _scrambled(word: int) -> int:
    word = word * 0xCC9E2D51 & _MASK
    return (word << 15 | word >> 17) * 0x1B873593 & _MASK
