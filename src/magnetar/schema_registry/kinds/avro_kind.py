"""Avro: checked by fastavro, compared by Avro's rules of schema resolution."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from magnetar.schema_registry.avro_compatibility import clashes
from magnetar.schema_registry.avro_types import PRIMITIVES, Type, types_of
from magnetar.schema_registry.errors import InvalidSchema
from magnetar.schema_registry.work import TooComplex, Work, read_json


class AvroSchema:
    """One schema, as the type that it is."""

    def __init__(self, text: str, root: Type) -> None:
        self.text = text
        self.root = root

    def reads(self, writer: Any, work: Work) -> list[str]:
        """Say why this cannot read what ``writer`` wrote."""
        return clashes(self.root, writer.root, work)


def parse(text: str, references: Mapping[str, str], work: Work) -> AvroSchema:
    """Understand an Avro schema; raise `InvalidSchema`. Its text is that given, without blanks."""
    content = _json(text, work)
    try:
        named: dict[str, Any] = {}
        # One schema may be referred to by several names.
        contents = [_json(each, work) for each in dict.fromkeys(references.values())]
        contents.append(content)
        root = types_of(contents, work)
        for each in contents:
            _check(each, named)
    except TooComplex:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidSchema(f"Invalid schema of type AVRO: {error or type(error).__name__}") from None
    return AvroSchema(json.dumps(content, separators=(",", ":"), ensure_ascii=False), root)


def _json(text: str, work: Work) -> Any:
    try:
        return read_json(text, work)
    except TooComplex:
        raise
    except ValueError as error:
        # A primitive type may stand there without quotes, as Confluent's own serializers register them.
        if text.strip() in PRIMITIVES:
            return text.strip()
        raise InvalidSchema(f"Invalid schema of type AVRO: it is not JSON: {error}") from None


def _check(content: Any, named: dict[str, Any]) -> None:
    from fastavro.schema import SchemaParseException, parse_schema

    try:
        parse_schema(content, named_schemas=named, _write_hint=False)
    except SchemaParseException as error:
        raise ValueError(str(error)[:500]) from None
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None
