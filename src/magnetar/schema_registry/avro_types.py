"""Avro schemas as a graph of types, each named type once, by its full name (Avro 1.12, "Names")."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from magnetar.schema_registry.work import Work

PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
NAMED = frozenset(("record", "error", "enum", "fixed"))
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(slots=True, eq=False)
class Type:
    """One type: a place in the graph, the same one wherever a named type is used."""

    kind: str
    name: str = ""
    """The full name of a named type."""
    aliases: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()
    parts: tuple[Type, ...] = ()
    """A union's branches; what an array or a map holds."""
    symbols: tuple[str, ...] = ()
    default: str | None = None
    """What an enum reads for symbols it does not know."""
    size: int = 0

    @property
    def local_name(self) -> str:
        return self.name.rpartition(".")[2]

    def __str__(self) -> str:
        return self.name or self.kind


@dataclass(slots=True, eq=False)
class Field:
    """A field of a record."""

    name: str
    aliases: tuple[str, ...]
    has_default: bool
    type: Type


def types_of(contents: Iterable[Any], work: Work) -> Type:
    """Return the type that the last of some schemas is; it may name types of those before it.

    Raises ``ValueError`` for what is no schema, in the words of Avro's own parser where it has some.
    """
    reader = _Reader(work)
    root = None
    for content in contents:
        root = reader.read(content, "")
    if root is None:
        raise ValueError("there is no schema")
    return root


class _Reader:
    def __init__(self, work: Work) -> None:
        self._work = work
        self._named: dict[str, Type] = {}
        self._plain = {kind: Type(kind) for kind in PRIMITIVES}

    def read(self, node: Any, namespace: str) -> Type:
        self._work.step()
        if isinstance(node, str):
            found = self._plain.get(node) or self._named.get(_full(node, namespace)) or self._named.get(node)
            if found is None:
                raise ValueError(f"{node[:100]!r} is not a defined name")
            return found
        if isinstance(node, list):
            return self._union(node, namespace)
        if not isinstance(node, dict) or "type" not in node:
            raise ValueError(f"no type: {str(node)[:100]}")
        kind = node["type"]
        if not isinstance(kind, str) or kind not in (*NAMED, "array", "map"):
            return self.read(kind, namespace)
        if kind in NAMED:
            return self._made(kind, node, namespace)
        inside = "items" if kind == "array" else "values"
        if inside not in node:
            raise ValueError(f"a {kind} without {inside}")
        return Type(kind, parts=(self.read(node[inside], namespace),))

    def _union(self, nodes: list[Any], namespace: str) -> Type:
        made = Type("union", parts=tuple(self.read(each, namespace) for each in nodes))
        if any(each.kind == "union" for each in made.parts):
            raise ValueError("Nested union")
        names = [str(each) for each in made.parts]
        if len(set(names)) < len(names):
            raise ValueError(f"Duplicate in union: {', '.join(names)[:200]}")
        return made

    def _made(self, kind: str, node: dict[str, Any], namespace: str) -> Type:
        name = node.get("name")
        if not isinstance(name, str):
            raise ValueError(f"No name in schema: {str(node)[:100]}")
        own = node.get("namespace")
        name = _full(name, own if isinstance(own, str) else namespace)
        namespace = name.rpartition(".")[0]
        made = Type("record" if kind == "error" else kind, name)
        for part in name.split("."):
            _check_name(part)
        if name in PRIMITIVES:
            raise ValueError(f"Schemas may not be named after primitives: {name}")
        if name in self._named:
            raise ValueError(f"Can't redefine: {name}")
        self._named[name] = made
        made.aliases = tuple(_full(each, namespace) for each in _texts(node, "aliases", ()))
        if kind == "enum":
            self._enum(made, node)
        elif kind == "fixed":
            made.size = node.get("size")  # type: ignore[assignment]
            if not isinstance(made.size, int) or isinstance(made.size, bool) or made.size < 0:
                raise ValueError(f"Invalid or no size: fixed {name}")
        else:
            made.fields = self._fields(node.get("fields"), name)
        return made

    def _enum(self, made: Type, node: dict[str, Any]) -> None:
        made.symbols = _texts(node, "symbols", None)
        self._work.step(len(made.symbols))
        for symbol in made.symbols:
            _check_name(symbol)
        if len(set(made.symbols)) < len(made.symbols):
            raise ValueError(f"Duplicate enum symbol: {made.name}")
        made.default = node.get("default")
        if made.default is not None and made.default not in made.symbols:
            raise ValueError(f"The Enum Default: {made.default} is not in the enum symbol set: {made.name}")

    def _fields(self, nodes: Any, record: str) -> tuple[Field, ...]:
        if not isinstance(nodes, list):
            raise ValueError(f"Record has no fields: {record}")
        found: dict[str, Field] = {}
        for node in nodes:
            name = node.get("name") if isinstance(node, dict) else None
            if not isinstance(name, str) or "type" not in node:
                raise ValueError(f"No field name or type: {record}")
            _check_name(name)
            if name in found:
                raise ValueError(f"Duplicate field {name} in record {record}")
            aliases = _texts(node, "aliases", ())
            self._work.step(len(aliases))
            found[name] = Field(
                name, aliases, "default" in node, self.read(node["type"], record.rpartition(".")[0])
            )
        return tuple(found.values())


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"Illegal character in: {name[:100]}" if name else "Empty name")


def _texts(node: dict[str, Any], what: str, default: tuple[str, ...] | None) -> tuple[str, ...]:
    found = node.get(what, default)
    if not isinstance(found, list | tuple) or not all(isinstance(each, str) for each in found):
        raise ValueError(f"{what} not an array of names: {str(node.get('name'))[:100]}")
    return tuple(found)
