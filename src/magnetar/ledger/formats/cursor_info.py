"""ManagedCursorInfo: a cursor in the metadata store, and PositionInfo: its state in a ledger of its own, in
Pulsar's own protobuf.

ManagedCursorInfo  1 cursorsLedgerId (-1: the state is here, not in a ledger), 2 markDeleteLedgerId,
                   3 markDeleteEntryId, 4 repeated MessageRange, 5 repeated LongProperty, 6 lastActive (ms),
                   7 repeated BatchedEntryDeletionIndexInfo, 8 repeated StringProperty
PositionInfo       1 ledgerId, 2 entryId, 3 repeated MessageRange, 4 repeated LongProperty,
                   5 repeated BatchedEntryDeletionIndexInfo
LongProperty       1 name, 2 value: what belongs to the mark-delete position (the sequence ids of producers)
MessageRange       1 lowerEndpoint, 2 upperEndpoint: positions, the lower one not included
NestedPositionInfo 1 ledgerId, 2 entryId
BatchedEntryDeletionIndexInfo
                   1 position, 2 repeated int64: the batch indexes *not* acknowledged, 64 bits each, lowest first
StringProperty     1 name, 2 value: properties that users set on a subscription
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from magnetar.ledger.errors import LedgerCorrupt, LedgerError
from magnetar.ledger.formats.ack_sets import set_of, words_of
from magnetar.ledger.formats.info import path_of
from magnetar.ledger.formats.protobuf import fields, message, number, signed
from magnetar.ledger.values import Position
from magnetar.metadata.ops import Stored
from magnetar.metadata.segments import encoded
from magnetar.records.errors import CorruptBatch

_MAX_WORDS = 1 << 18
"""The longest set of one entry: 16 million messages, more than the largest batch unpacks to. A longer set is not
stored: the entry comes again whole."""


@dataclass(frozen=True, slots=True)
class CursorInfo:
    """All up to ``mark_delete`` is acknowledged, and so are the ranges ``(lower, upper]`` after it."""

    mark_delete: Position
    ranges: tuple[tuple[Position, Position], ...] = ()
    last_active_ms: int = 0
    partly: tuple[tuple[Position, int], ...] = ()
    """Partly acknowledged entries, and the set (bit by bit) of the batch indexes that remain."""
    properties: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, int] = field(default_factory=dict)
    """Properties of the mark-delete position (Pulsar's position properties)."""
    ledger_id: int = -1
    """The ledger that holds the state; only ``last_active_ms`` and ``properties`` stand here then. -1: all is here."""
    others: bytes = b""
    """The fields that this broker does not know, as they came."""


def cursor_path(log: str, cursor: str) -> str:
    """Return the metadata path of a managed ledger's cursor."""
    return f"{path_of(log)}/{encoded(cursor)}"


def encode_cursor(info: CursorInfo) -> bytes:
    """Return Pulsar's ManagedCursorInfo; for a cursor whose state lies in a ledger, without that state."""
    properties = b"".join(
        message(8, message(1, key.encode()) + message(2, value.encode()))
        for key, value in info.properties.items()
    )
    head, last_active = number(1, info.ledger_id), number(6, info.last_active_ms)
    if info.ledger_id >= 0:
        return b"".join((head, last_active, properties, info.others))
    mark = _position(info.mark_delete, 2, 3)
    state = _ranges(4, info), _numbers(5, info), last_active, _parts(7, info)
    return b"".join((head, mark, *state, properties, info.others))


def encode_state(info: CursorInfo) -> bytes:
    """Return Pulsar's PositionInfo: the content of a ledger of the cursor."""
    return _position(info.mark_delete) + _ranges(3, info) + _numbers(4, info) + _parts(5, info)


def decode_cursor(data: bytes, *, name: str = "") -> CursorInfo:
    """Decode what ``encode_cursor`` wrote; raise ``LedgerCorrupt`` for bytes that are no such message.

    Where the state lies in a ledger, the position is the one before all that there is.
    """
    with _refusing(name):
        found = _Fields()
        for place, value in fields(data):
            if place == 8 and not isinstance(value, int):
                pair = dict(fields(value))
                found.properties[_text(pair[1])] = _text(pair[2])
            elif not found.take(_OF_CURSOR.get(place, 0), place, value):
                found.others += _encoded(place, value)
        ledger_id = found.plain.get(1, -1)
        mark = _BEFORE_ALL if ledger_id >= 0 else Position(found.plain[2], found.plain[3])
        return found.info(mark, ledger_id)


def decode_state(data: bytes, info: CursorInfo, *, name: str = "") -> CursorInfo:
    """Return ``info`` with the state that a ledger of the cursor holds; raise ``LedgerCorrupt``."""
    with _refusing(name):
        found = _Fields()
        for place, value in fields(data):
            if not found.take(_OF_STATE.get(place, 0), place, value):
                raise TypeError(f"field {place} of its ledger is not known")
        mark = Position(found.plain[1], found.plain[2])
        return replace(
            info,
            mark_delete=mark,
            ranges=tuple(found.ranges),
            partly=tuple(found.partly),
            numbers=found.numbers,
        )


STATE_BEGINS = number(1, 0)[:1]
"""The first byte of every state in a ledger; no entry of a topic has it after its head."""
_BEFORE_ALL = Position(-1, -1)
_PLAIN, _RANGE, _NUMBER, _PART = 1, 2, 3, 4
_OF_CURSOR = {1: _PLAIN, 2: _PLAIN, 3: _PLAIN, 4: _RANGE, 5: _NUMBER, 6: _PLAIN, 7: _PART}
_OF_STATE = {1: _PLAIN, 2: _PLAIN, 3: _RANGE, 4: _NUMBER, 5: _PART}


class _Fields:
    """The fields found in a message so far."""

    def __init__(self) -> None:
        self.plain: dict[int, int] = {}
        self.ranges: list[tuple[Position, Position]] = []
        self.partly: list[tuple[Position, int]] = []
        self.numbers: dict[str, int] = {}
        self.properties: dict[str, str] = {}
        self.others = b""

    def take(self, kind: int, place: int, value: int | bytes) -> bool:
        """Note a field of a known kind; return whether it is one."""
        if kind == _PLAIN and isinstance(value, int):
            self.plain[place] = signed(value)
        elif kind == _RANGE:
            ends = dict(fields(value))
            self.ranges.append((_decode_position(ends[1]), _decode_position(ends[2])))
        elif kind == _NUMBER:
            pair = dict(fields(value))
            last = pair[2]
            if not isinstance(last, int):
                raise TypeError("a number is due where a text stands")
            self.numbers[_text(pair[1])] = signed(last)
        elif kind == _PART:
            part = _decode_partly(value)
            if part is not None:
                self.partly.append(part)
        else:
            return False
        return True

    def info(self, mark: Position, ledger_id: int) -> CursorInfo:
        return CursorInfo(
            mark,
            tuple(self.ranges),
            self.plain.get(6, 0),
            tuple(self.partly),
            self.properties,
            self.numbers,
            ledger_id,
            self.others,
        )


@contextmanager
def _refusing(name: str) -> Iterator[None]:
    try:
        yield
    except (CorruptBatch, KeyError, TypeError, UnicodeDecodeError) as error:
        raise LedgerCorrupt(f"the metadata of cursor {name} cannot be read: {error}") from None


def _encoded(place: int, value: int | bytes) -> bytes:
    return number(place, value) if isinstance(value, int) else message(place, value)


def _ranges(place: int, info: CursorInfo) -> bytes:
    return b"".join(
        message(place, message(1, _position(lower)) + message(2, _position(upper)))
        for lower, upper in info.ranges
    )


def _numbers(place: int, info: CursorInfo) -> bytes:
    return b"".join(
        message(place, message(1, key.encode()) + number(2, value)) for key, value in info.numbers.items()
    )


def _parts(place: int, info: CursorInfo) -> bytes:
    return b"".join(
        message(
            place, message(1, _position(position)) + b"".join(number(2, word) for word in words_of(remaining))
        )
        for position, remaining in info.partly
    )


def _decode_partly(data: int | bytes) -> tuple[Position, int] | None:
    position = None
    words: list[int] = []
    for place, value in fields(data):
        if place == 1:
            position = _decode_position(value)
        elif place == 2 and isinstance(value, int):
            words.append(value)
            if len(words) > _MAX_WORDS:
                return None
    if position is None:
        raise KeyError("position")
    return position, set_of(words, 64 * len(words))


def _text(data: int | bytes) -> str:
    if isinstance(data, int):
        raise TypeError("a text is due where a number stands")
    return data.decode()


def _position(position: Position, ledger: int = 1, entry: int = 2) -> bytes:
    return number(ledger, position.ledger_id) + number(entry, position.entry_id)


def _decode_position(data: object) -> Position:
    numbers = {place: signed(value) for place, value in fields(data) if isinstance(value, int)}
    return Position(numbers[1], numbers[2])


def ledger_of(stored: Stored) -> int:
    try:
        return decode_cursor(stored.value).ledger_id
    except LedgerError:
        return -1  # it cannot be read, and is deleted as it is
