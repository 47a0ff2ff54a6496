"""ManagedLedgerInfo: what the metadata store keeps of a managed ledger, in Pulsar's own protobuf.

    ManagedLedgerInfo  1 repeated LedgerInfo, 3 repeated KeyValue (properties)
    LedgerInfo         1 ledgerId, 2 entries, 3 size, 4 timestamp, 6 repeated KeyValue (properties)
    KeyValue           1 key, 2 value

Sealed ledgers carry the properties ``first_index``, ``last_index`` and ``max_timestamp``; one without
``last_index`` has to be recovered from its file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from magnetar.ledger.errors import LedgerCorrupt
from magnetar.ledger.port import LedgerSummary
from magnetar.records.errors import CorruptBatch
from magnetar.records.varint import decode_unsigned, encode_unsigned

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
    ledgers = b"".join(_message(1, _encode_ledger(ledger)) for ledger in info.ledgers)
    return ledgers + _encode_properties(3, info.properties)


def decode_info(data: bytes, *, name: str = "") -> ManagedLedgerInfo:
    """Give what ``encode_info`` was given; raise ``LedgerCorrupt`` for bytes that are no such message."""
    info = ManagedLedgerInfo()
    try:
        for number, value in _fields(data):
            if number == 1:
                info.ledgers.append(_decode_ledger(value))
            elif number == 3:
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
    return b"".join(_number(n, v) for n, v in numbers) + _encode_properties(6, properties)


def _decode_ledger(data: object) -> LedgerSummary:
    numbers: dict[int, int] = {}
    properties: dict[str, str] = {}
    for number, value in _fields(data):
        if isinstance(value, int):
            numbers[number] = value
        elif number == 6:
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


def _encode_properties(number: int, properties: Mapping[str, str]) -> bytes:
    return b"".join(
        _message(number, _message(1, key.encode()) + _message(2, value.encode()))
        for key, value in properties.items()
    )


def _decode_property(data: object) -> dict[str, str]:
    pair = {number: bytes(value).decode() for number, value in _fields(data) if not isinstance(value, int)}
    return {pair[1]: pair.get(2, "")}


def _number(number: int, value: int) -> bytes:
    return encode_unsigned(number << 3) + encode_unsigned(value)


def _message(number: int, body: bytes) -> bytes:
    return encode_unsigned(number << 3 | 2) + encode_unsigned(len(body)) + body


def _fields(data: object) -> Iterator[tuple[int, int | Sequence[int]]]:
    if not isinstance(data, bytes):
        raise TypeError("a message is due where a number stands")
    at = 0
    while at < len(data):
        key, at = decode_unsigned(data, at)
        value, at = decode_unsigned(data, at)
        if key & 7 == 2:
            if at + value > len(data):
                raise CorruptBatch("a field runs past its message")
            yield key >> 3, data[at : at + value]
            at += value
        elif key & 7 == 0:
            yield key >> 3, value
        else:
            raise CorruptBatch(f"unknown wire type {key & 7}")
