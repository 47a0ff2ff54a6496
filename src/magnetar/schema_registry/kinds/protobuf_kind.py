"""Protobuf: text goes through protoc, descriptors in base64 (as Confluent's Python clients send them) do not.

The text that is kept is printed from the descriptor, so a schema has one spelling whoever registered it. Names and
order of fields do not count for compatibility, as on the wire; numbers and types do.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message import DecodeError

from magnetar.schema_registry.errors import InvalidSchema
from magnetar.schema_registry.kinds.protobuf_text import as_text
from magnetar.schema_registry.kinds.protoc import ProtocFailed, compile_texts

_F = descriptor_pb2.FieldDescriptorProto
_MAIN = "schema.proto"
_GROUPS = (
    {_F.TYPE_INT32, _F.TYPE_INT64, _F.TYPE_UINT32, _F.TYPE_UINT64, _F.TYPE_BOOL},
    {_F.TYPE_SINT32, _F.TYPE_SINT64},
    {_F.TYPE_STRING, _F.TYPE_BYTES},
    {_F.TYPE_FIXED32, _F.TYPE_SFIXED32},
    {_F.TYPE_FIXED64, _F.TYPE_SFIXED64},
)
"""Types that read each other's bytes."""


class ProtobufSchema:
    """One file of messages."""

    def __init__(self, file: descriptor_pb2.FileDescriptorProto) -> None:
        self.file = file
        self.text = as_text(file)

    def reads(self, writer: Any) -> list[str]:
        """Say why messages of ``writer`` cannot be read as these."""
        return list(_package_clashes(self.file, writer.file))


def parse(text: str, references: Mapping[str, str]) -> ProtobufSchema:
    """Understand a schema; raise `InvalidSchema`. Runs protoc for a text: up to a second."""
    file = of_base64(text)
    if file is None:
        file = _compiled(text, references)
    elif not references:
        _check(file)
    file.ClearField("source_code_info")
    file.ClearField("name")
    return ProtobufSchema(file)


def serialized(text: str, references: Mapping[str, str]) -> str:
    """Give a schema's descriptor in base64, which clients ask for as ``format=serialized``."""
    file = of_base64(text) or _compiled(text, references)
    file.ClearField("source_code_info")
    return base64.b64encode(file.SerializeToString()).decode()


def of_base64(text: str) -> descriptor_pb2.FileDescriptorProto | None:
    """Give the descriptor behind base64, or None if it is something else."""
    try:
        content = base64.b64decode(text, validate=True)
        file = descriptor_pb2.FileDescriptorProto.FromString(content)
    except (binascii.Error, ValueError, DecodeError):
        return None
    return file if file.message_type or file.enum_type or file.dependency else None


def _check(file: descriptor_pb2.FileDescriptorProto) -> None:
    """See that a descriptor holds together; what it imports of Google's own is at hand."""
    pool = descriptor_pool.DescriptorPool()
    try:
        for name in file.dependency:
            _add_well_known(pool, name)
        named = descriptor_pb2.FileDescriptorProto()
        named.CopyFrom(file)
        named.name = named.name or _MAIN
        pool.Add(named)
        pool.FindFileByName(named.name)
    except (TypeError, KeyError) as error:
        raise InvalidSchema(f"Invalid schema of type PROTOBUF: {error}") from None


def _add_well_known(pool: descriptor_pool.DescriptorPool, name: str) -> None:
    import importlib

    if not name.startswith("google/protobuf/"):
        raise InvalidSchema(f"Invalid schema of type PROTOBUF: it imports {name} without a reference to it")
    module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    file = descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    for each in file.dependency:
        _add_well_known(pool, each)
    pool.Add(file)


def _compiled(text: str, references: Mapping[str, str]) -> descriptor_pb2.FileDescriptorProto:
    try:
        files = compile_texts({**references, _MAIN: text}, _MAIN).file
    except ProtocFailed as error:
        raise InvalidSchema(f"Invalid schema of type PROTOBUF: {error}") from None
    return next(each for each in files if each.name == _MAIN)


# --- what reads what -------------------------------------------------------------------------------------------


def _package_clashes(
    reader: descriptor_pb2.FileDescriptorProto, writer: descriptor_pb2.FileDescriptorProto
) -> Iterator[str]:
    if reader.package != writer.package:
        yield f"the package is {reader.package!r}, before it was {writer.package!r}"
    yield from _messages(reader.message_type, writer.message_type, "")


def _messages(reader: Any, writer: Any, path: str) -> Iterator[str]:
    mine = {each.name: each for each in reader}
    for old in writer:
        if old.options.map_entry:
            continue
        at = f"{path}/{old.name}"
        if old.name not in mine:
            yield f"{at}: the message was removed"
            continue
        yield from _fields(mine[old.name], old, at)
        yield from _messages(mine[old.name].nested_type, old.nested_type, at)


def _fields(reader: Any, writer: Any, path: str) -> Iterator[str]:
    mine = {each.number: each for each in reader.field}
    theirs = {each.number: each for each in writer.field}
    for number, old in theirs.items():
        new = mine.get(number)
        at = f"{path}/{number}"
        if new is None:
            if _oneof(writer, old) is not None and _oneof(writer, old) in {
                _oneof(reader, f) for f in reader.field
            }:
                yield f"{at}: {old.name} was removed from its oneof"
            elif old.label == _F.LABEL_REQUIRED:
                yield f"{at}: {old.name}, a required field, was removed"
            continue
        yield from _types(reader, new, writer, old, at)
    for number, new in mine.items():
        if number not in theirs and new.label == _F.LABEL_REQUIRED:
            yield f"{path}/{number}: {new.name}, a required field, was added"
    moved: dict[str, list[str]] = {}
    for number, new in mine.items():
        name = _oneof(reader, new)
        if name is not None and number in theirs and _oneof(writer, theirs[number]) is None:
            moved.setdefault(name, []).append(new.name)
    for name, fields in moved.items():
        if len(fields) > 1 or any(_oneof(writer, f) == name for f in writer.field):
            yield f"{path}: {', '.join(fields)} moved into oneof {name}"


def _types(reader: Any, new: Any, writer: Any, old: Any, at: str) -> Iterator[str]:
    if new.type != old.type and not any({new.type, old.type} <= group for group in _GROUPS):
        yield f"{at}: {new.name} is {_F.Type.Name(new.type)}, it was {_F.Type.Name(old.type)}"
    elif new.type in (_F.TYPE_MESSAGE, _F.TYPE_ENUM, _F.TYPE_GROUP) and new.type_name != old.type_name:
        entries = _entry(reader, new), _entry(writer, old)
        if None in entries:
            yield f"{at}: {new.name} is {new.type_name.lstrip('.')}, it was {old.type_name.lstrip('.')}"
    repeated = new.label == _F.LABEL_REPEATED, old.label == _F.LABEL_REPEATED
    if repeated[0] != repeated[1] and new.type not in (_F.TYPE_STRING, _F.TYPE_BYTES):
        yield f"{at}: {new.name} is {'repeated' if repeated[0] else 'not repeated any more'}"
    entry, was = _entry(reader, new), _entry(writer, old)
    if entry is not None and was is not None:
        yield from _fields(entry, was, at)


def _entry(message: Any, field: Any) -> Any:
    """Give the hidden message of a map field, or None."""
    name = field.type_name.rpartition(".")[2]
    return next((each for each in message.nested_type if each.name == name and each.options.map_entry), None)


def _oneof(message: Any, field: Any) -> str | None:
    if not field.HasField("oneof_index") or field.proto3_optional:
        return None
    return str(message.oneof_decl[field.oneof_index].name)
