"""What holds of every descriptor that protoc makes, and need not of one that a client sends in base64."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FieldDescriptor

_F = descriptor_pb2.FieldDescriptorProto


class Misshapen(ValueError):
    """No text compiles to such a descriptor."""


def check_shape(file: descriptor_pb2.FileDescriptorProto) -> None:
    """Raise `Misshapen` unless groups, maps and oneofs are put as protoc puts them, and names are text."""
    _check_text(file)
    _check_groups(file.extension, file.message_type)
    waiting = list(file.message_type)
    if any(each.options.map_entry for each in waiting):
        raise Misshapen("an entry of a map lies outside of all messages")
    while waiting:
        message = waiting.pop()
        _check_groups(message.field, message.nested_type)
        _check_groups(message.extension, message.nested_type)
        for field in message.field:
            if field.HasField("oneof_index") and not 0 <= field.oneof_index < len(message.oneof_decl):
                raise Misshapen(f"{message.name}.{field.name} is in a oneof that is not there")
        if message.options.map_entry and [each.number for each in message.field] != [1, 2]:
            raise Misshapen(f"{message.name}, an entry of a map, has not just a key and a value")
        waiting += message.nested_type


def _check_text(file: Any) -> None:
    waiting = [file]
    while waiting:
        for field, value in waiting.pop().ListFields():
            values = value if field.is_repeated else [value]
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                waiting += values
            # What is no UTF-8 is given as bytes.
            elif field.type == FieldDescriptor.TYPE_STRING and not all(
                isinstance(each, str) for each in values
            ):
                raise Misshapen("a name or value in it is not text that UTF-8 has")


def _check_groups(fields: Any, beside: Any) -> None:
    names = {each.name for each in beside}
    for field in fields:
        if field.type == _F.TYPE_GROUP and field.type_name.rpartition(".")[2] not in names:
            raise Misshapen(f"{field.name} is a group, and its message does not lie beside it")
