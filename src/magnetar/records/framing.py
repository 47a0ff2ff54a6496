"""Cutting a byte stream into frames: four bytes of size, big-endian, then that many bytes, as both protocols do.

Nothing here sees a socket. The same reader is fed with bytes, or lends its memory to asyncio's
``BufferedProtocol``, so that a big frame is received straight into its own memory:

    small frames   are received many at a time into a scratch buffer, and copied out of it
    big frames     get their own memory once their size is known, and it grows only as bytes really arrive
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Any, ClassVar

SCRATCH_BYTES = 256 * 1024
FIRST_PIECE_BYTES = 256 * 1024


def scratch_buffer() -> bytearray:
    """Give memory to receive into; all connections of one event loop may share it."""
    return bytearray(SCRATCH_BYTES)


class SizedFrames(ABC):
    """One connection's frames. After a bad size the frames before it can still be had; then it raises.

    A protocol says how its size is read, what sizes may be, and what it raises for others.
    """

    unpack_size: ClassVar[Callable[..., tuple[Any, ...]]] = Struct(">I").unpack_from
    least_bytes: ClassVar[int]
    big_bytes: ClassVar[int]
    """An unfinished frame from this size on gets its own memory."""

    __slots__ = ("_big", "_failure", "_filled", "_frames", "_rest", "_scratch", "_size", "most_bytes")

    def __init__(self, most_bytes: int, scratch: bytearray | None = None) -> None:
        self.most_bytes = most_bytes
        self._scratch = memoryview(scratch_buffer() if scratch is None else scratch)
        assert len(self._scratch) >= 2 * self.big_bytes
        self._frames: deque[memoryview] = deque()
        self._rest = b""  # the start of a frame that is neither whole nor big
        self._big: memoryview | None = None
        self._size = self._filled = 0  # of the big frame
        self._failure: Exception | None = None

    @abstractmethod
    def bad_size(self, size: int) -> Exception:
        """Give what to raise for a frame that says it has so many bytes."""

    def next_frame(self) -> memoryview | None:
        """Take one whole frame without its size, or None until more bytes have come.

        Raises what ``bad_size`` gives once all frames before the bad size have been taken.
        """
        if self._frames:
            return self._frames.popleft()
        if self._failure is not None:
            raise self._failure
        return None

    @property
    def waiting(self) -> int:
        """How many whole frames can be taken."""
        return len(self._frames)

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes as they came, cut anywhere."""
        left = memoryview(data)
        while left:
            buffer = self.get_buffer()
            count = min(len(buffer), len(left))
            buffer[:count] = left[:count]
            self.buffer_updated(count)
            left = left[count:]

    def get_buffer(self, hint: int = -1) -> memoryview:
        """Lend memory to receive into (asyncio's BufferedProtocol); it is never empty."""
        if self._big is not None:
            if self._filled == len(self._big):
                self._big = self._grown(self._big)
            return self._big[self._filled :]
        kept = len(self._rest)
        if kept:
            self._scratch[:kept] = self._rest
        return self._scratch[kept:]

    def buffer_updated(self, count: int) -> None:
        """Say that ``count`` bytes were received into what ``get_buffer`` lent last."""
        if self._big is not None:
            self._filled += count
            if self._filled == self._size:
                self._frames.append(self._big.toreadonly())
                self._big = None
        elif self._failure is None:
            self._cut(len(self._rest) + count)

    def _cut(self, end: int) -> None:
        """Copy out every whole frame, and keep the start of the next one."""
        scratch, at, unpack_size = self._scratch, 0, self.unpack_size
        while end - at >= 4:
            (size,) = unpack_size(scratch, at)
            if not self.least_bytes <= size <= self.most_bytes:
                self._rest = b""
                self._failure = self.bad_size(size)
                return
            stop = at + 4 + size
            if stop > end:
                if size >= self.big_bytes:
                    self._begin_big(size, scratch[at + 4 : end])
                    return
                break
            self._frames.append(memoryview(bytes(scratch[at + 4 : stop])))
            at = stop
        self._rest = bytes(scratch[at:end])

    def _begin_big(self, size: int, start: memoryview) -> None:
        self._rest = b""
        self._size, self._filled = size, len(start)
        self._big = memoryview(bytearray(min(size, max(FIRST_PIECE_BYTES, len(start)))))
        self._big[: len(start)] = start

    def _grown(self, full: memoryview) -> memoryview:
        # A new buffer and a copy: the event loop may still hold a view of the old one, which forbids to resize.
        larger = memoryview(bytearray(min(self._size, 4 * len(full))))
        larger[: len(full)] = full
        return larger
