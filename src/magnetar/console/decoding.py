"""Bytes of records as people read them: by the schema they were written with, or as JSON, text, or hexadecimal digits.

Nothing is hidden: bytes that a schema does not fit are shown as what they look like, with what is wrong. Schemas and
records are clients' own: what a few bytes may ask for is bounded, and all of it is done in a thread.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from fastavro import parse_schema, schemaless_reader
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import Descriptor

from magnetar.schema_registry.avro_bounds import AvroBounds
from magnetar.schema_registry.framing import Undecodable, message_indexes, reason_of, unframe
from magnetar.schema_registry.kinds.protobuf_kind import of_base64
from magnetar.schema_registry.kinds.protobuf_text import as_text
from magnetar.schema_registry.kinds.protoc import compile_texts
from magnetar.schema_registry.topic_schemas import TopicSchema

MOST_LETTERS = 4000
"""Of a key, a value or a header on a page of many records."""
MOST_LETTERS_ALONE = 1_000_000
"""On the page of one."""
_MOST_BYTES = 1 << 20
"""Larger values are not taken apart, but shown as they begin."""
_MAIN = "main.proto"
_NUMBERS = {
    "Int8": ">b",
    "Int16": ">h",
    "Int32": ">i",
    "Int64": ">q",
    "Float": ">f",
    "Double": ">d",
    "Bool": ">?",
    "Date": ">q",
    "Time": ">q",
    "Timestamp": ">q",
}
"""Pulsar's schemas of one number, big-endian; times in ms."""


class ShownBytes(NamedTuple):
    """Bytes as they are shown."""

    format: str
    """null, avro, json, protobuf, text, number, hex."""
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
                return _cut(kind, _as_json(read(data)), len(data), most, name)
            except Undecodable as error:
                problem = str(error)
            except Exception as error:  # readers of foreign formats raise whatever the bytes lead to
                problem = f"it is not what schema {name} says: {reason_of(error)}"
        found = _json(data)
        if found is not None:
            return _cut("json", found, len(data), most, schema, problem)
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
    if of_topic is not None:
        kind, definition = of_topic.kind, of_topic.definition
        if kind == "KeyValue":
            if of_topic.properties.get("kv.encoding.type", "INLINE") != "SEPARATED":
                if part == "value":
                    ways.append(("KeyValue of the topic", "json", lambda found: _inline(of_topic, found)))
                return ways
            kind, definition = _half(of_topic, part)
        elif part == "key":
            return ways
        if kind in _READABLE:
            ways.append(
                (f"{kind} of the topic", _READABLE[kind], lambda found: _of_pulsar(kind, definition, found))
            )
    return ways


_READABLE = {
    "Avro": "avro",
    "Json": "json",
    "ProtobufNative": "protobuf",
    "String": "text",
    **dict.fromkeys(_NUMBERS, "number"),
}


def _of_registry(written: RegistrySchema, data: bytes) -> Any:
    framed = unframe(data)
    if written.kind == "AVRO":
        return _avro(written.text, written.references)(bytes(framed.data))
    if written.kind == "JSON":
        return json.loads(bytes(framed.data))
    indexes, body = message_indexes(framed.data)
    return _protobuf(written.text, written.references)(indexes, bytes(body))


def _of_pulsar(kind: str, definition: bytes, data: bytes) -> Any:
    if kind == "Avro":
        return _avro(definition.decode(), ())(data)
    if kind == "Json":
        return json.loads(data)
    if kind == "String":
        return _Plain(data.decode())
    if kind == "ProtobufNative":
        return _native(definition)(data)
    return struct.unpack(_NUMBERS[kind], data)[0]


class _Plain(str):
    """ShownBytes that is shown as it is, not as JSON's."""


def _half(schema: TopicSchema, part: str) -> tuple[str, bytes]:
    """Return kind and definition of the key or the value of a KeyValue schema."""
    size = struct.unpack_from(">i", schema.definition)[0]
    halves = schema.definition[4 : 4 + size], schema.definition[8 + size :]
    kind = schema.properties.get(f"{part}.schema.type", "").title().replace("_", "")
    return kind, halves[part == "value"]


def _inline(schema: TopicSchema, data: bytes) -> Any:
    """Return key and value that lie in one value, each behind its size."""
    found, at = {}, 0
    for part in ("key", "value"):
        size = struct.unpack_from(">i", data, at)[0]
        piece = data[at + 4 : at + 4 + max(size, 0)]
        at += 4 + max(size, 0)
        kind, definition = _half(schema, part)
        read = _of_pulsar(kind, definition, piece) if kind in _READABLE else shown(piece, {}).text
        found[part] = None if size < 0 else read
    return found


@lru_cache(64)
def _avro(text: str, references: tuple[tuple[str, str], ...]) -> Read:
    known: dict[str, Any] = {}
    for _, each in references:
        parse_schema(json.loads(each), known)
    parsed = parse_schema(json.loads(text), known)
    bounds = AvroBounds(parsed, known)

    def read(data: bytes) -> Any:
        bounds.check(memoryview(data))
        source = io.BytesIO(data)
        found = schemaless_reader(source, parsed, None)
        if source.tell() != len(data):
            raise Undecodable(
                f"it is not Avro of its schema: {len(data) - source.tell()} bytes are left over"
            )
        return found

    return read


@lru_cache(64)
def _protobuf(text: str, references: tuple[tuple[str, str], ...]) -> Callable[[tuple[int, ...], bytes], Any]:
    texts = {name: _as_proto(each) for name, each in references} | {_MAIN: _as_proto(text)}
    files = compile_texts(texts, _MAIN)
    pool = descriptor_pool.DescriptorPool()
    for each in files.file:
        pool.Add(each)
    roots = list(pool.FindFileByName(_MAIN).message_types_by_name.values())

    def read(indexes: tuple[int, ...], data: bytes) -> Any:
        known, found = roots, None
        for index in indexes:
            if not 0 <= index < len(known):
                raise Undecodable(f"its message indexes {list(indexes)} lead to no message of its schema")
            found = known[index]
            known = list(found.nested_types)
        assert found is not None
        return _message(found, data)

    return read


def _as_proto(text: str) -> str:
    file = of_base64(text)
    return text if file is None else as_text(file)


@lru_cache(64)
def _native(definition: bytes) -> Read:
    """Return what reads messages with the schema ProtobufNative: its definition brings the descriptors along."""
    said = json.loads(definition)
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(said["fileDescriptorSet"]))
    except binascii.Error as error:
        raise Undecodable(f"its schema cannot be read: {error}") from None
    pool = descriptor_pool.DescriptorPool()
    for each in files.file:
        pool.Add(each)
    root = pool.FindMessageTypeByName(said["rootMessageTypeName"])
    return lambda data: _message(root, data)


def _message(descriptor: Descriptor, data: bytes) -> Any:
    found = message_factory.GetMessageClass(descriptor).FromString(data)
    return json_format.MessageToDict(found, preserving_proto_field_name=True)


def _as_json(value: Any) -> str:
    if isinstance(value, _Plain):
        return str(value)
    return json.dumps(value, indent=1, ensure_ascii=False, default=_foreign)


def _foreign(value: Any) -> Any:
    """Return what JSON can say of what it has no words for: bytes, decimals, times."""
    if isinstance(value, bytes | bytearray):
        return value.decode("utf-8", "backslashreplace")
    return str(value)


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
