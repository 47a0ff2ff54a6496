"""JSON by Spark itself: from_json, and words for what it cannot read.

With a registry, values carry magic 0 and a schema id before the JSON, and the columns come from the JSON Schemas of
the topic's subjects:

    integer, number, boolean, string     long, double, boolean, string
    object with properties, array        struct, array
    [T, "null"], oneOf/anyOf with null   T
    anything else                        string: the JSON as it stands
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from magnetar.pipeline.jobs.decode.columns import TEXT, merge
from magnetar.pipeline.jobs.decode.registry import registry
from magnetar.pipeline.jobs.spec import ProjectSpec, SpecError, TopicSpec

_PLAIN = {"integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_(), "string": TEXT}


def columns_of(topic: TopicSpec, project: ProjectSpec) -> str:
    """Return a topic's columns as Spark DDL; raise `SpecError` or ``RegistryError``."""
    if topic.schema:
        return topic.schema.strip()
    try:
        if topic.schema_file is not None:
            text = topic.schema_file.read_text()
            return text.strip() if topic.schema_file.suffix == ".ddl" else ddl(_fields(text))
        assert project.registry is not None
        client = registry(project.registry)
        known = [each for subject in topic.subjects for each in client.versions(subject)]
        if not known:
            raise SpecError(
                f"topics.{topic.topic}.subjects: the registry has no subject {' or '.join(topic.subjects)}"
            )
        for each in known:
            if each.kind != "JSON":
                raise ValueError(f"schema {each.schema_id} is {each.kind}, but the topic's format is json")
        return ddl(merge(_fields(each.text) for each in known))
    except (ValueError, OSError) as error:
        raise SpecError(f"topics.{topic.topic}: {error}") from None


def _fields(text: str) -> pa.StructType:
    schema = json.loads(text)
    found = _kind(schema, schema)
    if not pa.types.is_struct(found):
        raise ValueError("a JSON Schema must be an object with properties to become columns")
    return found


def _kind(schema: Any, root: Any, depth: int = 0) -> pa.DataType:
    """Return the Arrow type of a JSON Schema."""
    if not isinstance(schema, dict) or depth > 50:
        return TEXT
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return _kind(_follow(reference, root), root, depth + 1)
    for ways in (schema.get("oneOf"), schema.get("anyOf")):
        if isinstance(ways, list):
            others = [each for each in ways if not (isinstance(each, dict) and each.get("type") == "null")]
            return _kind(others[0], root, depth + 1) if len(others) == 1 else TEXT
    kind = schema.get("type")
    if isinstance(kind, list):
        kinds = [each for each in kind if each != "null"]
        kind = kinds[0] if len(kinds) == 1 else None
    if kind == "object" and schema.get("properties"):
        return pa.struct(
            [(name, _kind(each, root, depth + 1)) for name, each in schema["properties"].items()]
        )
    if kind == "array":
        return pa.list_(_kind(schema.get("items"), root, depth + 1))
    return _PLAIN.get(str(kind), TEXT)


def _follow(reference: str, root: Any) -> Any:
    found = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def ddl(fields: pa.StructType) -> str:
    """Return columns as Spark DDL."""
    return ", ".join(f"{_quoted(each.name)} {_ddl_type(each.type)}" for each in fields)


def _ddl_type(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        inside = ", ".join(f"{_quoted(each.name)}: {_ddl_type(each.type)}" for each in kind)
        return f"STRUCT<{inside}>"
    if pa.types.is_list(kind):
        return f"ARRAY<{_ddl_type(kind.value_type)}>"
    return {pa.int64(): "BIGINT", pa.float64(): "DOUBLE", pa.bool_(): "BOOLEAN"}.get(kind, "STRING")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
