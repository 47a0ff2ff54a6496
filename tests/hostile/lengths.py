"""Where the lengths of a Kafka request stand, found by a reader of its own, and the lies that may stand there."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from magnetar.wire.kafka.header import is_flexible
from magnetar.wire.kafka.primitives import varint
from tests.wire.values import NUMBERS, OUTLINE

_HEADER = struct.Struct(">hhi")
_FIXED = {"bool": 1, "float64": 8, "uuid": 16} | {
    kind: struct.calcsize(code) for kind, code in ((name, ">" + code) for name, code in NUMBERS.items())
}


class Length(NamedTuple):
    """A length field: ``at`` in the request, of ``nbytes``; ``is_varint`` for those of flexible versions."""

    at: int
    nbytes: int
    is_varint: bool


class Lengths:
    """Walks through one request and notes its length fields."""

    def __init__(self, module: str, request: bytes) -> None:
        """``module`` is the request's in the outline; ``request`` has its header and no size before it."""
        self.found: list[Length] = []
        self._data, self._at, self._module = request, _HEADER.size, module
        key, self._version, _ = _HEADER.unpack_from(request)
        self._is_flexible = False
        self._skip(max(self._fixed(2), 0))  # the client id keeps its two bytes in flexible versions
        self._is_flexible = is_flexible(key, self._version)
        if self._is_flexible:
            self._tags()
        self._struct(OUTLINE[module]["name"])
        assert self._at == len(request), f"{module} version {self._version}: {self._at} of {len(request)}"

    def _skip(self, nbytes: int) -> None:
        self._at += nbytes

    def _fixed(self, nbytes: int) -> int:
        self.found.append(Length(self._at, nbytes, False))
        size = int.from_bytes(self._data[self._at : self._at + nbytes], "big", signed=True)
        self._skip(nbytes)
        return size

    def _varint(self) -> int:
        began = self._at
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._skip(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        self.found.append(Length(began, self._at - began, True))
        return value

    def _length(self, nbytes: int) -> int:
        return self._varint() - 1 if self._is_flexible else self._fixed(nbytes)

    def _struct(self, name: str) -> None:
        for kind, (low, high), (null_low, null_high), tag in OUTLINE[self._module]["structs"][name].values():
            if not low <= self._version <= high or tag >= 0:
                continue
            may_be_null = kind[0].isupper() and null_low <= self._version <= null_high
            if not may_be_null or self._fixed(1) >= 0:  # a struct that may be null begins with -1 or 1
                self._value(kind)
        if self._is_flexible:
            self._tags()

    def _value(self, kind: str) -> None:
        if kind.startswith("[]"):
            for _ in range(self._length(4)):
                self._value(kind[2:])
        elif kind in _FIXED:
            self._skip(_FIXED[kind])
        elif kind == "string":
            self._skip(max(self._length(2), 0))
        elif kind in ("bytes", "records"):
            self._skip(max(self._length(4), 0))
        else:
            self._struct(kind)

    def _tags(self) -> None:
        for _ in range(self._varint()):
            self._varint()
            self._skip(self._varint())


def lies(length: Length) -> Iterator[bytes]:
    """Yield what may stand in place of a length: -1, nothing, the largest, others that are huge, and none at all."""
    if length.is_varint:
        yield from (varint(0), varint(1), varint(2**31 - 1), varint(2**32 - 1), varint(100_000), b"\xff" * 6)
        return
    bits = 8 * length.nbytes
    for value in (-1, 0, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), 2 ** (bits - 1) - 2**8):
        yield value.to_bytes(length.nbytes, "big", signed=True)


def with_lie(request: bytes, length: Length, lie: bytes) -> bytes:
    """Return the request with a lie in it."""
    return request[: length.at] + lie + request[length.at + length.nbytes :]
