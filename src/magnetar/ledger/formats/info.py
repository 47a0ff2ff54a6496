"""ManagedLedgerInfo: a managed ledger in the metadata store, in Pulsar's own protobuf.

    ManagedLedgerInfo  1 repeated LedgerInfo, 2 terminatedPosition, 3 repeated KeyValue (properties)
    terminatedPosition 1 ledgerId, 2 entryId
    LedgerInfo         1 ledgerId, 2 entries, 3 size, 4 timestamp, 5 offloadContext (`offload_context`),
                       6 repeated KeyValue (properties)
    KeyValue           1 key, 2 value

Sealed ledgers carry the properties ``first_index``, ``last_index``, ``max_timestamp`` and, where it is known,
``min_timestamp``; one without ``last_index`` has to be recovered from its file. ``compacted`` marks those whose files
are gone because the compacted ledger has what is left of them; that one is in the property ``compacted_ledger``,
as JSON. Fields and properties that others have written are retained as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from magnetar.ledger.errors import LedgerCorrupt
from magnetar.ledger.formats.offload_context import decode_offload, encode_offload
from magnetar.ledger.formats.protobuf import fields, message, number, signed
from magnetar.ledger.values import Compacted, LedgerSummary, Position
from magnetar.records.batch import UNKNOWN_TIME
from magnetar.records.errors import CorruptBatch

ROOT = "/managed-ledgers"
_COMPACTED, _IS_COMPACTED = "compacted_ledger", "compacted"
_NUMBERS = (1, 2, 3, 4)
_OWN = frozenset(("first_index", "last_index", "max_timestamp", "min_timestamp", _IS_COMPACTED))


@dataclass(slots=True)
class ManagedLedgerInfo:
    """The ledgers of a managed ledger, oldest first, its properties, and its compacted ledger."""

    ledgers: list[LedgerSummary] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    compacted: Compacted | None = None
    terminated: Position | None = None
    """The last entry of a log that was terminated."""

    unknown: bytes = b""
    """Fields that others have written, retained as they are."""

    def copy(self) -> ManagedLedgerInfo:
        """Return a copy with the same ledgers: to change one of them, replace it by another."""
        return replace(self, ledgers=list(self.ledgers), properties=dict(self.properties))

    def files(self) -> list[LedgerSummary]:
        """Return every ledger that the engine stores, the compacted one first: not those in tiered storage alone."""
        return [each for each in self.readable() if not each.offloaded]

    def readable(self) -> list[LedgerSummary]:
        """Return every ledger that can be read, wherever it lies, the compacted one first."""
        first = [] if self.compacted is None else [self.compacted.ledger]
        return first + [each for each in self.ledgers if not each.compacted]


def path_of(name: str) -> str:
    """Return the metadata path of the managed ledger ``tenant/ns/persistent/topic``, whose name is encoded as it is."""
    return f"{ROOT}/{name}"


def is_managed_ledger(path: str) -> bool:
    """Tell a managed ledger's path from one of its cursors' paths."""
    return path.startswith(ROOT + "/") and path.count("/") == 5


def encode_info(info: ManagedLedgerInfo) -> bytes:
    """Return Pulsar's bytes for ``info``."""
    ledgers = b"".join(message(1, _encode_ledger(ledger)) for ledger in info.ledgers)
    end = b""
    if info.terminated is not None:
        end = message(2, number(1, info.terminated.ledger_id) + number(2, info.terminated.entry_id))
    properties = dict(info.properties)
    if info.compacted is not None:
        properties[_COMPACTED] = _encode_compacted(info.compacted)
    return ledgers + end + _encode_properties(3, properties) + info.unknown


def decode_info(data: bytes, *, name: str = "") -> ManagedLedgerInfo:
    """Decode what ``encode_info`` wrote; raise ``LedgerCorrupt`` for bytes that are no such message."""
    info = ManagedLedgerInfo()
    try:
        for place, value in fields(data):
            if place == 1:
                info.ledgers.append(_decode_ledger(value))
            elif place == 2:
                info.terminated = _decode_position(value)
            elif place == 3:
                info.properties.update(_decode_property(value))
            else:
                info.unknown += _as_it_was(place, value)
        if _COMPACTED in info.properties:
            info.compacted = _decode_compacted(info.properties.pop(_COMPACTED))
    except (CorruptBatch, ValueError, TypeError, KeyError) as error:
        raise LedgerCorrupt(f"the metadata of managed ledger {name} cannot be read: {error}") from None
    return info


def _decode_position(data: object) -> Position:
    found = {place: value for place, value in fields(data) if isinstance(value, int)}
    return Position(signed(found[1]), signed(found[2]))


def _encode_ledger(ledger: LedgerSummary) -> bytes:
    properties = dict(ledger.properties)
    properties["first_index"] = str(ledger.first_offset)
    entries, size = 0, 0
    if ledger.sealed:
        entries, size = ledger.entries, ledger.size
        properties |= {"last_index": str(ledger.last_offset), "max_timestamp": str(ledger.max_timestamp)}
        if ledger.min_timestamp != UNKNOWN_TIME:
            properties["min_timestamp"] = str(ledger.min_timestamp)
    if ledger.compacted:
        properties[_IS_COMPACTED] = "1"
    numbers = ((1, ledger.ledger_id), (2, entries), (3, size), (4, ledger.created_ms))
    head = b"".join(number(n, v) for n, v in numbers)
    offload = b"" if ledger.offload is None else message(5, encode_offload(ledger.offload))
    return head + offload + ledger.unknown + _encode_properties(6, properties)


def _decode_ledger(data: object) -> LedgerSummary:
    numbers: dict[int, int] = {}
    properties: dict[str, str] = {}
    unknown, offload = b"", None
    for place, value in fields(data):
        if place in _NUMBERS and isinstance(value, int):
            numbers[place] = value
        elif place == 5:
            offload = decode_offload(value)
        elif place == 6:
            properties |= _decode_property(value)
        else:
            unknown += _as_it_was(place, value)
    return LedgerSummary(
        ledger_id=numbers[1],
        first_offset=int(properties.get("first_index", -1)),
        last_offset=int(properties.get("last_index", -1)),
        entries=numbers.get(2, 0),
        size=numbers.get(3, 0),
        max_timestamp=int(properties.get("max_timestamp", -1)),
        min_timestamp=int(properties.get("min_timestamp", UNKNOWN_TIME)),
        created_ms=numbers.get(4, 0),
        sealed="last_index" in properties,
        compacted=_IS_COMPACTED in properties,
        offload=offload,
        properties={key: value for key, value in properties.items() if key not in _OWN},
        unknown=unknown,
    )


def _as_it_was(place: int, value: int | bytes) -> bytes:
    return number(place, value) if isinstance(value, int) else message(place, value)


def _encode_compacted(compacted: Compacted) -> str:
    ledger, horizon = compacted.ledger, compacted.horizon
    return json.dumps({
        "ledger": ledger.ledger_id, "entries": ledger.entries, "size": ledger.size, "first": ledger.first_offset,
        "last": ledger.last_offset, "latest": ledger.max_timestamp, "created": ledger.created_ms,
        "horizon": [*horizon, compacted.horizon_offset],
    })  # fmt: skip


def _decode_compacted(text: str) -> Compacted:
    said = json.loads(text)
    ledger_id, entry_id, offset = map(int, said["horizon"])
    ledger = LedgerSummary(
        ledger_id=int(said["ledger"]), first_offset=int(said["first"]), last_offset=int(said["last"]),
        entries=int(said["entries"]), size=int(said["size"]), max_timestamp=int(said["latest"]),
        created_ms=int(said["created"]), sealed=True,
    )  # fmt: skip
    return Compacted(ledger, Position(ledger_id, entry_id), offset)


def _encode_properties(place: int, properties: Mapping[str, str]) -> bytes:
    return b"".join(
        message(place, message(1, key.encode()) + message(2, value.encode()))
        for key, value in properties.items()
    )


def _decode_property(data: object) -> dict[str, str]:
    pair = {place: bytes(value).decode() for place, value in fields(data) if not isinstance(value, int)}
    return {pair[1]: pair.get(2, "")}
