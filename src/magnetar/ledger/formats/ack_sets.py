"""Sets of batch indexes, as one number here and as 64-bit words (lowest first) where Pulsar sends and stores them.

A bit that is set is a message that is *not* acknowledged. All of this is linear in the number of words.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

_WORD_BITS = 64
_WORD = (1 << _WORD_BITS) - 1


def words_of(remaining: int) -> tuple[int, ...]:
    """Return the words of a set, without sign; one word for the empty set."""
    count = max(-(-remaining.bit_length() // _WORD_BITS), 1)
    return struct.unpack(f"<{count}Q", remaining.to_bytes(8 * count, "little"))


def set_of(words: Sequence[int], messages: int) -> int:
    """Return the set that words, with or without sign, stand for, in an entry of so many messages.

    Bits of messages that the entry does not have are ignored.
    """
    some = words[: -(-messages // _WORD_BITS)]
    data = struct.pack(f"<{len(some)}Q", *[word & _WORD for word in some])
    return int.from_bytes(data, "little") & ((1 << messages) - 1)
