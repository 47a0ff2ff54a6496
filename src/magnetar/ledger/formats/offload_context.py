"""OffloadContext: what Pulsar's metadata says of a ledger that goes to tiered storage, or is there.

    OffloadContext         1 uidMsb, 2 uidLsb, 3 complete, 4 bookkeeperDeleted, 5 timestamp, 6 driverMetadata
    OffloadDriverMetadata  1 name, 2 repeated KeyValue (properties)

It is written once before anything is uploaded, so that whatever a crash leaves there has a name here, once with
``complete`` when data and index are there, and once more with ``bookkeeperDeleted`` before the local copy goes.
"""

from __future__ import annotations

import uuid

from magnetar.ledger.formats.protobuf import fields, message, number, signed
from magnetar.ledger.values import Offload

_HALF = (1 << 64) - 1


def encode_offload(offload: Offload) -> bytes:
    """Return Pulsar's bytes for ``offload``."""
    head = b""
    if offload.uuid:
        whole = uuid.UUID(offload.uuid).int
        head = number(1, signed(whole >> 64)) + number(2, signed(whole & _HALF))
    driver = b""
    if offload.driver:
        pairs = (
            message(1, key.encode()) + message(2, value.encode()) for key, value in offload.place.items()
        )
        driver = message(
            6, message(1, offload.driver.encode()) + b"".join(message(2, pair) for pair in pairs)
        )
    flags = number(3, int(offload.complete)) + number(4, int(offload.deleted))
    time = number(5, offload.timestamp_ms) if offload.timestamp_ms else b""
    return head + flags + time + driver + offload.unknown


def decode_offload(data: object) -> Offload:
    """Return what ``encode_offload`` was given; raise ``CorruptBatch``, ``TypeError`` or ``ValueError``."""
    numbers: dict[int, int] = {}
    driver, place, unknown = "", dict[str, str](), b""
    for field, value in fields(data):
        if isinstance(value, int):
            if field <= 5:
                numbers[field] = value
            else:
                unknown += number(field, value)
        elif field == 6:
            driver, place = _decode_driver(value)
        else:
            unknown += message(field, value)
    named = ""
    if 1 in numbers and 2 in numbers:
        named = str(uuid.UUID(int=(numbers[1] & _HALF) << 64 | numbers[2] & _HALF))
    return Offload(
        named, driver, place, numbers.get(3) == 1, numbers.get(4) == 1, signed(numbers.get(5, 0)), unknown
    )


def _decode_driver(data: bytes) -> tuple[str, dict[str, str]]:
    name, place = "", {}
    for field, value in fields(data):
        if field == 1 and not isinstance(value, int):
            name = value.decode()
        elif field == 2:
            pair = {each: bytes(text).decode() for each, text in fields(value) if not isinstance(text, int)}
            place[pair[1]] = pair.get(2, "")
    return name, place
