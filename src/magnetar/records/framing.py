"""Cutting a byte stream into frames: four bytes of size, big-endian, then that many bytes, as both protocols do.

Nothing here sees a socket. The same reader is fed with bytes, or lends its memory to asyncio's
``BufferedProtocol``, so that a big frame is received straight into its own memory:

    small frames   are received many at a time into a scratch buffer, and copied out of it
    big frames     get their own memory once their size is known, and it grows only as bytes really arrive

Memory for what has not come yet is lent in large pieces, and in small ones to whoever begins a frame while memory is
short (`Lending`): a thousand beginnings would hold a quarter of a gigabyte else.

A quarter of a megabyte may hold twenty thousand frames. Only some are cut at a time, the rest stays one piece of bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from struct import Struct
from typing import Any, ClassVar

SCRATCH_BYTES = 256 * 1024
MAX_CUT = 64
"""So many frames are cut ahead of who takes them: each is objects, beside its bytes."""
FIRST_PIECE_BYTES = 256 * 1024
NARROW_BYTES = 4096
"""Lent at a stretch while memory is short, until a frame has `NARROW_UNTIL_BYTES`."""
NARROW_UNTIL_BYTES = 32 << 10
_MAPPED_FROM_BYTES = 4 << 20


class Lending:
    """How much is received at a stretch; one for all readers that share a budget of memory."""

    __slots__ = ("nbytes",)

    def __init__(self) -> None:
        self.nbytes = SCRATCH_BYTES

    @property
    def is_narrow(self) -> bool:
        """Whether little is lent."""
        return self.nbytes < SCRATCH_BYTES

    def narrow(self, on: bool) -> None:
        """Lend little from now on, or as usual."""
        self.nbytes = NARROW_BYTES if on else SCRATCH_BYTES


def scratch_buffer() -> bytearray:
    """Return memory to receive into; all connections of one event loop may share it."""
    return bytearray(SCRATCH_BYTES)


def other_protocol(size: int, own: str) -> str:
    """Return, for a frame's impossible size, which other protocol begins with these four bytes; "" if none does."""
    begins = size.to_bytes(4, "big", signed=size < 0)
    if begins.startswith(b"\x16\x03"):
        return ": it begins as TLS does, and this listener is plaintext"
    if begins in (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PRI "):
        return f": it begins as HTTP does, and this listener speaks {own} protocol"
    return ""


class SizedFrames(ABC):
    """One connection's frames. After a bad size the frames before it can still be had; then it raises.

    A protocol says how its size is read, what sizes may be, and what it raises for others.
    """

    unpack_size: ClassVar[Callable[..., tuple[Any, ...]]] = Struct(">I").unpack_from
    least_bytes: ClassVar[int]
    big_bytes: ClassVar[int]
    """An unfinished frame from this size on gets its own memory."""

    __slots__ = (
        "_big",
        "_failure",
        "_filled",
        "_frames",
        "_lending",
        "_rest",
        "_scratch",
        "_size",
        "_uncut",
        "_whole_bytes",
        "most_bytes",
    )

    def __init__(
        self, most_bytes: int, scratch: bytearray | None = None, lending: Lending | None = None
    ) -> None:
        self.most_bytes = most_bytes
        self._lending = lending or Lending()
        self._scratch = memoryview(scratch_buffer() if scratch is None else scratch)
        assert len(self._scratch) >= 2 * self.big_bytes
        self._frames: deque[memoryview] = deque()
        self._whole_bytes = 0  # of ``_frames``
        self._uncut: memoryview | None = None  # what is behind them, where there were too many
        self._rest = b""  # the start of a frame that is neither whole nor big
        self._big: memoryview | None = None
        self._size = self._filled = 0  # of the big frame
        self._failure: Exception | None = None

    @abstractmethod
    def bad_size(self, size: int) -> Exception:
        """Return what to raise for a frame that says it has so many bytes."""

    def next_frame(self) -> memoryview | None:
        """Take one whole frame without its size, or None until more bytes have come.

        Raises what ``bad_size`` gives once all frames before the bad size have been taken.
        """
        if self._frames:
            frame = self._frames.popleft()
            self._whole_bytes -= len(frame)
            if not self._frames and self._uncut:
                self._cut_on()
            return frame
        if self._failure is not None:
            raise self._failure
        return None

    @property
    def waiting(self) -> int:
        """How many whole frames can be taken, where there are more than `MAX_CUT` how many there may be at most."""
        uncut = len(self._uncut) // (4 + self.least_bytes) if self._uncut else 0
        return len(self._frames) + uncut

    @property
    def waiting_bytes(self) -> int:
        """How many bytes those have, and what is behind them uncut."""
        return self._whole_bytes + (len(self._uncut) if self._uncut is not None else 0)

    @property
    def are_taken(self) -> bool:
        """Whether ``next_frame`` has nothing to give, nor to raise."""
        return not self._frames and self._failure is None

    @property
    def held_bytes(self) -> int:
        """How much memory all takes that has come and was not taken, whole or not."""
        held = self._whole_bytes + len(self._rest)
        if self._uncut is not None:
            held += len(self._uncut)
        if self._big is not None:
            held += self._filled if len(self._big) > 4 * _MAPPED_FROM_BYTES else len(self._big)
        return held

    @property
    def is_amid_frame(self) -> bool:
        """Whether a frame has half come."""
        return self._big is not None or bool(self._rest)

    @property
    def missing_bytes(self) -> int:
        """How many bytes must still come before what has half come can be whole; 0 if nothing has."""
        if self._big is not None:
            return self._size - self._filled
        kept = len(self._rest)
        if kept < 4:
            return 4 + self.least_bytes - kept if kept else 0
        return int(self.unpack_size(self._rest)[0]) + 4 - kept

    def close(self) -> None:
        """Let go of all that has come: a connection is in rings of who knows whom, and those go late."""
        self._frames.clear()
        self._uncut = self._big = None
        self._rest = b""
        self._whole_bytes = 0

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
        if self._uncut:
            return self._scratch[: self._lending.nbytes]  # it comes behind what is not cut yet
        if kept:
            self._scratch[:kept] = self._rest
        return self._scratch[kept : kept + self._lending.nbytes]

    def buffer_updated(self, count: int) -> None:
        """Say that ``count`` bytes were received into what ``get_buffer`` lent last."""
        if self._big is not None:
            self._filled += count
            if self._filled == self._size:
                self._frames.append(self._big.toreadonly())
                self._whole_bytes += self._size
                self._big = None
        elif self._uncut:
            self._uncut = memoryview(b"".join((self._uncut, self._scratch[:count])))
        elif self._failure is None:
            self._cut(self._scratch, len(self._rest) + count)

    def _cut_on(self) -> None:
        uncut, self._uncut = self._uncut, None
        assert uncut is not None
        self._cut(uncut, len(uncut))

    def _cut(self, data: memoryview, end: int) -> None:
        """Copy out the first whole frames; keep what is behind them, or the start of the next one."""
        at, frames, unpack_size = 0, self._frames, self.unpack_size
        self._rest = b""
        while end - at >= 4:
            if len(frames) >= MAX_CUT:
                left = data[at:end]
                self._uncut = left if data.readonly else memoryview(bytes(left))
                return
            (size,) = unpack_size(data, at)
            if not self.least_bytes <= size <= self.most_bytes:
                self._failure = self.bad_size(size)
                return
            stop = at + 4 + size
            if stop > end:
                if size >= self.big_bytes:
                    self._begin_big(size, data[at + 4 : end])
                    return
                break
            frames.append(memoryview(bytes(data[at + 4 : stop])))
            self._whole_bytes += size
            at = stop
        self._rest = bytes(data[at:end])

    def _begin_big(self, size: int, start: memoryview) -> None:
        self._size, self._filled = size, len(start)
        self._big = memoryview(bytearray(min(size, max(self._lending.nbytes, len(start)))))
        self._big[: len(start)] = start

    def _grown(self, full: memoryview) -> memoryview:
        # A new buffer and a copy: the event loop may still hold a view of the old one, which forbids to resize.
        if len(full) >= _MAPPED_FROM_BYTES:
            # Pages that nobody has written to take no memory; so it need not grow, and be copied, any more.
            larger = memoryview(mmap(-1, self._size, flags=MAP_PRIVATE | MAP_ANONYMOUS))
        else:
            is_little = self._lending.is_narrow and len(full) <= NARROW_UNTIL_BYTES
            wanted = len(full) + NARROW_BYTES if is_little else 4 * len(full)
            larger = memoryview(bytearray(min(self._size, wanted)))
        larger[: len(full)] = full
        return larger
