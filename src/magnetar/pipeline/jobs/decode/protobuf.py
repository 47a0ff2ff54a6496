"""Protobuf by Google's library: ``.proto`` files compiled by the protoc of grpcio-tools, messages as Arrow columns.

    double, float, int32, int64 ...      the same; uint32 as long, uint64 as decimal(20, 0)
    string, bytes, bool                  the same
    enum                                 string: its name, or its number where the schema has no name for it
    message, repeated, map               struct, array, map
    google.protobuf.Timestamp            timestamp
    google.protobuf.*Value (wrappers)    the value, or null
    google.protobuf.Duration             string: seconds, as in 1.500s
    other messages of google.protobuf    string: JSON
    confluent.type.Decimal               decimal where the schema says of which size, else string: its digits
    messages that hold themselves        string: JSON
    messages without fields              struct<_present: boolean>

A field without presence that is not on the wire has its default, as everywhere in proto3; one with presence
(``optional``, messages, ``oneof``) is null.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.message import DecodeError

from magnetar.pipeline.jobs.decode.fields import TEXT, Facts, FieldFacts, distinct, record_type
from magnetar.pipeline.jobs.decode.registry import RegisteredSchema
from magnetar.pipeline.jobs.decode.reserved import RESERVED
from magnetar.pipeline.jobs.decode.text import decimal_of
from magnetar.pipeline.tables.schema import PRESENT
from magnetar.schema_registry.framing import Undecodable, reason_of
from magnetar.schema_registry.kinds.protobuf_kind import of_base64
from magnetar.schema_registry.kinds.protobuf_text import as_text
from magnetar.schema_registry.kinds.protoc import compile_texts

_F = FieldDescriptor
_TYPES = {
    _F.CPPTYPE_INT32: pa.int32(), _F.CPPTYPE_INT64: pa.int64(), _F.CPPTYPE_UINT32: pa.int64(),
    _F.CPPTYPE_UINT64: pa.decimal128(20, 0), _F.CPPTYPE_DOUBLE: pa.float64(), _F.CPPTYPE_FLOAT: pa.float32(),
    _F.CPPTYPE_BOOL: pa.bool_(), _F.CPPTYPE_ENUM: TEXT, _F.CPPTYPE_STRING: TEXT,
}  # fmt: skip
_WRAPPERS = {f"google.protobuf.{name}Value" for name in (
    "Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")}  # fmt: skip
_TEXTS = ("google.protobuf.Duration", "google.protobuf.FieldMask")
_INSTANT = pa.timestamp("us", tz="UTC")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

Convert = Callable[[Any], Any]


def of_registry(schema: RegisteredSchema) -> ProtobufDecoder:
    """Return a registered schema with all that it imports."""
    main = f"schema-{schema.schema_id}.proto"
    try:
        return ProtobufDecoder(compile_texts({**dict(_sources(schema)), main: _text(schema)}), main)
    except ValueError as error:
        raise ValueError(f"schema {schema.schema_id}: {error}") from None


def of_file(path: Path) -> ProtobufDecoder:
    """Return the schema of a ``.proto`` file, whose imports lie beside it, or of a ``.desc``, protoc's own output."""
    if path.suffix == ".desc":
        content = descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes())
        return ProtobufDecoder(content, content.file[-1].name)
    beside = {str(each.relative_to(path.parent)): each.read_text() for each in path.parent.rglob("*.proto")}
    wanted = {path.name: beside.pop(path.name)}
    while imported := [
        name for name in beside if any(f'"{name}"' in text for text in wanted.values()) and name not in wanted
    ]:
        wanted |= {name: beside[name] for name in imported}
    return ProtobufDecoder(compile_texts(wanted), path.name)


def _text(schema: RegisteredSchema) -> str:
    """Return a schema as text: some registries keep the descriptors, in base64, that Python's serializer registers."""
    file = of_base64(schema.text)
    return schema.text if file is None else as_text(file)


def _sources(schema: RegisteredSchema) -> Iterator[tuple[str, str]]:
    for name, each in schema.references:
        yield name, _text(each)
        yield from _sources(each)


class ProtobufDecoder:
    """One file of messages."""

    def __init__(self, files: descriptor_pb2.FileDescriptorSet, main: str) -> None:
        pool = descriptor_pool.DescriptorPool()
        for each in files.file:
            pool.Add(each)
        self._file: FileDescriptor = pool.FindFileByName(main)
        self._messages: dict[tuple[int, ...], ProtobufMessage] = {}
        self._pool = pool

    def message(self, indexes: tuple[int, ...] = (0,)) -> ProtobufMessage:
        """Return a message by its place in the file, as the wire format has it; raise `Undecodable`."""
        if indexes not in self._messages:
            self._messages[indexes] = ProtobufMessage(self._at(indexes))
        return self._messages[indexes]

    def named(self, name: str) -> ProtobufMessage:
        """Return a message by its full name, or the first one of the file; raise ``ValueError``."""
        if not name:
            return self.message()
        try:
            return ProtobufMessage(self._pool.FindMessageTypeByName(name))
        except KeyError:
            known = ", ".join(each.full_name for each in self._file.message_types_by_name.values())
            raise ValueError(f"there is no message {name!r}; there are: {known}") from None

    def _at(self, indexes: tuple[int, ...]) -> Descriptor:
        known = list(self._file.message_types_by_name.values())
        found: Descriptor | None = None
        for index in indexes:
            if not 0 <= index < len(known):
                raise Undecodable(f"its message indexes {list(indexes)} lead to no message of its schema")
            found = known[index]
            known = list(found.nested_types)
        assert found is not None
        return found


class ProtobufMessage:
    """One kind of message: its Arrow type, and how its bytes are read."""

    def __init__(self, descriptor: Descriptor) -> None:
        self.name = descriptor.full_name
        self._class = message_factory.GetMessageClass(descriptor)
        self.type, self._convert, self.facts = _message(descriptor, (), RESERVED)

    def read(self, data: memoryview) -> dict[str, Any]:
        """Return one record; raise `Undecodable`."""
        try:
            return self._convert(self._class.FromString(bytes(data)))  # type: ignore[no-any-return]
        except (DecodeError, UnicodeDecodeError) as error:
            raise Undecodable(f"it is not a {self.name}: {reason_of(error)}") from None
        except (
            Exception
        ) as error:  # an Any of a type that the schema lacks, a Timestamp that no calendar has, ...
            raise Undecodable(f"it is a {self.name} that cannot be converted: {reason_of(error)}") from None


def _message(
    descriptor: Descriptor, inside: tuple[str, ...], reserved: tuple[str, ...] = ()
) -> tuple[Any, Convert, Facts]:
    inside = (*inside, descriptor.full_name)
    fields = list(descriptor.fields)
    columns = distinct((each.name for each in fields), reserved)
    types, converts, facts = [], [], {}
    for column, each in zip(columns, fields, strict=True):
        kind, convert, within = _field(each, inside)
        types.append(kind)
        converts.append((column, each.name, convert, _may_be_absent(each)))
        facts[column] = FieldFacts(inside=within)

    def convert_message(message: Any) -> dict[str, Any]:
        return {
            column: None if absent and not message.HasField(name) else each(getattr(message, name))
            for column, name, each, absent in converts
        }

    return record_type(columns, types), convert_message if fields else _nothing, facts


def _nothing(_: Any) -> dict[str, Any]:
    return {PRESENT: True}


def _may_be_absent(field: FieldDescriptor) -> bool:
    return bool(field.has_presence)


def _field(field: FieldDescriptor, inside: tuple[str, ...]) -> tuple[Any, Convert, Facts]:
    if not field.is_repeated:
        return _single(field, inside)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key_kind, key, _ = _single(field.message_type.fields_by_name["key"], inside)
        item_kind, item, facts = _single(field.message_type.fields_by_name["value"], inside)
        return pa.map_(key_kind, item_kind), lambda found: [(key(k), item(found[k])) for k in found], facts
    kind, convert, facts = _single(field, inside)
    return pa.list_(kind), lambda found: [convert(each) for each in found], facts


def _single(field: FieldDescriptor, inside: tuple[str, ...]) -> tuple[Any, Convert, Facts]:
    if field.type == _F.TYPE_BYTES:
        return pa.binary(), bytes, {}
    if field.enum_type is not None:
        names = {number: each.name for number, each in field.enum_type.values_by_number.items()}
        return TEXT, lambda number: names.get(number, str(number)), {}
    if field.message_type is None:
        return _TYPES[field.cpp_type], _same, {}
    name = field.message_type.full_name
    if name == "google.protobuf.Timestamp":
        return _INSTANT, _instant, {}
    if name in _WRAPPERS:
        kind, convert, _ = _single(field.message_type.fields_by_name["value"], inside)
        return kind, lambda message: convert(message.value), {}
    if name == "confluent.type.Decimal":
        kind = _decimal_type(field)
        return kind, _decimal if pa.types.is_decimal(kind) else lambda message: f"{_decimal(message):f}", {}
    if name in inside or name.startswith("google.protobuf."):
        return TEXT, _as_json, {}
    return _message(field.message_type, inside)


def _decimal_type(field: FieldDescriptor) -> pa.DataType:
    """Return the type of Confluent's Decimal: its size stands beside the field, or with each value alone."""
    pool = field.file.pool
    try:
        extension = pool.FindExtensionByName("confluent.field_meta")
        options = message_factory.GetMessageClass(extension.containing_type)
        params = options.FromString(field.GetOptions().SerializeToString()).Extensions[extension].params
        return pa.decimal128(int(params["precision"]), int(params["scale"]))
    except (KeyError, ValueError):
        return TEXT


def _decimal(message: Any) -> Decimal:
    return decimal_of(message.value, message.scale)


def _same(value: Any) -> Any:
    return value


def _instant(stamp: Any) -> datetime.datetime:
    # Nanoseconds are cut, not rounded: a moment must not move into the next second.
    return _EPOCH + datetime.timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1000)


def _as_json(message: Any) -> str:
    if message.DESCRIPTOR.full_name in _TEXTS:  # as JSON it would be a string, quotes and all
        return str(message.ToJsonString())
    pool = message.DESCRIPTOR.file.pool  # where an Any of a type of the schema is found
    return str(
        json_format.MessageToJson(
            message, preserving_proto_field_name=True, indent=None, descriptor_pool=pool
        )
    )
