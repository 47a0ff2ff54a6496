"""Cut a client's byte stream into frames, and read what a frame holds.

    4  total size: of all that follows
    4  command size, n
    n  BaseCommand (protobuf)
    ?  SEND and MESSAGE only: the entry, as `magnetar.records.pulsar_entries` explains it
       (magic 0x0e01, CRC32C, metadata size, metadata, payload)

Sizes are big-endian. Nothing here sees a socket: the reader lends its memory to asyncio's ``BufferedProtocol``.
Small frames are received many at a time and copied out; a big one gets its own memory, which grows only as its bytes
really arrive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from google.protobuf.message import DecodeError, Message

from magnetar.pulsar.wire.pulsar_pb2 import BaseCommand

FRAME_PADDING_BYTES = 10 * 1024
"""How much longer than its message a frame may be: room for the command and the metadata."""
SCRATCH_BYTES = 256 * 1024
BIG_FRAME_BYTES = 32 * 1024
_FIRST_PIECE_BYTES = 256 * 1024
_LEAST_BYTES = 4 + 2  # the command's size, and a command that says what it is
_WITHOUT_TEXT = frozenset(
    (BaseCommand.SEND, BaseCommand.ACK, BaseCommand.FLOW, BaseCommand.PING, BaseCommand.PONG)
)
_unpack_size = Struct(">I").unpack_from


class BadFrame(Exception):
    """These bytes are not Pulsar's protocol; what follows them cannot be understood either."""


class Frame(NamedTuple):
    """One command, and the entry that came with it (empty without one)."""

    command: BaseCommand
    entry: memoryview
    size: int


def read_frame(frame: memoryview) -> Frame:
    """Give what a frame holds; raise ``BadFrame``."""
    (size,) = _unpack_size(frame)
    end = 4 + size
    if end > len(frame):
        raise BadFrame(f"a command of {size} bytes in a frame of {len(frame)}")
    command = BaseCommand()
    try:
        command.ParseFromString(bytes(frame[4:end]))
    except (DecodeError, ValueError) as error:
        raise BadFrame(f"a command that cannot be read: {error}") from None
    if not command.IsInitialized():  # of an unknown type, or without what it must have
        raise BadFrame("a command that is unknown or incomplete")
    if command.type not in _WITHOUT_TEXT:
        _check_text(command)
    return Frame(command, frame[end:], len(frame))


def _check_text(message: Message) -> None:
    """Raise ``BadFrame`` for text that is not UTF-8: protobuf hands it over as bytes, where text is expected."""
    for field, value in message.ListFields():
        repeated = value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else (value,)
        for each in repeated:
            if field.type == field.TYPE_STRING and isinstance(each, bytes):
                raise BadFrame(f"{field.name} is not UTF-8")
            if isinstance(each, Message):
                _check_text(each)


class FrameReader:
    """One connection's frames. After a bad size those before it can still be had; then it raises."""

    __slots__ = ("_big", "_failure", "_filled", "_frames", "_most_bytes", "_rest", "_scratch", "_size")

    def __init__(self, most_bytes: int, scratch: bytearray | None = None) -> None:
        self._most_bytes = most_bytes
        self._scratch = memoryview(bytearray(SCRATCH_BYTES) if scratch is None else scratch)
        assert len(self._scratch) >= 2 * BIG_FRAME_BYTES
        self._frames: deque[memoryview] = deque()
        self._rest = b""  # the start of a frame that is neither whole nor big
        self._big: memoryview | None = None
        self._size = self._filled = 0  # of the big frame
        self._failure: BadFrame | None = None

    def next_frame(self) -> memoryview | None:
        """Take one whole frame without its total size, or None until more bytes have come; raise ``BadFrame``."""
        if self._frames:
            return self._frames.popleft()
        if self._failure is not None:
            raise self._failure
        return None

    @property
    def waiting(self) -> int:
        """How many whole frames can be taken."""
        return len(self._frames)

    def feed(self, data: bytes) -> None:
        """Take bytes as they came, cut anywhere."""
        left = memoryview(data)
        while left:
            buffer = self.get_buffer()
            count = min(len(buffer), len(left))
            buffer[:count] = left[:count]
            self.buffer_updated(count)
            left = left[count:]

    def get_buffer(self) -> memoryview:
        """Lend memory to receive into; it is never empty."""
        if self._big is not None:
            if self._filled == len(self._big):
                larger = memoryview(bytearray(min(self._size, 4 * len(self._big))))
                larger[: self._filled] = self._big
                self._big = larger
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
            if not _LEAST_BYTES <= size <= self._most_bytes:
                self._rest = b""
                self._failure = BadFrame(
                    f"a frame of {size} bytes; {_LEAST_BYTES} to {self._most_bytes} may be"
                )
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
        self._big = memoryview(bytearray(min(size, max(_FIRST_PIECE_BYTES, len(start)))))
        self._big[: len(start)] = start
