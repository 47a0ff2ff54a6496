"""A Protobuf descriptor as the text of a ``.proto`` file, one spelling for one meaning. Custom options are left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pb2

_F = descriptor_pb2.FieldDescriptorProto
_LABELS = {_F.LABEL_REPEATED: "repeated ", _F.LABEL_REQUIRED: "required ", _F.LABEL_OPTIONAL: "optional "}
_FILE_OPTIONS = ("java_package", "java_outer_classname", "java_multiple_files", "go_package", "csharp_namespace",
                 "objc_class_prefix", "php_namespace", "ruby_package", "deprecated")  # fmt: skip


def as_text(file: descriptor_pb2.FileDescriptorProto) -> str:
    """Return the text; it compiles to the same descriptor, but for comments and custom options."""
    return "\n".join(_file(file)) + "\n"


def _file(file: Any) -> Iterator[str]:
    syntax = file.syntax or "proto2"
    if syntax == "editions":
        yield f'edition = "{descriptor_pb2.Edition.Name(file.edition).removeprefix("EDITION_")}";'
    else:
        yield f'syntax = "{syntax}";'
    if file.package:
        yield f"package {file.package};"
    for number, name in enumerate(file.dependency):
        how = "public " if number in file.public_dependency else ""
        yield f'import {how}"{name}";'
    for option in _FILE_OPTIONS:
        if file.options.HasField(option):
            yield f"option {option} = {_value(getattr(file.options, option))};"
    for enum in file.enum_type:
        yield ""
        yield from _enum(enum, "")
    groups = _groups(file.extension)
    for message in file.message_type:
        if message.name not in groups:
            yield ""
            yield from _message(message, syntax, "")
    yield from _extensions(file.extension, file.message_type, syntax, "")
    for service in file.service:
        yield ""
        yield f"service {service.name} {{"
        for method in service.method:
            asked = ("stream " if method.client_streaming else "") + method.input_type
            given = ("stream " if method.server_streaming else "") + method.output_type
            yield f"  rpc {method.name} ({asked}) returns ({given});"
        yield "}"


def _message(message: Any, syntax: str, indent: str) -> Iterator[str]:
    yield f"{indent}message {message.name} {{"
    inner = indent + "  "
    for one in message.reserved_range:
        yield f"{inner}reserved {_range(one.start, one.end - 1, 536870911)};"
    for name in message.reserved_name:
        yield f'{inner}reserved "{name}";'
    for one in message.extension_range:
        yield f"{inner}extensions {_range(one.start, one.end - 1, 536870911)};"
    for enum in message.enum_type:
        yield from _enum(enum, inner)
    entries = {each.name: each for each in message.nested_type if each.options.map_entry}
    groups = _groups(message.field) | _groups(message.extension)
    parts = _parts(message, entries, syntax, inner)
    for nested in message.nested_type:
        # Clients count nested messages by place, and a map's hidden one is where its field is: that must stay so.
        if nested.options.map_entry:
            while parts and nested.name not in parts[0][0]:
                yield from parts.pop(0)[1]
            if parts:
                yield from parts.pop(0)[1]
        elif nested.name not in groups:
            yield from _message(nested, syntax, inner)
    for _, lines in parts:
        yield from lines
    yield from _extensions(message.extension, message.nested_type, syntax, inner)
    yield f"{indent}}}"


def _parts(
    message: Any, entries: dict[str, Any], syntax: str, indent: str
) -> list[tuple[set[str], list[str]]]:
    """Return (names of the types it uses, lines) of each field, a oneof's fields together."""
    parts: list[tuple[set[str], list[str]]] = []
    oneofs: dict[int, list[str]] = {}
    for field in message.field:
        uses = {field.type_name.rpartition(".")[2]} & entries.keys()
        if not field.HasField("oneof_index") or field.proto3_optional:
            parts.append(
                (uses, list(_field(field, message.nested_type, entries, syntax, indent, label=True)))
            )
            continue
        if field.oneof_index not in oneofs:
            name = message.oneof_decl[field.oneof_index].name
            oneofs[field.oneof_index] = [f"{indent}oneof {name} {{", f"{indent}}}"]
            parts.append((uses, oneofs[field.oneof_index]))
        lines = oneofs[field.oneof_index]
        lines[-1:-1] = _field(field, message.nested_type, entries, syntax, indent + "  ", label=False)
    return parts


def _field(
    field: Any, beside: Any, entries: dict[str, Any], syntax: str, indent: str, *, label: bool
) -> Iterator[str]:
    entry = entries.get(field.type_name.rpartition(".")[2]) if field.type == _F.TYPE_MESSAGE else None
    if entry is not None:
        key, value = entry.field
        yield f"{indent}map<{_type(key)}, {_type(value)}> {field.name} = {field.number}{_options(field)};"
        return
    word = _LABELS[field.label] if label else ""
    if word == "optional " and syntax != "proto2" and not field.proto3_optional:
        word = ""
    if field.type == _F.TYPE_GROUP:
        group = next(each for each in beside if _names(field, each))  # which lies beside it, as checked
        yield f"{indent}{word}group {group.name} = {field.number} {{"
        yield from list(_message(group, syntax, indent))[1:]
        return
    yield f"{indent}{word}{_type(field)} {field.name} = {field.number}{_options(field)};"


def _groups(fields: Any) -> set[str]:
    """Return the names of the messages that are written where their fields are."""
    return {each.type_name.rpartition(".")[2] for each in fields if each.type == _F.TYPE_GROUP}


def _extensions(fields: Any, beside: Any, syntax: str, indent: str) -> Iterator[str]:
    for field in fields:
        yield f"{indent}extend {field.extendee} {{"
        yield from _field(field, beside, {}, syntax, indent + "  ", label=True)
        yield f"{indent}}}"


def _enum(enum: Any, indent: str) -> Iterator[str]:
    yield f"{indent}enum {enum.name} {{"
    if enum.options.allow_alias:
        yield f"{indent}  option allow_alias = true;"
    for one in enum.reserved_range:
        yield f"{indent}  reserved {_range(one.start, one.end, 2147483647)};"
    for name in enum.reserved_name:
        yield f'{indent}  reserved "{name}";'
    for value in enum.value:
        deprecated = " [deprecated = true]" if value.options.deprecated else ""
        yield f"{indent}  {value.name} = {value.number}{deprecated};"
    yield f"{indent}}}"


def _type(field: Any) -> str:
    if field.type_name:
        return str(field.type_name)  # with its leading dot: the full name, whatever is around it
    return str(_F.Type.Name(field.type)).removeprefix("TYPE_").lower()


def _options(field: Any) -> str:
    found = []
    if field.HasField("default_value"):
        quoted = field.type in (_F.TYPE_STRING, _F.TYPE_BYTES)
        found.append(f"default = {_value(field.default_value) if quoted else field.default_value}")
    if field.HasField("json_name") and field.json_name != _json_name(field.name):
        found.append(f"json_name = {_value(field.json_name)}")
    if field.options.HasField("packed"):
        found.append(f"packed = {_value(field.options.packed)}")
    if field.options.deprecated:
        found.append("deprecated = true")
    return f" [{', '.join(found)}]" if found else ""


def _json_name(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(each[:1].upper() + each[1:] for each in others)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    return str(value)


def _range(start: int, end: int, most: int) -> str:
    if start == end:
        return str(start)
    return f"{start} to {'max' if end >= most else end}"


def _names(field: Any, message: Any) -> bool:
    return bool(field.type_name.rpartition(".")[2] == message.name)
