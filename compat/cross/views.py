"""What each half should see of what the other wrote, by the table of docs/entry-formats.md: written down a second time
here, so that a fault in the broker's own conversion cannot agree with itself."""

from __future__ import annotations

import base64
import hashlib
import struct

from cross.records import Record, b64

SHOWN = 1024
"""Values above this many bytes are reported as their SHA-256."""
ANY_TIME = -1
"""The event time of a message that has none is, for Kafka, when it was published."""


def shown(value: str | None) -> str | None:
    """A value as the readers report it."""
    if value is None:
        return None
    data = base64.b64decode(value)
    return value if len(data) <= SHOWN else f"sha256:{hashlib.sha256(data).hexdigest()}"


def kafka_of_kafka(record: Record) -> Record:
    """A Kafka record for Kafka's clients: itself."""
    return {**record, "value": shown(record["value"])}


def pulsar_of_kafka(record: Record) -> Record:
    """A Kafka record for Pulsar's clients."""
    key = None if record["key"] is None else base64.b64decode(record["key"])
    text, in_base64 = _text(key)
    pairs = [(name, None if value is None else base64.b64decode(value)) for name, value in record["headers"]]
    properties = {
        name: value.decode() for name, value in dict(pairs).items() if value is not None and _is_text(value)
    }
    if len(properties) != len(pairs):
        properties["__kafka.headers"] = base64.b64encode(_packed(pairs)).decode()
    if record["time"] <= 0:
        properties["__kafka.timestamp"] = str(record["time"])
    return {
        "key": text,
        "key_in_base64": in_base64,
        "ordering_key": record["key"],
        "value": shown(record["value"]),
        "properties": properties,
        "time": max(record["time"], 0),
    }


def kafka_of_pulsar(message: Record) -> Record:
    """A Pulsar message for Kafka's clients."""
    key = message.get("ordering_key") or message.get("key_bytes")
    if key is None and message.get("key") is not None:
        key = b64(message["key"].encode())
    return {
        "key": key,
        "value": shown(message["value"]),
        "headers": sorted([name, b64(text.encode())] for name, text in message["properties"].items()),
        "time": message["time"] or ANY_TIME,
    }


def pulsar_of_pulsar(message: Record) -> Record:
    """A Pulsar message for Pulsar's clients: itself."""
    return {
        "key": message.get("key_bytes") or message.get("key"),
        "key_in_base64": "key_bytes" in message,
        "ordering_key": message.get("ordering_key"),
        "value": shown(message["value"]),
        "properties": message["properties"],
        "time": message["time"],
    }


def _text(key: bytes | None) -> tuple[str | None, bool]:
    if key is None:
        return None, False
    return (key.decode(), False) if _is_text(key) else (base64.b64encode(key).decode(), True)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _packed(pairs: list[tuple[str, bytes | None]]) -> bytes:
    """Headers as a Kafka record holds them: zigzag varints before their count, each name and each value."""
    parts = [_zigzag(len(pairs))]
    for name, value in pairs:
        parts += [_zigzag(len(name.encode())), name.encode()]
        parts += [_zigzag(-1)] if value is None else [_zigzag(len(value)), value]
    return b"".join(parts)


def _zigzag(number: int) -> bytes:
    number = number << 1 if number >= 0 else (-number << 1) - 1
    out = b""
    while number > 0x7F:
        out += struct.pack("B", number & 0x7F | 0x80)
        number >>= 7
    return out + struct.pack("B", number)


def differences(got: list[Record], wanted: list[Record], cannot_tell: frozenset[str] = frozenset()) -> str:
    """The first difference in words; empty when there is none.

    ``cannot_tell`` are fields that this client does not show. Whoever cannot tell "no key" shows a missing key as an
    empty one.
    """
    if len(got) != len(wanted):
        return f"{len(got)} records, expected {len(wanted)}"
    for number, (one, other) in enumerate(zip(got, wanted, strict=True)):
        for field in other.keys() - cannot_tell:
            value, expected = one.get(field), other[field]
            if "no key" in cannot_tell and field in ("key", "ordering_key"):
                value, expected = value or None, expected or None
            if "binary ordering key" in cannot_tell and value == "not text":
                value = expected if expected and not _is_text(base64.b64decode(expected)) else value
            if value != expected and (field, expected) != ("time", ANY_TIME):
                return f"record {number}, {field}: {str(value)[:120]}, expected {str(expected)[:120]}"
    return ""
