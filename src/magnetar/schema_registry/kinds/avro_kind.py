"""Avro: checked by fastavro, compared by Avro's rules of schema resolution."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from magnetar.schema_registry.avro_compatibility import can_read
from magnetar.schema_registry.errors import InvalidSchema


class AvroSchema:
    """One schema; named types of others that it refers to are put in where it first uses them."""

    def __init__(self, text: str, whole: Any) -> None:
        self.text = text
        self._whole = whole

    def reads(self, writer: Any) -> list[str]:
        """Say why this cannot read what ``writer`` wrote."""
        if can_read(self._whole, writer._whole):
            return []
        return [f"the schema {_name(self._whole)} cannot read what was written with {_name(writer._whole)}"]


def parse(text: str, references: Mapping[str, str]) -> AvroSchema:
    """Understand an Avro schema; raise `InvalidSchema`. Its text is that given, without blanks."""
    content = _json(text)
    try:
        named: dict[str, Any] = {}
        for each in references.values():
            _check(_json(each), named)
        others = dict(named)
        _check(content, named)
        whole = _with_others(content, others)
        can_read(whole, whole)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidSchema(f"Invalid schema of type AVRO: {error or type(error).__name__}") from None
    return AvroSchema(json.dumps(content, separators=(",", ":"), ensure_ascii=False), whole)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        # A primitive type may stand there without quotes, as Confluent's own serializers register them.
        if text.strip() in ("null", "boolean", "int", "long", "float", "double", "bytes", "string"):
            return text.strip()
        raise InvalidSchema(f"Invalid schema of type AVRO: it is not JSON: {error}") from None


def _check(content: Any, named: dict[str, Any]) -> None:
    from fastavro.schema import SchemaParseException, parse_schema

    try:
        parse_schema(content, named_schemas=named, _write_hint=False)
    except SchemaParseException as error:
        raise ValueError(str(error)) from None
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None
    _check_parts(content)


def _check_parts(node: Any) -> None:
    """See to what fastavro lets pass."""
    if isinstance(node, list):
        for each in node:
            _check_parts(each)
    elif isinstance(node, dict):
        kind = node.get("type")
        if kind == "enum" and not _are_names(node.get("symbols")):
            raise ValueError(f"the symbols of enum {node.get('name')!r} must be distinct names")
        if kind == "fixed" and not (isinstance(node.get("size"), int) and node["size"] >= 0):
            raise ValueError(f"fixed {node.get('name')!r} needs a size")
        if kind in ("record", "error"):
            names = [each["name"] for each in node["fields"]]
            if not _are_names(names):
                raise ValueError(f"the fields of record {node.get('name')!r} must have distinct names")
            for each in node["fields"]:
                _check_parts(each["type"])
        for inside in ("items", "values"):
            if inside in node:
                _check_parts(node[inside])
        if isinstance(kind, dict | list):
            _check_parts(kind)


def _are_names(names: Any) -> bool:
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        return False
    plain = all(each.isidentifier() and each.isascii() for each in names)
    return plain and len(set(names)) == len(names)


def _with_others(content: Any, others: dict[str, Any]) -> Any:
    """Give a schema that is whole without what it refers to: a union of the others, of which the last counts."""
    if not others:
        return content
    return _Whole(content, others).root


class _Whole:
    """Puts named types of other schemas where they are first used."""

    def __init__(self, content: Any, others: dict[str, Any]) -> None:
        self._others = others
        self._done: set[str] = set()
        self.root = self._of(content, "")

    def _of(self, node: Any, namespace: str) -> Any:
        if isinstance(node, str):
            name = node if "." in node or not namespace else f"{namespace}.{node}"
            found = self._others.get(name, self._others.get(node))
            if found is None or name in self._done:
                return node
            self._done.add(name)
            return self._of(found, namespace)
        if isinstance(node, list):
            return [self._of(each, namespace) for each in node]
        if not isinstance(node, dict):
            return node
        namespace = str(node.get("namespace", namespace))
        made = dict(node)
        for inside in ("items", "values"):
            if inside in node:
                made[inside] = self._of(node[inside], namespace)
        if isinstance(node.get("type"), dict | list):
            made["type"] = self._of(node["type"], namespace)
        if "fields" in node:
            made["fields"] = [each | {"type": self._of(each["type"], namespace)} for each in node["fields"]]
        return made


def _name(content: Any) -> str:
    if isinstance(content, dict):
        return str(content.get("name") or content.get("type"))
    return "a union" if isinstance(content, list) else str(content)
