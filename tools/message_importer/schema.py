"""Kafka's message definitions as values: what the JSON says, resolved and in Python's names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

LAST = 0x7FFF

#: struct code, size and Python type of the types with a fixed size
FIXED = {
    "bool": ("?", 1, "bool"),
    "int8": ("b", 1, "int"),
    "int16": ("h", 2, "int"),
    "uint16": ("H", 2, "int"),
    "int32": ("i", 4, "int"),
    "uint32": ("I", 4, "int"),
    "int64": ("q", 8, "int"),
    "float64": ("d", 8, "float"),
    "uuid": ("16s", 16, "bytes"),
}
VARIABLE = ("string", "bytes", "records")


@dataclass(frozen=True, slots=True)
class Versions:
    """A range of versions, both ends included; empty when ``low > high``."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        if text == "none":
            return NONE
        low, dash, high = text.partition("-")
        if low.endswith("+"):
            return cls(int(low[:-1]), LAST)
        return cls(int(low), int(high) if dash else int(low))

    def __and__(self, other: Versions) -> Versions:
        return Versions(max(self.low, other.low), min(self.high, other.high))

    def __bool__(self) -> bool:
        return self.low <= self.high

    def covers(self, other: Versions) -> bool:
        return not other or (self.low <= other.low and other.high <= self.high)


NONE = Versions(1, 0)
ALL = Versions(0, LAST)


@dataclass(slots=True)
class Field:
    name: str
    kind: str  # a name in FIXED or VARIABLE, or the class name of a struct
    array: bool
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    default: str  # as Python source
    ignorable: bool
    entity: str = ""  # what it names: topicName, groupId, ...
    struct: StructSchema | None = None

    @property
    def fixed(self) -> bool:
        return not self.array and self.kind in FIXED

    @property
    def is_struct(self) -> bool:
        return not self.array and self.struct is not None


@dataclass(slots=True)
class StructSchema:
    name: str
    versions: Versions
    fields: list[Field] = field(default_factory=list)

    @property
    def function(self) -> str:
        return snake_case(self.name)


@dataclass(slots=True)
class MessageSchema:
    name: str
    type: str  # request, response, data, coordinator-key, coordinator-value
    api_key: int
    versions: Versions
    flexible: Versions
    listeners: tuple[str, ...]
    root: StructSchema
    structs: list[StructSchema]  # every struct but the root, those used by others first

    @property
    def in_place(self) -> bool:
        """Return whether it carries record batches, which must not be copied."""
        return any(f.kind == "records" for s in (self.root, *self.structs) for f in s.fields)

    @property
    def in_pieces(self) -> bool:
        """Return whether its record batches may be given in pieces: so a broker answers without joining them."""
        return self.type == "response"


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def parse_message(text: str) -> MessageSchema:
    """Read one definition; JSON, but with comments on lines of their own."""
    definition = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    versions = Versions.parse(definition["validVersions"])
    builder = _Builder(definition.get("commonStructs", ()))
    root = StructSchema(definition["name"], versions)
    root.fields = [builder.field(f, versions) for f in definition.get("fields", ())]
    return MessageSchema(
        name=definition["name"],
        type=definition["type"],
        api_key=definition.get("apiKey", -1),
        versions=versions,
        flexible=Versions.parse(definition.get("flexibleVersions", "none")),
        listeners=tuple(definition.get("listeners", ())),
        root=root,
        structs=builder.structs,
    )


class _Builder:
    """Resolves the structs of one message, whether defined in place or in common."""

    def __init__(self, common: list[dict[str, Any]]) -> None:
        self._common = {definition["name"]: definition for definition in common}
        self._done: dict[str, StructSchema] = {}
        self.structs: list[StructSchema] = []

    def field(self, definition: dict[str, Any], within: Versions) -> Field:
        kind = definition["type"].removeprefix("[]")
        tagged = Versions.parse(definition.get("taggedVersions", "none"))
        versions = Versions.parse(definition["versions"]) if "versions" in definition else tagged
        made = Field(
            name=snake_case(definition["name"]),
            kind=kind,
            array=definition["type"].startswith("[]"),
            versions=versions & within,
            nullable=Versions.parse(definition.get("nullableVersions", "none")) & within,
            tagged=tagged & within,
            tag=definition.get("tag", -1),
            default="",
            ignorable=definition.get("ignorable", False),
            entity=definition.get("entityType", ""),
        )
        assert not made.tagged or made.tagged.covers(made.versions), "tagged in some versions only"
        if kind not in FIXED and kind not in VARIABLE:
            made.struct = self._struct(kind, definition, made.versions)
        made.default = _default(definition, made)
        return made

    def _struct(self, name: str, definition: dict[str, Any], within: Versions) -> StructSchema:
        if name in self._done:
            return self._done[name]
        if "fields" not in definition:
            definition = self._common[name]
            within = Versions.parse(definition["versions"])
        struct = self._done[name] = StructSchema(name, within)
        struct.fields = [self.field(f, within) for f in definition["fields"]]
        self.structs.append(struct)
        return struct


def _default(definition: dict[str, Any], made: Field) -> str:
    """Return the field's default as Python source, by Kafka's rules for those without one."""
    given = definition.get("default", ...)
    if given is None:
        given = ...  # what Kafka's own generator takes JSON's null for; only the string "null" means null
    if given == "null" or (made.kind == "records" and given is ...):
        return "None"
    if made.array:
        return "EMPTY"
    if made.struct is not None:
        # A tagged struct is simply absent; to build a default one for every partition would cost much.
        return "None" if made.tagged and not made.nullable else f"{made.kind}()"
    if made.kind == "string":
        return repr("" if given is ... else given)
    if made.kind == "bytes":
        return 'b""'
    if made.kind == "uuid":
        return "ZERO_UUID"
    if made.kind == "bool":
        return str(given in (True, "true"))
    if made.kind == "float64":
        return repr(0.0 if given is ... else float(given))
    return str(0 if given is ... else int(str(given), 0))


def walk(message: MessageSchema) -> Iterator[StructSchema]:
    """Yield every struct, used ones first and the message itself last."""
    yield from message.structs
    yield message.root
