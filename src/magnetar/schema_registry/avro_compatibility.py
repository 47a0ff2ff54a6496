"""Whether data written with one Avro schema can be read with another (Avro's rules of schema resolution)."""

from __future__ import annotations

from typing import Any

_PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}
_NAMED = frozenset(("record", "error", "enum", "fixed"))


class Schema:
    """A parsed schema with the types that it names; raises ``ValueError`` for what is no schema."""

    def __init__(self, content: Any) -> None:
        self.root = content
        self._named: dict[str, Any] = {}
        self._collect(content, "")

    def _collect(self, node: Any, namespace: str) -> None:
        if isinstance(node, list):
            for each in node:
                self._collect(each, namespace)
        elif isinstance(node, dict):
            kind = node.get("type")
            if isinstance(kind, dict | list):
                self._collect(kind, namespace)
            elif kind in _NAMED:
                name = str(node.get("name", ""))
                if not name:
                    raise ValueError(f"a {kind} without a name")
                namespace = name.rpartition(".")[0] or str(node.get("namespace", namespace))
                self._named[name.rpartition(".")[2]] = node
                for field in node.get("fields", ()) if kind in ("record", "error") else ():
                    self._collect(field["type"], namespace)
            elif kind == "array":
                self._collect(node["items"], namespace)
            elif kind == "map":
                self._collect(node["values"], namespace)
            elif kind not in _PRIMITIVES and not isinstance(kind, str):
                raise ValueError(f"no schema: {node!r}")
        elif not isinstance(node, str):
            raise ValueError(f"no schema: {node!r}")

    def resolved(self, node: Any) -> Any:
        """Give a list for a union, a dict for everything else."""
        while True:
            if isinstance(node, dict) and isinstance(node.get("type"), dict | list):
                node = node["type"]
            elif isinstance(node, str) and node not in _PRIMITIVES:
                found = self._named.get(node.rpartition(".")[2])
                if found is None:
                    raise ValueError(f"unknown type {node!r}")
                return found
            elif isinstance(node, dict) and isinstance(node.get("type"), str):
                if node["type"] in _PRIMITIVES | _NAMED | {"array", "map"}:
                    return node
                node = node["type"]
            elif isinstance(node, str):
                return {"type": node}
            else:
                return node


def can_read(reader: Any, writer: Any) -> bool:
    """Whether a reader with one schema reads what was written with the other; raise ``ValueError`` for no schema."""
    read, written = Schema(reader), Schema(writer)
    return _matches(read, read.root, written, written.root, set())


def _matches(read: Schema, reader: Any, written: Schema, writer: Any, seen: set[tuple[int, int]]) -> bool:
    reader, writer = read.resolved(reader), written.resolved(writer)
    if (id(reader), id(writer)) in seen:  # a type that holds itself
        return True
    if isinstance(writer, list):
        return all(_matches(read, reader, written, each, seen) for each in writer)
    if isinstance(reader, list):
        return any(_matches(read, each, written, writer, seen) for each in reader)
    kind, wrote = reader["type"], writer["type"]
    if kind != wrote:
        return kind in _PROMOTIONS.get(wrote, ())
    seen = seen | {(id(reader), id(writer))}
    if kind in ("record", "error"):
        return _records_match(read, reader, written, writer, seen)
    if kind == "array":
        return _matches(read, reader["items"], written, writer["items"], seen)
    if kind == "map":
        return _matches(read, reader["values"], written, writer["values"], seen)
    if kind == "enum":
        return "default" in reader or set(writer["symbols"]) <= set(reader["symbols"])
    if kind == "fixed":
        return bool(reader["size"] == writer["size"])
    return True


def _records_match(
    read: Schema, reader: Any, written: Schema, writer: Any, seen: set[tuple[int, int]]
) -> bool:
    theirs = {field["name"]: field for field in writer.get("fields", ())}
    for field in reader.get("fields", ()):
        names = (field["name"], *field.get("aliases", ()))
        wrote = next((theirs[name] for name in names if name in theirs), None)
        if wrote is None:
            if "default" not in field:
                return False
        elif not _matches(read, field["type"], written, wrote["type"], seen):
            return False
    return True
