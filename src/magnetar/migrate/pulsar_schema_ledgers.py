"""A topic's schemas as Pulsar keeps them: a node that names the ledgers, and in each ledger one version.

SchemaLocator  1 IndexEntry (the newest), 2 repeated IndexEntry (all of them)
IndexEntry     1 version, 2 PositionInfo, 3 hash (SHA-256 of the definition)
PositionInfo   1 ledgerId, 2 entryId
SchemaEntry    2 schema_data, 5 repeated IndexEntry
schema_data    1 schema_id, 2 user, 3 type (one more than clients have it), 4 definition, 5 timestamp (ms),
               6 deleted, 7 repeated KeyValue (1 key, 2 value)
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

from magnetar.ledger.errors import LedgerCorrupt
from magnetar.ledger.formats.protobuf import fields, message, number, signed
from magnetar.pulsar.schemas import SchemaVersion
from magnetar.records.errors import CorruptBatch


class SchemaPlace(NamedTuple):
    """Where one version lies."""

    version: int
    ledger_id: int
    entry_id: int
    hash: bytes


def decode_locator(data: bytes, path: str) -> list[SchemaPlace]:
    """Return where a topic's versions lie, oldest first; raise ``LedgerCorrupt``."""
    try:
        found = {each.version: each for n, value in fields(data) if n in (1, 2) for each in [_place(value)]}
    except (CorruptBatch, KeyError, TypeError, IndexError) as error:
        raise LedgerCorrupt(f"{path} names no schemas: {error!r}") from None
    places = [found[version] for version in sorted(found)]
    if not places or [each.version for each in places] != list(range(len(places))):
        raise LedgerCorrupt(f"{path} names versions {sorted(found)} of a schema, and not all before them")
    return places


def encode_locator(places: Sequence[SchemaPlace]) -> bytes:
    """Return what `decode_locator` was given."""
    return message(1, _index(places[-1])) + _indexes(2, places)


def decode_schema(data: bytes, place: SchemaPlace) -> SchemaVersion:
    """Return the version that an entry of a schema's ledger holds; raise ``LedgerCorrupt``."""
    try:
        inner = dict(fields(dict(fields(data))[2]))
        properties = [dict(fields(value)) for n, value in fields(dict(fields(data))[2]) if n == 7]
        return SchemaVersion(
            place.version,
            _number(inner[3]) - 1,
            "",
            _bytes(inner[4]),
            {_bytes(each[1]).decode(): _bytes(each[2]).decode() for each in properties},
            signed(_number(inner[5])),
            _bytes(inner[2]).decode(),
            bool(inner[6]),
        )
    except (CorruptBatch, KeyError, TypeError, IndexError, UnicodeDecodeError) as error:
        raise LedgerCorrupt(f"ledger {place.ledger_id} holds no schema: {error!r}") from None


def encode_schema(schema_id: str, schema: SchemaVersion, places: Sequence[SchemaPlace]) -> bytes:
    """Return the entry of a schema's ledger; ``places`` are those of the versions before it."""
    data = (
        message(1, schema_id.encode())
        + message(2, schema.user.encode())
        + number(3, schema.type + 1)
        + message(4, schema.data)
        + number(5, schema.timestamp_ms)
        + number(6, int(schema.deleted))
        + b"".join(
            message(7, message(1, key.encode()) + message(2, value.encode()))
            for key, value in schema.properties.items()
        )
    )
    return message(2, data) + _indexes(5, places)


def hash_of(schema: SchemaVersion) -> bytes:
    """Return what Pulsar knows a definition by."""
    return sha256(schema.data).digest()


def _place(data: int | bytes) -> SchemaPlace:
    entry = dict(fields(data))
    position = dict(fields(entry[2]))
    ledger_id, entry_id = signed(_number(position[1])), signed(_number(position[2]))
    return SchemaPlace(signed(_number(entry[1])), ledger_id, entry_id, _bytes(entry[3]))


def _index(place: SchemaPlace) -> bytes:
    position = number(1, place.ledger_id) + number(2, place.entry_id)
    return number(1, place.version) + message(2, position) + message(3, place.hash)


def _indexes(field: int, places: Sequence[SchemaPlace]) -> bytes:
    return b"".join(message(field, _index(each)) for each in places)


def _number(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise TypeError("a text stands where a number is due")
    return value


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise TypeError("a number stands where a text is due")
    return value
