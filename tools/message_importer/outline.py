"""Writes the outline that the tests go by: every field's type and versions, and where topics are named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from message_importer.schema import Field, MessageSchema, StructSchema, Versions, snake_case, walk


def outline_source(messages: list[MessageSchema]) -> str:
    """Return ``tests/wire/outline.json``, one message per line."""
    lines = [f"{json.dumps(snake_case(m.name))}: {json.dumps(_message(m))}" for m in messages]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _message(message: MessageSchema) -> dict[str, Any]:
    return {
        "name": message.name,
        "versions": _range(message.versions),
        "topics": list(_topics(message.root, "")),
        "structs": {struct.name: _fields(struct) for struct in walk(message)},
    }


def _fields(struct: StructSchema) -> dict[str, list[Any]]:
    return {f.name: [_kind(f), _range(f.versions), _range(f.nullable), f.tag] for f in struct.fields}


def _topics(struct: StructSchema, way: str) -> Iterator[str]:
    for f in struct.fields:
        if f.entity == "topicName":
            yield way + f.name
        elif f.struct is not None:
            yield from _topics(f.struct, f"{way}{f.name}.")


def _kind(f: Field) -> str:
    return "[]" * f.array + f.kind


def _range(versions: Versions) -> list[int]:
    return [versions.low, versions.high]
