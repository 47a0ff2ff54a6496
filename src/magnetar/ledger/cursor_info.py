"""ManagedCursorInfo: what the metadata store keeps of a cursor, in Pulsar's own protobuf.

ManagedCursorInfo  1 cursorsLedgerId (-1: the state is here, not in a ledger), 2 markDeleteLedgerId,
                   3 markDeleteEntryId, 4 repeated MessageRange, 6 lastActive (ms),
                   7 repeated BatchedEntryDeletionIndexInfo, 8 repeated StringProperty
MessageRange       1 lowerEndpoint, 2 upperEndpoint: positions, the lower one not included
NestedPositionInfo 1 ledgerId, 2 entryId
BatchedEntryDeletionIndexInfo
                   1 position, 2 repeated int64: the batch indexes that are *not* done with, 64 bits each, lowest first
StringProperty     1 name, 2 value: what people say of a subscription
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from magnetar.ledger.ack_sets import set_of, words_of
from magnetar.ledger.errors import LedgerCorrupt
from magnetar.ledger.info import path_of
from magnetar.ledger.port import Position
from magnetar.ledger.protobuf import fields, message, number, signed
from magnetar.records.errors import CorruptBatch

_MOST_WORDS = 1 << 18
"""Of one entry: 16 million messages, more than the largest batch unpacks to. A longer set is not kept: the entry comes
again whole."""


@dataclass(frozen=True, slots=True)
class CursorInfo:
    """All up to ``mark_delete`` is done with, and so are the ranges ``(lower, upper]`` behind it."""

    mark_delete: Position
    ranges: tuple[tuple[Position, Position], ...] = ()
    last_active_ms: int = 0
    partly: tuple[tuple[Position, int], ...] = ()
    """Entries of which a part is done with, and the set (bit by bit) of the batch indexes that remain."""
    properties: Mapping[str, str] = field(default_factory=dict)


def cursor_path(log: str, cursor: str) -> str:
    """Give the metadata path of a managed ledger's cursor."""
    return f"{path_of(log)}/{quote(cursor, safe='')}"


def encode_cursor(info: CursorInfo) -> bytes:
    """Give Pulsar's bytes for ``info``."""
    ranges = b"".join(
        message(4, message(1, _position(lower)) + message(2, _position(upper)))
        for lower, upper in info.ranges
    )
    return (
        number(1, -1)
        + number(2, info.mark_delete.ledger_id)
        + number(3, info.mark_delete.entry_id)
        + ranges
        + number(6, info.last_active_ms)
        + b"".join(
            message(
                7, message(1, _position(position)) + b"".join(number(2, word) for word in words_of(remaining))
            )
            for position, remaining in info.partly
        )
        + b"".join(
            message(8, message(1, key.encode()) + message(2, value.encode()))
            for key, value in info.properties.items()
        )
    )


def decode_cursor(data: bytes, *, name: str = "") -> CursorInfo:
    """Give what ``encode_cursor`` was given; raise ``LedgerCorrupt`` for bytes that are no such message."""
    numbers: dict[int, int] = {}
    ranges = []
    partly = []
    properties: dict[str, str] = {}
    try:
        for place, value in fields(data):
            if isinstance(value, int):
                numbers[place] = signed(value)
            elif place == 4:
                ends = dict(fields(value))
                ranges.append((_decode_position(ends[1]), _decode_position(ends[2])))
            elif place == 7:
                part = _decode_partly(value)
                if part is not None:
                    partly.append(part)
            elif place == 8:
                pair = dict(fields(value))
                properties[_text(pair[1])] = _text(pair[2])
        mark_delete = Position(numbers[2], numbers[3])
    except (CorruptBatch, KeyError, TypeError, UnicodeDecodeError) as error:
        raise LedgerCorrupt(f"the metadata of cursor {name} cannot be read: {error}") from None
    return CursorInfo(mark_delete, tuple(ranges), numbers.get(6, 0), tuple(partly), properties)


def _decode_partly(data: int | bytes) -> tuple[Position, int] | None:
    position = None
    words: list[int] = []
    for place, value in fields(data):
        if place == 1:
            position = _decode_position(value)
        elif place == 2 and isinstance(value, int):
            words.append(value)
            if len(words) > _MOST_WORDS:
                return None
    if position is None:
        raise KeyError("position")
    return position, set_of(words, 64 * len(words))


def _text(data: int | bytes) -> str:
    if isinstance(data, int):
        raise TypeError("a text is due where a number stands")
    return data.decode()


def _position(position: Position) -> bytes:
    return number(1, position.ledger_id) + number(2, position.entry_id)


def _decode_position(data: object) -> Position:
    numbers = {place: signed(value) for place, value in fields(data) if isinstance(value, int)}
    return Position(numbers[1], numbers[2])
