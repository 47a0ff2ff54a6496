"""A bound for bodies that come in tiny chunks: each costs as much as a large one.

A million chunks of one byte are 6 MB that a stranger sends in a moment, and 25 s of the event loop's time.
"""

from __future__ import annotations

import h11

_FREE = 1_000
"""Chunks that may be as small as they like: what a program writes line by line, and flushes."""
_LEAST_BYTES = 1 << 10
"""That those beyond have on the average. HTTP libraries send 4 kB and more."""


class ChunkCount:
    """The chunks of one body."""

    __slots__ = ("_bytes", "_chunks")

    def __init__(self) -> None:
        self._chunks = self._bytes = 0

    def add(self, part: h11.Data) -> None:
        """Count a part of the body; raise h11's ``RemoteProtocolError`` for too many chunks."""
        self._bytes += len(part.data)
        self._chunks += part.chunk_start
        if self._chunks > _FREE + self._bytes // _LEAST_BYTES:
            raise h11.RemoteProtocolError(
                f"the body comes in more than {_FREE} chunks of less than {_LEAST_BYTES} bytes"
            )
