"""Kafka's frames: an int32 size, then that many bytes. How they are cut: `magnetar.records.framing`."""

from __future__ import annotations

from struct import Struct

from magnetar.records.framing import (
    FIRST_PIECE_BYTES,
    SCRATCH_BYTES,
    Lending,
    SizedFrames,
    other_protocol,
    scratch_buffer,
)
from magnetar.wire.kafka.malformed import WireError

DEFAULT_MAX_FRAME_BYTES = 104_857_600  # Kafka's socket.request.max.bytes
MIN_FRAME_BYTES = 8  # API key, version and correlation id
BIG_FRAME_BYTES = 16 * 1024
__all__ = [
    "BIG_FRAME_BYTES",
    "DEFAULT_MAX_FRAME_BYTES",
    "FIRST_PIECE_BYTES",
    "MIN_FRAME_BYTES",
    "SCRATCH_BYTES",
    "FrameInvalid",
    "KafkaFrameReader",
    "FrameTooLarge",
    "scratch_buffer",
]


class FrameInvalid(WireError):
    """The size before a frame cannot be one: this is not Kafka's protocol, or we lost the thread."""


class FrameTooLarge(FrameInvalid):
    """The frame is larger than this broker accepts."""


class KafkaFrameReader(SizedFrames):
    """One connection's frames; ``next_frame`` raises ``FrameTooLarge`` or ``FrameInvalid``."""

    unpack_size = Struct(">i").unpack_from
    least_bytes = MIN_FRAME_BYTES
    big_bytes = BIG_FRAME_BYTES
    __slots__ = ()

    def __init__(
        self,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
        scratch: bytearray | None = None,
        lending: Lending | None = None,
    ) -> None:
        super().__init__(max_frame_bytes, scratch, lending)

    @property
    def next_key(self) -> int | None:
        """The API key that the frame begins with which ``next_frame`` would give; None if none has come whole."""
        frames = self._frames
        return int.from_bytes(frames[0][:2], "big", signed=True) if frames else None

    def behind(self, frame: memoryview | None, most: int) -> list[memoryview]:
        """Return frames that ``next_frame`` will give, the first ``most`` of those behind ``frame`` if it is one."""
        found: list[memoryview] = []
        for each in reversed(self._frames):
            if each is frame:
                break
            found.append(each)
        found.reverse()
        return found[:most]

    def put_back(self, frame: memoryview) -> None:
        """Have ``next_frame`` give this one again."""
        self._frames.appendleft(frame)
        self._whole_bytes += len(frame)

    def allow(self, max_frame_bytes: int) -> None:
        """Take frames of up to this size from now on: who is known may say more."""
        self.most_bytes = max_frame_bytes

    def bad_size(self, size: int) -> FrameInvalid:
        if size > self.most_bytes:
            text = f"a frame of {size} bytes, but {self.most_bytes} are allowed"
            return FrameTooLarge(text + other_protocol(size, "Kafka's"))
        return FrameInvalid(f"a frame cannot have {size} bytes")
