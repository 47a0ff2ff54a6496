"""Records as lines of text: what ``produce`` reads and ``consume --json`` writes. Lines in, records out, and back.

A JSON line is an object with any of ``key``, ``value``, ``headers``, ``partition`` and ``timestamp`` (ms). Text is
UTF-8; bytes that are not are ``{"base64": "..."}``; null is null. ``headers`` is an object, or a list of
``{"key": ..., "value": ...}`` where names repeat. A value that is another JSON object or array is kept as JSON.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from magnetar.admin.errors import Invalid

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """One record to produce; ``partition`` and ``timestamp`` None leave the choice to the client."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """One record that was consumed."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: Headers


def parse_text(line: bytes, separator: bytes | None, null: bytes | None) -> OutgoingRecord:
    """Read one line (without its end): a value, or key, separator and value; ``null`` stands for no bytes at all."""
    key: bytes | None = None
    value: bytes | None = line
    if separator is not None:
        before, found, after = line.partition(separator)
        if not found:
            raise Invalid(
                f"a line without the key separator {separator!r}: {line[:60]!r}",
                "Choose another with --key-separator, or leave it away for values without keys.",
            )
        key, value = before, after
    if null is not None:
        key, value = (None if each == null else each for each in (key, value))
    return OutgoingRecord(value, key)


def parse_json(line: bytes) -> OutgoingRecord:
    """Read one JSON line; raise `Invalid` with what is wrong."""
    try:
        given = json.loads(line)
    except ValueError as error:
        raise Invalid(f"a line that is no JSON: {line[:60]!r} ({error})") from error
    if not isinstance(given, dict):
        raise Invalid(f"a line that is no JSON object: {line[:60]!r}", 'Write {"key": ..., "value": ...}.')
    return OutgoingRecord(
        value=_bytes(given.get("value")),
        key=_bytes(given.get("key")),
        headers=_headers(given.get("headers") or {}),
        partition=_number(given, "partition"),
        timestamp=_number(given, "timestamp"),
    )


def to_json(record: Seen) -> dict[str, Any]:
    """Return the JSON object of a record; `parse_json` reads it back."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": record.timestamp_type,
        "key": _said(record.key),
        "value": _said(record.value),
        "headers": [{"key": key, "value": _said(value)} for key, value in record.headers],
    }


def _said(data: bytes | None) -> object:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _bytes(value: object) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"}:
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise Invalid(f"not base64: {value['base64']!r}") from error
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _headers(value: object) -> Headers:
    if isinstance(value, dict):
        return tuple((key, _bytes(each)) for key, each in value.items())
    if isinstance(value, Sequence):
        try:
            return tuple((str(each["key"]), _bytes(each.get("value"))) for each in value)
        except (TypeError, KeyError, AttributeError):
            pass
    raise Invalid(
        f"not headers: {value!r}", 'Write {"name": "value"} or [{"key": "name", "value": "value"}].'
    )


def _number(given: dict[str, Any], name: str) -> int | None:
    value = given.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise Invalid(f"{name} is no whole number: {value!r}")
