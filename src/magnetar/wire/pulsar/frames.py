"""Cut a client's byte stream into frames, and read what a frame holds.

    4  total size: of all that follows
    4  command size, n
    n  BaseCommand (protobuf)
    ?  SEND and MESSAGE only: the entry, as `magnetar.records.pulsar_entries` explains it
       (magic 0x0e01, CRC32C, metadata size, metadata, payload)

Sizes are big-endian. How the stream is cut: `magnetar.records.framing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from struct import Struct
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError, Message

from magnetar.records.framing import SizedFrames, other_protocol
from magnetar.wire.pulsar.parts import FEW_BYTES, TooManyParts, check_parts
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand

FRAME_PADDING_BYTES = 10 * 1024
"""How much longer than its message a frame may be: room for the command and the metadata."""
BIG_FRAME_BYTES = 32 * 1024
MAX_TEXTS = 10_000
"""Names, keys and values in one command; each is looked at."""
_WITHOUT_TEXT = frozenset(
    (BaseCommand.SEND, BaseCommand.ACK, BaseCommand.FLOW, BaseCommand.PING, BaseCommand.PONG)
)
_unpack_size = Struct(">I").unpack_from


class BadFrame(Exception):
    """These bytes are not Pulsar's protocol; what follows them cannot be understood either."""


class CommandFrame(NamedTuple):
    """One command, and the entry that came with it (empty without one)."""

    command: BaseCommand
    entry: memoryview
    size: int


def read_frame(frame: memoryview) -> CommandFrame:
    """Return what a frame holds; raise ``BadFrame``."""
    (size,) = _unpack_size(frame)
    end = 4 + size
    if end > len(frame):
        raise BadFrame(f"a command of {size} bytes in a frame of {len(frame)}")
    command, said = BaseCommand(), bytes(frame[4:end])
    try:
        if size > FEW_BYTES:
            check_parts(BaseCommand.DESCRIPTOR, said)
        command.ParseFromString(said)
    except TooManyParts as error:
        raise BadFrame(str(error)) from None
    except (DecodeError, ValueError) as error:
        raise BadFrame(f"a command that cannot be read: {error}") from None
    if not command.IsInitialized():  # of an unknown type, or without what it must have
        raise BadFrame("a command that is unknown or incomplete")
    if command.type not in _WITHOUT_TEXT:
        _check_text(command, MAX_TEXTS)
    return CommandFrame(command, frame[end:], len(frame))


def _check_text(message: Message, left: int) -> int:
    """Raise ``BadFrame`` for text that is not UTF-8: protobuf hands it over as bytes, where text is expected.

    So it does for more texts than are ``left``; gives how many may still be.
    """
    for field, value in message.ListFields():
        if not _holds_text(field):
            continue
        repeated = value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else (value,)
        left -= len(repeated)
        if left < 0:
            raise BadFrame(f"a command of more than {MAX_TEXTS} texts")
        for each in repeated:
            if isinstance(each, bytes):
                raise BadFrame(f"{field.name} is not UTF-8")
            if isinstance(each, Message):
                left = _check_text(each, left)
    return left


@cache
def _holds_text(field: Any) -> bool:
    """Return whether a field is text, or a message with text in it at any depth."""
    seen, waiting = set(), [field]
    while waiting:
        each = waiting.pop()
        if each.type == each.TYPE_STRING:
            return True
        kind = each.message_type
        if kind is not None and kind.full_name not in seen:
            seen.add(kind.full_name)
            waiting += kind.fields
    return False


class PulsarFrameReader(SizedFrames):
    """One connection's frames, without their total size; ``next_frame`` raises ``BadFrame``."""

    least_bytes = 4 + 2  # the command's size, and a command that says what it is
    big_bytes = BIG_FRAME_BYTES
    __slots__ = ()

    def bad_size(self, size: int) -> BadFrame:
        text = f"a frame of {size} bytes; {self.least_bytes} to {self.most_bytes} may be"
        return BadFrame(text + other_protocol(size, "Pulsar's"))
