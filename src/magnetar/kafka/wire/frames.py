"""Cut a client's byte stream into frames: an int32 size, then that many bytes.

Nothing here sees a socket. The same reader is fed with bytes, or lends its memory to asyncio's
``BufferedProtocol``, so that a big frame is received straight into its own memory:

    small frames   are received many at a time into a scratch buffer, and copied out of it
    big frames     get their own memory once their size is known, and it grows only as bytes really arrive
"""

from __future__ import annotations

from collections import deque
from struct import Struct

from magnetar.kafka.wire.malformed import WireError

DEFAULT_MAX_FRAME_BYTES = 104_857_600  # Kafka's socket.request.max.bytes
MIN_FRAME_BYTES = 8  # API key, version and correlation id
SCRATCH_BYTES = 256 * 1024
BIG_FRAME_BYTES = 16 * 1024  # an unfinished frame from this size on gets its own memory
FIRST_PIECE_BYTES = 256 * 1024

_unpack_size = Struct(">i").unpack_from


class FrameInvalid(WireError):
    """The size before a frame cannot be one: this is not Kafka's protocol, or we lost the thread."""


class FrameTooLarge(FrameInvalid):
    """The frame is larger than this broker accepts."""


def scratch_buffer() -> bytearray:
    """Give memory to receive into; all connections of one event loop may share it."""
    return bytearray(SCRATCH_BYTES)


class FrameReader:
    """One connection's frames. After a bad size the frames before it can still be had; then it raises."""

    __slots__ = ("_big", "_failure", "_filled", "_frames", "_max_frame_bytes", "_rest", "_scratch", "_size")

    def __init__(
        self, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES, scratch: bytearray | None = None
    ) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._scratch = memoryview(scratch_buffer() if scratch is None else scratch)
        assert len(self._scratch) >= 2 * BIG_FRAME_BYTES
        self._frames: deque[memoryview] = deque()
        self._rest = b""  # the start of a frame that is neither whole nor big
        self._big: memoryview | None = None
        self._size = self._filled = 0  # of the big frame
        self._failure: FrameInvalid | None = None

    def next_frame(self) -> memoryview | None:
        """Take one whole frame without its size, or None until more bytes have come.

        Raises ``FrameTooLarge`` or ``FrameInvalid`` once all frames before the bad size have been taken.
        """
        if self._frames:
            return self._frames.popleft()
        if self._failure is not None:
            raise self._failure
        return None

    def put_back(self, frame: memoryview) -> None:
        """Have ``next_frame`` give this one again."""
        self._frames.appendleft(frame)

    def allow(self, max_frame_bytes: int) -> None:
        """Take frames of up to this size from now on: who is known may say more."""
        self._max_frame_bytes = max_frame_bytes

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
        scratch, at = self._scratch, 0
        while end - at >= 4:
            (size,) = _unpack_size(scratch, at)
            if not MIN_FRAME_BYTES <= size <= self._max_frame_bytes:
                self._fail(size)
                return
            stop = at + 4 + size
            if stop > end:
                if size >= BIG_FRAME_BYTES:
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

    def _fail(self, size: int) -> None:
        self._rest = b""
        if size > self._max_frame_bytes:
            allowed = self._max_frame_bytes
            self._failure = FrameTooLarge(f"a frame of {size} bytes, but {allowed} are allowed")
        else:
            self._failure = FrameInvalid(f"a frame cannot have {size} bytes")
