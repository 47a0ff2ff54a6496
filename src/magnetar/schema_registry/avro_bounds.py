"""What a few bytes of Avro may ask for: levels of a record that holds itself, and items of an array that take no bytes.

fastavro reads a level by a call in C: 20 KB that are nested 10,000 deep end the process, and no exception says so. An
array of nulls takes no bytes for its items: ten bytes can say that there are 2^60. Schemas in which neither can be,
which is nearly all, are not looked at; records of the others are gone through before they are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from magnetar.schema_registry.framing import Undecodable

MAX_LEVELS = 1000
"""Of records, arrays, maps and unions within each other. fastavro's C stack takes several times as many."""
MAX_EMPTY_ITEMS = 100_000
"""Items without bytes in one record."""
_SHORT = 128
"""A record that holds itself needs a byte for each level at least, so that one of this length is not too deep."""
_WIDTHS = {"float": 4, "double": 8, "boolean": 1}
_LONGS = ("int", "long", "enum")


class AvroBounds:
    """Looks over records of one schema, as fastavro's ``parse_schema`` gives it with all that it names."""

    def __init__(self, schema: Any, known: Mapping[str, Any]) -> None:
        self._known = known
        self._schema = schema
        self._recursive = _holds_itself(schema, known, ())
        self._empty_items = _has_empty_items(schema, known, set())

    def check(self, data: memoryview) -> None:
        """Raise `Undecodable` for a record that must not be read, or ends before its schema does."""
        if self._empty_items or (self._recursive and len(data) > _SHORT):
            try:
                self._look_over(data)
            except (IndexError, KeyError):
                raise Undecodable("it is not Avro of its schema: it leads beyond its end") from None

    def _look_over(self, data: memoryview) -> None:
        """Go through a record without building it; what is yet to come lies on a stack of our own."""
        at = empty = 0
        # (schema, level, how often); a schema of None stands for the blocks of the array or map above it.
        to_come: list[tuple[Any, int, int]] = [(self._schema, 0, 1)]
        while to_come:
            schema, level, times = to_come.pop()
            if times > 1:
                to_come.append((schema, level, times - 1))
            if level > MAX_LEVELS:
                raise Undecodable(f"it is nested more than {MAX_LEVELS} levels deep")
            if isinstance(schema, tuple):  # what an array's or map's blocks consist of
                count, at = _long(data, at)
                if count < 0:
                    count, (_, at) = -count, _long(data, at)
                if count == 0:
                    continue
                to_come.append((schema, level, 1))
                if all(_width(each, self._known) == 0 for each in schema):
                    empty += count
                    if empty > MAX_EMPTY_ITEMS:
                        raise Undecodable(f"it would have {count} items of no bytes")
                    continue
                # What is counted takes a byte each, so a count beyond the record's end is never gone through.
                to_come.append(({"type": "pair", "of": schema}, level, count))
                continue
            kind, schema = self._resolved(schema)
            if kind == "pair":
                to_come += [(each, level + 1, 1) for each in reversed(schema["of"])]
            elif kind in ("record", "error"):
                to_come += [(field["type"], level + 1, 1) for field in reversed(schema["fields"])]
            elif kind == "union":
                index, at = _long(data, at)
                to_come.append((schema[index], level + 1, 1))
            elif kind in ("array", "map"):
                items = (schema["items"],) if kind == "array" else ("string", schema["values"])
                to_come.append((items, level + 1, 1))
            else:
                at = _behind(kind, schema, data, at)

    def _resolved(self, schema: Any) -> tuple[str, Any]:
        return _resolved(schema, self._known)


def _resolved(schema: Any, known: Mapping[str, Any]) -> tuple[str, Any]:
    """Return what kind of schema it is, and the schema that a name stands for."""
    if isinstance(schema, list):
        return "union", schema
    if isinstance(schema, str):
        return (schema, schema) if schema not in known else (known[schema]["type"], known[schema])
    kind = schema["type"]
    return _resolved(kind, known) if not isinstance(kind, str) or kind in known else (kind, schema)


def _behind(kind: str, schema: Any, data: memoryview, at: int) -> int:
    """Return where a value without parts ends; raise IndexError where the record ends before."""
    if kind in _LONGS:
        return _long(data, at)[1]
    if kind in ("bytes", "string"):
        width, at = _long(data, at)
    else:
        width = schema["size"] if kind == "fixed" else _WIDTHS.get(kind, 0)
    if width < 0 or at + width > len(data):
        raise IndexError
    return int(at + width)


def _long(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        if shift > 63:
            raise IndexError


def _parts(kind: str, schema: Any) -> list[Any]:
    if kind == "union":
        return list(schema)
    if kind in ("record", "error"):
        return [field["type"] for field in schema["fields"]]
    return {"array": lambda: [schema["items"]], "map": lambda: [schema["values"]]}.get(kind, list)()


def _holds_itself(schema: Any, known: Mapping[str, Any], inside: tuple[str, ...]) -> bool:
    kind, schema = _resolved(schema, known)
    if kind in ("record", "error"):
        if schema["name"] in inside:
            return True
        inside = (*inside, schema["name"])
    return any(_holds_itself(each, known, inside) for each in _parts(kind, schema))


def _has_empty_items(schema: Any, known: Mapping[str, Any], seen: set[str]) -> bool:
    kind, schema = _resolved(schema, known)
    if kind in ("record", "error"):
        if schema["name"] in seen:
            return False
        seen.add(schema["name"])
    if kind == "array" and _width(schema["items"], known) == 0:
        return True
    return any(_has_empty_items(each, known, seen) for each in _parts(kind, schema))


def _width(schema: Any, known: Mapping[str, Any]) -> int:
    """Return 0 for what takes no bytes, else at least 1."""
    kind, schema = _resolved(schema, known)
    if kind in ("record", "error"):
        # A record that holds itself does so in a union, array or map, and these take a byte.
        return max((_width(field["type"], known) for field in schema["fields"]), default=0)
    return int(schema["size"]) if kind == "fixed" else int(kind != "null")
