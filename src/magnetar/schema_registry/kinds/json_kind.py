"""JSON Schema: checked by jsonschema, compared keyword by keyword.

What a reader is asked is whether each document that the writer's schema allows passes its own. Keywords that narrow
(``required``, ``enum``, ``minimum`` ...) may only get wider. As with Confluent's registry, a property that the writer
does not name counts by its *content model*: open (anything may be there, so a new property may clash with it), closed
(``additionalProperties: false``), or of one kind (``additionalProperties: {...}``). Where the two schemas cannot be
compared (``not``, ``if``, patterns that differ), they must be equal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from magnetar.schema_registry.errors import InvalidSchema

_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_SAME = ("pattern", "multipleOf", "const", "not", "if", "then", "else", "dependencies", "dependentRequired",
         "dependentSchemas", "patternProperties", "propertyNames", "contains", "uniqueItems")  # fmt: skip
_TYPES = ("null", "boolean", "object", "array", "number", "integer", "string")
_DEEPEST = 100


class JsonSchema:
    """One schema, with those it refers to."""

    def __init__(self, text: str, root: Any, others: Mapping[str, Any]) -> None:
        self.text = text
        self.root = root
        self._others = others

    def reads(self, writer: Any) -> list[str]:
        """Say why this does not allow what ``writer`` allows."""
        return list(_narrower(_At(self, self.root), _At(writer, writer.root), "#", 0))

    def resolved(self, node: Any) -> Any:
        """Follow ``$ref``; give the node itself where that leads nowhere."""
        for _ in range(_DEEPEST):
            if not isinstance(node, dict) or not isinstance(node.get("$ref"), str):
                break
            name, _, pointer = node["$ref"].partition("#")
            found = self.root if not name else self._others.get(name)
            for part in pointer.strip("/").split("/") if pointer.strip("/") else ():
                part = part.replace("~1", "/").replace("~0", "~")
                found = found.get(part) if isinstance(found, dict) else None
            if found is None:
                break
            node = found
        return node


def parse(text: str, references: Mapping[str, str]) -> JsonSchema:
    """Understand a JSON Schema (drafts 4 to 2020-12); raise `InvalidSchema`. Its text is that given, without blanks."""
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft7Validator, validator_for

    root = _json(text)
    if not isinstance(root, dict | bool):
        raise InvalidSchema("Invalid schema of type JSON: it must be an object or a boolean")
    try:
        validator_for(root, default=Draft7Validator).check_schema(root)
    except SchemaError as error:
        raise InvalidSchema(f"Invalid schema of type JSON: {error.message}") from None
    others = {name: _json(each) for name, each in references.items()}
    return JsonSchema(json.dumps(root, separators=(",", ":"), ensure_ascii=False), root, others)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidSchema(f"Invalid schema of type JSON: it is not JSON: {error}") from None


class _At:
    """A place in a schema."""

    def __init__(self, schema: JsonSchema, node: Any) -> None:
        self.schema = schema
        self.node: dict[str, Any] | bool = schema.resolved(node)

    def get(self, name: str, default: Any = None) -> Any:
        return self.node.get(name, default) if isinstance(self.node, dict) else default

    def inside(self, node: Any) -> _At:
        return _At(self.schema, node)

    @property
    def takes_all(self) -> bool:
        told = {
            "title",
            "description",
            "$schema",
            "$id",
            "default",
            "examples",
            "$comment",
            "definitions",
            "$defs",
        }
        return self.node is True or (isinstance(self.node, dict) and not self.node.keys() - told)

    @property
    def types(self) -> set[str]:
        said = self.get("type", list(_TYPES))
        found = {said} if isinstance(said, str) else set(said)
        return found | {"integer"} if "number" in found else found


def _narrower(reader: _At, writer: _At, path: str, depth: int) -> Iterator[str]:
    """Give what the reader refuses of what the writer allows."""
    if reader.takes_all or writer.node is False or reader.node == writer.node or depth > _DEEPEST:
        return
    if reader.node is False:
        yield f"{path}: nothing is allowed any more"
        return
    for keyword, every in (("oneOf", True), ("anyOf", True), ("allOf", False)):
        if keyword in (writer.node if isinstance(writer.node, dict) else ()) or reader.get(keyword):
            yield from _combined(reader, writer, keyword, every, path, depth)
            return
    lost = writer.types - reader.types
    if lost:
        yield f"{path}: type {', '.join(sorted(lost))} is not allowed any more"
        return
    yield from _bounds(reader, writer, path)
    for keyword in _SAME:
        if reader.get(keyword) is not None and reader.get(keyword) != writer.get(keyword):
            yield f"{path}: {keyword} is another"
    if reader.get("enum") is not None:
        allowed = writer.get("enum")
        if allowed is None and writer.get("const") is not None:
            allowed = [writer.get("const")]
        if allowed is None or any(each not in reader.get("enum") for each in allowed):
            yield f"{path}: enum allows less"
    if "object" in writer.types & reader.types:
        yield from _objects(reader, writer, path, depth)
    if "array" in writer.types & reader.types:
        yield from _arrays(reader, writer, path, depth)


def _combined(reader: _At, writer: _At, keyword: str, every: bool, path: str, depth: int) -> Iterator[str]:
    """Each branch of the writer must be read by some branch of the reader."""
    theirs = writer.get(keyword) or [writer.node]
    mine = reader.get(keyword) or [reader.node]
    if not every:
        pairs: Callable[[Any], bool] = lambda each: any(  # noqa: E731
            not list(_narrower(reader.inside(each), writer.inside(other), path, depth + 1))
            for other in theirs
        )
        if not all(pairs(each) for each in mine):
            yield f"{path}: {keyword} asks for more"
        return
    for number, other in enumerate(theirs):
        if not any(
            not list(_narrower(reader.inside(each), writer.inside(other), path, depth + 1)) for each in mine
        ):
            yield f"{path}/{keyword}/{number}: no branch allows it any more"


def _bounds(reader: _At, writer: _At, path: str) -> Iterator[str]:
    for keyword in _LOWER:
        new, old = reader.get(keyword), writer.get(keyword)
        if (
            _is_number(new)
            and (not _is_number(old) or new > old)
            and not (new == 0 and keyword.startswith("min") and keyword != "minimum")
        ):
            yield f"{path}: {keyword} {new} is more than before"
    for keyword in _UPPER:
        new, old = reader.get(keyword), writer.get(keyword)
        if _is_number(new) and (not _is_number(old) or new < old):
            yield f"{path}: {keyword} {new} is less than before"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _objects(reader: _At, writer: _At, path: str, depth: int) -> Iterator[str]:
    mine: dict[str, Any] = reader.get("properties", {})
    theirs: dict[str, Any] = writer.get("properties", {})
    must, did = set(reader.get("required", ())), set(writer.get("required", ()))
    for name in sorted(must - did):
        own = mine.get(name)
        if isinstance(own, dict) and "default" in own:
            continue
        yield f"{path}/properties/{name}: it is required now"
    for name in theirs:
        at = f"{path}/properties/{name}"
        if name in mine:
            yield from _narrower(reader.inside(mine[name]), writer.inside(theirs[name]), at, depth + 1)
        else:
            others = reader.inside(reader.get("additionalProperties", True))
            if others.node is False:
                yield f"{at}: it is not allowed any more"
            else:
                yield from _narrower(others, writer.inside(theirs[name]), at, depth + 1)
    others = writer.inside(writer.get("additionalProperties", True))
    for name in mine.keys() - theirs.keys():
        at = f"{path}/properties/{name}"
        if others.takes_all and not reader.inside(mine[name]).takes_all:
            yield f"{at}: it was added to an open content model, where anything may be under this name"
        else:
            yield from _narrower(reader.inside(mine[name]), others, at, depth + 1)
    if not others.takes_all or reader.get("additionalProperties", True) is False:
        mine_others = reader.inside(reader.get("additionalProperties", True))
        yield from _narrower(mine_others, others, f"{path}/additionalProperties", depth + 1)


def _arrays(reader: _At, writer: _At, path: str, depth: int) -> Iterator[str]:
    mine, theirs = reader.get("items", True), writer.get("items", True)
    if (
        isinstance(mine, list)
        or isinstance(theirs, list)
        or reader.get("prefixItems")
        or writer.get("prefixItems")
    ):
        if mine != theirs or reader.get("prefixItems") != writer.get("prefixItems"):
            yield f"{path}/items: the items by place are others"
        return
    yield from _narrower(reader.inside(mine), writer.inside(theirs), f"{path}/items", depth + 1)
