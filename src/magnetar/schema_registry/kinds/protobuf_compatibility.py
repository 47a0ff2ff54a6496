"""Whether messages of one Protobuf file can be read as those of another: numbers and types count, names do not.

The rules are those of Confluent's registry. Beyond them, a field may not begin to be required: a reader of the new
would stumble over what was written without. Numbers may not begin or cease to be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pb2

from magnetar.schema_registry.work import Work

_F = descriptor_pb2.FieldDescriptorProto
_GROUPS = (
    {_F.TYPE_INT32, _F.TYPE_INT64, _F.TYPE_UINT32, _F.TYPE_UINT64, _F.TYPE_BOOL, _F.TYPE_ENUM},
    {_F.TYPE_SINT32, _F.TYPE_SINT64},
    {_F.TYPE_STRING, _F.TYPE_BYTES},
    {_F.TYPE_FIXED32, _F.TYPE_SFIXED32},
    {_F.TYPE_FIXED64, _F.TYPE_SFIXED64},
)
"""Types that read each other's bytes."""
_KINDS = {kind: number for number, group in enumerate(_GROUPS) for kind in group}


def clashes(reader: Any, writer: Any, work: Work) -> list[str]:
    """Say why a file's messages cannot be read as another's; raise `TooComplex`."""
    return list(_clashes(reader, writer, work))


def _clashes(reader: Any, writer: Any, work: Work) -> Iterator[str]:
    if reader.package != writer.package:
        yield f"the package is {reader.package!r}, before it was {writer.package!r}"
    packages = reader.package, writer.package
    waiting = [(reader.message_type, writer.message_type, "")]
    while waiting:
        news, olds, path = waiting.pop()
        mine = {each.name: each for each in news}
        work.step(len(mine) + len(olds))
        for old in olds:
            at = f"{path}/{old.name}"
            if old.options.map_entry:
                continue
            if old.name not in mine:
                yield f"{at}: the message was removed"
                continue
            yield from _messages(_Message(mine[old.name], packages[0]), _Message(old, packages[1]), at, work)
            waiting.append((mine[old.name].nested_type, old.nested_type, at))


class _Message:
    """A message, with its fields by number."""

    def __init__(self, message: Any, package: str) -> None:
        self.package = package
        self.fields = {each.number: each for each in message.field}
        self._oneofs = message.oneof_decl
        self._entries = {each.name: each for each in message.nested_type if each.options.map_entry}

    def oneof(self, field: Any) -> str | None:
        """Return the name of the oneof that a field is in; None for none, and for proto3's ``optional``."""
        if not field.HasField("oneof_index") or field.proto3_optional:
            return None
        return str(self._oneofs[field.oneof_index].name)

    def oneofs(self) -> dict[str, list[int]]:
        """Return the numbers of the fields of each oneof."""
        found: dict[str, list[int]] = {}
        for number, field in self.fields.items():
            name = self.oneof(field)
            if name is not None:
                found.setdefault(name, []).append(number)
        return found

    def entry(self, field: Any) -> Any:
        """Return the hidden message of a map field, or None."""
        return (
            self._entries.get(field.type_name.rpartition(".")[2]) if field.type == _F.TYPE_MESSAGE else None
        )

    def local_name(self, field: Any) -> str:
        """Return the name of a field's type within its package."""
        name = str(field.type_name).lstrip(".")
        return name.removeprefix(f"{self.package}.") if self.package else name


def _messages(reader: _Message, writer: _Message, path: str, work: Work) -> Iterator[str]:
    work.step(len(reader.fields) + len(writer.fields))
    mine, theirs = reader.oneofs(), writer.oneofs()
    gone = {
        name
        for name, numbers in theirs.items()
        if name not in mine and not reader.fields.keys() & set(numbers)
    }
    for name, numbers in mine.items():
        came = [number for number in numbers if number in writer.fields]
        from_where = {writer.oneof(writer.fields[number]) or number for number in came}
        if len(from_where) > 1:
            names = ", ".join(reader.fields[number].name for number in came)
            yield f"{path}: {names} exclude each other now, in oneof {name}"
    for number, old in writer.fields.items():
        new, at, oneof = reader.fields.get(number), f"{path}/{number}", writer.oneof(old)
        if new is not None:
            yield from _fields(reader, new, writer, old, at)
        elif oneof is not None and oneof not in gone:
            yield f"{at}: {old.name} was removed from its oneof"
        elif old.label == _F.LABEL_REQUIRED:
            yield f"{at}: {old.name}, a required field, was removed"
    for number, new in reader.fields.items():
        if number not in writer.fields and new.label == _F.LABEL_REQUIRED:
            yield f"{path}/{number}: {new.name}, a required field, was added"


def _fields(reader: _Message, new: Any, writer: _Message, old: Any, at: str) -> Iterator[str]:
    entry, was = reader.entry(new), writer.entry(old)
    if (entry is None) != (was is None):
        yield f"{at}: {new.name} is {'a map' if was is None else 'no map any more'}"
        return
    if entry is not None:
        for mine, theirs in zip(entry.field, was.field, strict=True):
            yield from _types(reader, mine, writer, theirs, at)
        return
    yield from _types(reader, new, writer, old, at)
    if new.label == _F.LABEL_REQUIRED and old.label != _F.LABEL_REQUIRED:
        yield f"{at}: {new.name} is required now"
    if new.type in (_F.TYPE_STRING, _F.TYPE_BYTES, _F.TYPE_MESSAGE, _F.TYPE_GROUP):
        return
    repeated = new.label == _F.LABEL_REPEATED, old.label == _F.LABEL_REPEATED
    if repeated[0] != repeated[1]:
        yield f"{at}: {new.name} is {'repeated' if repeated[0] else 'not repeated any more'}"


def _types(reader: _Message, new: Any, writer: _Message, old: Any, at: str) -> Iterator[str]:
    if _KINDS.get(new.type, -new.type) != _KINDS.get(old.type, -old.type):
        yield f"{at}: {new.name} is {_F.Type.Name(new.type)}, it was {_F.Type.Name(old.type)}"
    elif new.type in (_F.TYPE_MESSAGE, _F.TYPE_GROUP):
        names = reader.local_name(new), writer.local_name(old)
        if names[0] != names[1]:
            yield f"{at}: {new.name} is {names[0]}, it was {names[1]}"
