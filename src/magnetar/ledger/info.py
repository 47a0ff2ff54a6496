"""ManagedLedgerInfo: what the metadata store keeps of a managed ledger, in Pulsar's own protobuf.

    ManagedLedgerInfo  1 repeated LedgerInfo, 3 repeated KeyValue (properties)
    LedgerInfo         1 ledgerId, 2 entries, 3 size, 4 timestamp, 6 repeated KeyValue (properties)
    KeyValue           1 key, 2 value

Sealed ledgers carry the properties ``first_index``, ``last_index`` and ``max_timestamp``; one without
``last_index`` has to be recovered from its file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from magnetar.ledger.errors import LedgerCorrupt
from magnetar.ledger.port import LedgerSummary
from magnetar.ledger.protobuf import fields, message, number
from magnetar.records.errors import CorruptBatch

ROOT = "/managed-ledgers"


@dataclass(slots=True)
class ManagedLedgerInfo:
    """The ledgers of a managed ledger, oldest first, and its properties."""

    ledgers: list[LedgerSummary] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)


def path_of(name: str) -> str:
    """Give the metadata path of the managed ledger ``tenant/ns/persistent/topic``."""
    *folders, topic = name.split("/")
    return "/".join((ROOT, *folders, quote(topic, safe="")))


def is_managed_ledger(path: str) -> bool:
    """Tell a managed ledger's path from one of its cursors' paths."""
    return path.startswith(ROOT + "/") and path.count("/") == 5


def encode_info(info: ManagedLedgerInfo) -> bytes:
    """Give Pulsar's bytes for ``info``."""
    ledgers = b"".join(message(1, _encode_ledger(ledger)) for ledger in info.ledgers)
    return ledgers + _encode_properties(3, info.properties)


def decode_info(data: bytes, *, name: str = "") -> ManagedLedgerInfo:
    """Give what ``encode_info`` was given; raise ``LedgerCorrupt`` for bytes that are no such message."""
    info = ManagedLedgerInfo()
    try:
        for place, value in fields(data):
            if place == 1:
                info.ledgers.append(_decode_ledger(value))
            elif place == 3:
                info.properties.update(_decode_property(value))
    except (CorruptBatch, ValueError, TypeError) as error:
        raise LedgerCorrupt(f"the metadata of managed ledger {name} cannot be read: {error}") from None
    return info


def _encode_ledger(ledger: LedgerSummary) -> bytes:
    properties = {"first_index": str(ledger.first_offset)}
    entries, size = 0, 0
    if ledger.sealed:
        entries, size = ledger.entries, ledger.size
        properties |= {"last_index": str(ledger.last_offset), "max_timestamp": str(ledger.max_timestamp)}
    numbers = ((1, ledger.ledger_id), (2, entries), (3, size), (4, ledger.created_ms))
    return b"".join(number(n, v) for n, v in numbers) + _encode_properties(6, properties)


def _decode_ledger(data: object) -> LedgerSummary:
    numbers: dict[int, int] = {}
    properties: dict[str, str] = {}
    for place, value in fields(data):
        if isinstance(value, int):
            numbers[place] = value
        elif place == 6:
            properties |= _decode_property(value)
    return LedgerSummary(
        ledger_id=numbers[1],
        first_offset=int(properties.get("first_index", -1)),
        last_offset=int(properties.get("last_index", -1)),
        entries=numbers.get(2, 0),
        size=numbers.get(3, 0),
        max_timestamp=int(properties.get("max_timestamp", -1)),
        created_ms=numbers.get(4, 0),
        sealed="last_index" in properties,
    )


def _encode_properties(place: int, properties: Mapping[str, str]) -> bytes:
    return b"".join(
        message(place, message(1, key.encode()) + message(2, value.encode()))
        for key, value in properties.items()
    )


def _decode_property(data: object) -> dict[str, str]:
    pair = {place: bytes(value).decode() for place, value in fields(data) if not isinstance(value, int)}
    return {pair[1]: pair.get(2, "")}
