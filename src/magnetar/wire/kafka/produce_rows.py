"""How many partitions a Produce request names, told without decoding it.

v3-8     acks etc., then arrays and strings with int32 and int16 lengths
v9-12    compact lengths, and tagged fields behind each structure
v13      the topic's id (16 bytes) in the place of its name
"""

from __future__ import annotations

import struct

from magnetar.wire.kafka.malformed import WireError
from magnetar.wire.kafka.primitives import MAX_TAGS, read_varint, unpack_int16, unpack_int32

_FIRST_FLEXIBLE = 9
_FIRST_WITH_ID = 13
_ACKS_AND_TIMEOUT_BYTES = 2 + 4


def has_many_rows(body: memoryview, version: int, many: int) -> bool:
    """Return whether more than ``many`` topics and partitions are named; it looks at no more than so many.

    What cannot be read has few: its decoder says what is wrong with it.
    """
    try:
        return _Walk(body, version).exceeds(many)
    except (WireError, IndexError, struct.error):  # at its end
        return False


class _Walk:
    """A place in a request, which goes on."""

    def __init__(self, body: memoryview, version: int) -> None:
        self._body = body
        self._flexible = version >= _FIRST_FLEXIBLE
        self._with_id = version >= _FIRST_WITH_ID
        self._at = 0

    def exceeds(self, many: int) -> bool:
        self._skip(self._length(short=True))  # transactional id
        self._skip(_ACKS_AND_TIMEOUT_BYTES)
        for behind in range(self._length() - 1, -1, -1):
            self._skip(16 if self._with_id else self._length(short=True))
            rows = self._length()
            many -= 1 + max(rows, 0)
            if many < 0:
                return True
            if not behind:
                return False  # nearly always at once: the rows themselves need not be looked at
            for _ in range(rows):
                self._skip(4)
                self._skip(self._length())
                self._tags()
            self._tags()
        return False

    def _length(self, *, short: bool = False) -> int:
        if self._flexible:
            value, self._at = read_varint(self._body, self._at)
            return value - 1
        unpack, size = (unpack_int16, 2) if short else (unpack_int32, 4)
        (length,) = unpack(self._body, self._at)
        self._at += size
        return int(length)

    def _skip(self, size: int) -> None:
        self._at += max(size, 0)

    def _tags(self) -> None:
        if not self._flexible:
            return
        count, self._at = read_varint(self._body, self._at)
        for _ in range(min(count, MAX_TAGS)):
            _, self._at = read_varint(self._body, self._at)
            size, self._at = read_varint(self._body, self._at)
            self._skip(size)
