"""Bytes of records as people read them: by the schema they were written with, or as JSON, text, or hexadecimal digits.

Nothing is hidden: bytes that a schema does not fit are shown as what they look like, with what is wrong. Schemas and
records are clients' own: what a few bytes may ask for is bounded, and all of it is done in a thread.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from magnetar.admin.payloads.decoding import reader_of
from magnetar.admin.payloads.pulsar import PulsarPayload
from magnetar.console.message_pack import unpacked
from magnetar.schema_registry.framing import Undecodable, reason_of, unframe
from magnetar.schema_registry.topic_schemas import TopicSchema

MOST_LETTERS = 4000
"""Of a key, a value or a header on a page of many records."""
MOST_LETTERS_ALONE = 1_000_000
"""On the page of one."""
_MOST_BYTES = 1 << 20
"""Larger values are not taken apart, but shown as they begin."""
_MOST_READERS = 64
"""Of schemas that were read last, for the registry's and for topics' each; those that cannot be used among them."""
_FORMATS = {
    "avro": "avro",
    "json": "json",
    "protobufnative": "protobuf",
    "string": "text",
    **dict.fromkeys(("bool", "boolean", "int8", "int16", "int32", "int64", "float", "double"), "number"),
    **dict.fromkeys(
        ("date", "time", "timestamp", "instant", "localdate", "localtime", "localdatetime"), "time"
    ),
}
"""The formats of Pulsar schemas, by their kinds in small letters; others are shown as what they look like."""


class ShownBytes(NamedTuple):
    """Bytes as they are shown."""

    format: str
    """null, avro, json, messagepack, protobuf, text, number, time, hex."""
    text: str
    size: int
    cut: bool = False
    """Whether there is more than is shown."""
    schema: str = ""
    """The schema that it was read by."""
    problem: str = ""
    """Why it could not be read by that."""


class RegistrySchema(NamedTuple):
    """A schema of the registry: what it is called on a page, its kind, its text, and those that it refers to."""

    name: str
    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


Read = Callable[[bytes], Any]


def shown(
    data: bytes | None,
    schemas: Mapping[int, RegistrySchema],
    of_topic: TopicSchema | None = None,
    *,
    part: str = "value",
    wanted: str = "",
    most: int = MOST_LETTERS,
) -> ShownBytes:
    """Return bytes as people read them.

    ``schemas`` are those of the registry, by id; ``of_topic`` the one that a Pulsar producer named; ``part`` is key or
    value; ``wanted`` is a format (text, hex) for those who want no other.
    """
    if data is None:
        return ShownBytes("null", "null", 0)
    problem = schema = ""
    if wanted not in ("text", "hex") and len(data) <= _MOST_BYTES:
        for name, kind, read in _ways(data, schemas, of_topic, part):
            schema = name
            try:
                return _cut(kind, _as_text(kind, read(data)), len(data), most, name)
            except Undecodable as error:
                problem = str(error)
            except Exception as error:  # readers of foreign formats raise whatever the bytes lead to
                problem = f"it is not what schema {name} says: {reason_of(error)}"
        found = _json(data)
        if found is not None:
            return _cut("json", found, len(data), most, schema, problem)
        if (packed := unpacked(data)) is not None:
            return _cut("messagepack", _as_text("json", packed), len(data), most, schema, problem)
    if wanted != "hex":
        try:
            text = data[: most * 4].decode("utf-8")
            if len(data) <= most * 4 and _is_text(text):
                return _cut("text", text, len(data), most, schema, problem)
        except UnicodeDecodeError:
            text = data[: most * 4].decode("utf-8", "backslashreplace")
        if wanted == "text" or (len(data) > most * 4 and _is_text(text)):
            return _cut("text", text, len(data), most, schema, problem)._replace(
                cut=len(text) > most or len(data) > most * 4
            )
    return ShownBytes("hex", _hex(data[: most // 4]), len(data), len(data) > most // 4, schema, problem)


def value_of(
    data: bytes | None, schemas: Mapping[int, RegistrySchema], of_topic: TopicSchema | None = None
) -> Any:
    """Return a value as JSON has it: by its schema, or as JSON or MessagePack; None for what is neither."""
    if data is None or len(data) > _MOST_BYTES:
        return None
    for _, _, read in _ways(data, schemas, of_topic, "value"):
        try:
            return read(data)
        except Exception:  # readers of foreign formats raise whatever the bytes lead to
            continue
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return unpacked(data)


def schema_id(data: bytes | None) -> int | None:
    """Return the id of the registry that bytes may begin with."""
    try:
        return None if data is None else unframe(data).schema_id
    except Undecodable:
        return None


def _cut(kind: str, text: str, size: int, most: int, schema: str = "", problem: str = "") -> ShownBytes:
    return ShownBytes(kind, text[:most], size, len(text) > most, schema, problem)


def _ways(
    data: bytes, schemas: Mapping[int, RegistrySchema], of_topic: TopicSchema | None, part: str
) -> list[tuple[str, str, Read]]:
    """Return each schema that may be meant: its name, the format that it gives, and what reads it."""
    ways: list[tuple[str, str, Read]] = []
    number = schema_id(data)
    if number is not None and number in schemas:
        written = schemas[number]
        ways.append((written.name, written.kind.lower(), lambda found: _of_registry(written, found)))
    if of_topic is not None and (told := _of_topic(of_topic, part)) is not None:
        ways.append((f"{told[0]} of the topic", told[1], lambda found: _of_pulsar(of_topic, part, found)))
    return ways


def _of_topic(schema: TopicSchema, part: str) -> tuple[str, str] | None:
    """Return the kind of a topic's schema for a key or a value, and its format; None where it says nothing."""
    kind = schema.kind
    if kind == "KeyValue":
        if schema.properties.get("kv.encoding.type", "INLINE") != "SEPARATED":
            return (kind, "json") if part == "value" else None
        kind = schema.properties.get(f"{part}.schema.type", "").title().replace("_", "")
    elif part == "key":
        return None
    found = _FORMATS.get(kind.lower())
    return None if found is None else (kind, found)


def _of_registry(written: RegistrySchema, data: bytes) -> Any:
    return _registry_reader(written.kind, written.text, written.references)(unframe(data).data)[1]


def _of_pulsar(schema: TopicSchema, part: str, data: bytes) -> Any:
    properties = tuple(sorted(schema.properties.items()))
    payload = _pulsar_payload(schema.kind, schema.definition, properties)
    if isinstance(payload, str):
        raise Undecodable(payload)
    return payload.key(memoryview(data)) if part == "key" else payload.value(memoryview(data))


@lru_cache(_MOST_READERS)
def _registry_reader(
    kind: str, text: str, references: tuple[tuple[str, str], ...]
) -> Callable[[memoryview], tuple[str, Any]]:
    try:
        return reader_of(kind, text, references)
    except ValueError as error:
        reason = reason_of(error)

    def read(data: memoryview) -> tuple[str, Any]:
        raise Undecodable(reason)

    return read


@lru_cache(_MOST_READERS)
def _pulsar_payload(
    kind: str, definition: bytes, properties: tuple[tuple[str, str], ...]
) -> PulsarPayload | str:
    """Return what reads by a topic's schema, or why nothing does."""
    try:
        return PulsarPayload(kind, definition, dict(properties))
    except ValueError as error:
        return reason_of(error)


def _as_text(form: str, value: Any) -> str:
    """Return a value laid out for people: texts and times as they are, what else there is as JSON."""
    if isinstance(value, str) and form in ("text", "time"):
        return value
    return json.dumps(value, indent=1, ensure_ascii=False)


def _json(data: bytes) -> str | None:
    """Return JSON laid out for people; None for what is none, or a bare word that may be text."""
    if data[:1] not in (b"{", b"["):
        return None
    try:
        return json.dumps(json.loads(data), indent=1, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def _is_text(text: str) -> bool:
    """Return True for letters with few control characters and no zero byte: UTF-8 that is meant as text."""
    some = text[:1000]
    controls = sum(letter < " " and letter not in "\n\r\t" for letter in some)
    return "\0" not in some and 4 * controls <= len(some)


def _hex(data: bytes) -> str:
    """Return bytes as ``hexdump -C`` shows them."""
    lines = []
    for at in range(0, len(data), 16):
        some = data[at : at + 16]
        letters = "".join(chr(each) if 0x20 <= each < 0x7F else "." for each in some)
        lines.append(f"{at:08x}  {some.hex(' '):<47}  {letters}")
    return "\n".join(lines)
