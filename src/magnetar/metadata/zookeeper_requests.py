"""Requests of ZooKeeper's that kazoo does not know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kazoo.exceptions import EXCEPTIONS, KazooException
from kazoo.protocol.serialization import (
    GetData,
    MultiHeader,
    ZnodeStat,
    int_struct,
    read_buffer,
    stat_struct,
)

_END = bytes(MultiHeader(-1, True, -1).serialize())
_ERROR = -1


class GetMany:
    """The values of several nodes with one request (``multiRead``, ZooKeeper 3.6, ZOOKEEPER-3402).

    The answer has for each path its bytes and its ``ZnodeStat``, or kazoo's error (`NoNodeError`).
    """

    type = 22

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = paths

    def serialize(self) -> bytes:
        """Return the request's bytes."""
        header = bytes(MultiHeader(GetData.type, False, -1).serialize())
        return b"".join(
            [part for path in self.paths for part in (header, GetData(path, None).serialize())] + [_END]
        )

    def deserialize(self, data: bytes, offset: int) -> list[tuple[bytes, Any] | KazooException]:
        """Return an answer's values in the order of the paths."""
        found: list[tuple[bytes, Any] | KazooException] = []
        while True:
            header, offset = MultiHeader.deserialize(data, offset)
            if header.done:
                return found
            if header.type == _ERROR:
                (code,) = int_struct.unpack_from(data, offset)
                offset += int_struct.size
                found.append(EXCEPTIONS[code]())
            else:
                value, offset = read_buffer(data, offset)
                found.append((value, ZnodeStat._make(stat_struct.unpack_from(data, offset))))
                offset += stat_struct.size
