"""JSON by Spark itself: from_json, and words for what it cannot read.

With a registry, values carry magic 0 and a schema id before the JSON, and the columns come from the JSON Schemas of
the topic's subjects:

    integer, number, boolean, string     long, double, boolean, string
    object with properties, array        struct, array
    [T, "null"], oneOf/anyOf with null   T
    anything else                        string: the JSON as it stands

Columns are placed as for the other formats (`magnetar.pipeline.jobs.decode.placing`). from_json has one type for a
name, so versions whose fields go to different columns are parsed in different ways, each by its own names and types.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from magnetar.pipeline.jobs.decode.fields import TEXT, FieldFacts, counterpart, distinct, merge
from magnetar.pipeline.jobs.decode.placing import Moved, VersionFields, placed_by_setting
from magnetar.pipeline.jobs.decode.registry import registry
from magnetar.pipeline.jobs.decode.reserved import RESERVED
from magnetar.pipeline.jobs.decode.there import columns_there
from magnetar.pipeline.jobs.spec import ProjectSpec, SpecError, TopicSpec

_PLAIN = {"integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_(), "string": TEXT}
_NOTHING_TOLD = FieldFacts()
_ENVELOPE = ("before", "after", "op")


@dataclass(frozen=True)
class JsonWay:
    """How records of some schemas are parsed; ``ids`` is empty for those of all others."""

    ids: tuple[int, ...]
    parsed: str
    """DDL with the names that the JSON has."""
    columns: tuple[tuple[str, str], ...] = ()
    """The columns that these become, in the same order: name and type. None where the names are the columns'."""


@dataclass(frozen=True)
class JsonPlan:
    """The columns of a topic of JSON, as DDL and one by one, and how records become these."""

    ddl: str
    ways: tuple[JsonWay, ...]
    columns: tuple[tuple[str, str], ...] = ()
    moved: tuple[Moved, ...] = ()
    dead: Mapping[int, str] | None = None
    """Why records of these schemas are dead letters."""


def plan_json(topic: TopicSpec, project: ProjectSpec) -> JsonPlan:
    """Return how a topic's records are parsed; raise `SpecError` or ``RegistryError``."""
    try:
        if topic.schema:
            return _as_given(topic.schema.strip())
        if topic.schema_file is not None:
            text = topic.schema_file.read_text()
            if topic.schema_file.suffix == ".ddl":
                return _as_given(text.strip())
            known = [(0, _fields(text))]
        else:
            assert project.registry is not None
            known = _registered(topic, project)
        return _placed(topic, project, [(number, _row_of(topic, fields)) for number, fields in known])
    except (ValueError, OSError) as error:
        raise SpecError(f"topics.{topic.topic}: {error}") from None


def columns_of(topic: TopicSpec, project: ProjectSpec) -> str:
    """Return a topic's columns as Spark DDL; raise `SpecError` or ``RegistryError``."""
    return plan_json(topic, project).ddl


def _as_given(columns: str) -> JsonPlan:
    return JsonPlan(columns, (JsonWay((), columns),))


def _registered(topic: TopicSpec, project: ProjectSpec) -> list[tuple[int, pa.StructType]]:
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
    return [(each.schema_id, _fields(each.text)) for each in known]


def _row_of(topic: TopicSpec, fields: pa.StructType) -> pa.StructType:
    """Return the fields of the row, where a schema is of Debezium's envelope."""
    if topic.envelope != "debezium" or not set(_ENVELOPE) <= set(fields.names):
        return fields
    rows = [kind for name in _ENVELOPE[:2] if pa.types.is_struct(kind := fields.field(name).type)]
    if not rows:
        raise ValueError("the schema's before and after are no objects with properties")
    return merge(rows)


def _placed(topic: TopicSpec, project: ProjectSpec, known: Sequence[tuple[int, pa.StructType]]) -> JsonPlan:
    versions = [VersionFields(number, _renamed(fields, RESERVED), {}) for number, fields in known]
    there, widens = columns_there(project, topic)
    places = placed_by_setting(topic, versions, there, widens)
    columns = tuple((each.name, _ddl_type(each.type)) for each in places.fields)
    homes = [set(where.values()) for where in places.columns.values()]
    ways: dict[tuple[str, tuple[tuple[str, str], ...]], list[int]] = {}
    moved = {each.column for each in places.moved} | {each.base for each in places.moved}
    for (number, fields), version, home in zip(known, versions, homes, strict=True):
        names = {column: name for name, column in places.columns[number].items()}
        raw = dict(zip(version.type.names, fields, strict=True))
        # A field that no version has yet under this id may be there all the same, but for those that moved.
        here = [each for each in places.fields if each.name in home or each.name not in moved]
        parsed = ", ".join(_parsed_field(each, raw.get(names.get(each.name, ""))) for each in here)
        named = tuple((each.name, _ddl_type(each.type)) for each in here)
        ways.setdefault((parsed, named), []).append(number)
    # The newest version's way is that of records of schemas that came since.
    newest = next(way for way, ids in ways.items() if known[-1][0] in ids)
    made = [JsonWay(tuple(ids), *way) for way, ids in ways.items() if way != newest]
    dead = {
        each.schema_id: f"field {each.field} of schema {each.schema_id}: {each.reason}"
        for each in places.moved
    }
    return JsonPlan(
        ", ".join(f"{_quoted(name)} {kind}" for name, kind in columns),
        (*made, JsonWay((), *newest)),
        columns,
        places.moved,
        dead if topic.changed_types == "dead_letters" else None,
    )


def _renamed(kind: pa.DataType, taken: Sequence[str] = ()) -> pa.DataType:
    """Return a type whose records have no names that differ in case only."""
    if pa.types.is_struct(kind):
        names = distinct(kind.names, taken)
        return pa.struct([(name, _renamed(each.type)) for name, each in zip(names, kind, strict=True)])
    return pa.list_(_renamed(kind.value_type)) if pa.types.is_list(kind) else kind


def _parsed_field(column: pa.Field, raw: pa.Field | None) -> str:
    if raw is None:
        return f"{_quoted(column.name)} {_ddl_type(column.type)}"
    return f"{_quoted(raw.name)} {_ddl_type(_by_names_of(raw.type, column.type))}"


def _by_names_of(raw: pa.DataType, kind: pa.DataType) -> pa.DataType:
    """Return a column's type with the names that a version's JSON has within it."""
    if pa.types.is_struct(raw) and pa.types.is_struct(kind):
        theirs = dict(zip(_renamed(raw).names, raw, strict=True))
        fields = []
        for each in kind:
            name = counterpart(each.name, _NOTHING_TOLD, theirs)
            here = None if name is None else theirs[name]
            fields.append(
                (each.name, each.type) if here is None else (here.name, _by_names_of(here.type, each.type))
            )
        return pa.struct(fields)
    if pa.types.is_list(raw) and pa.types.is_list(kind):
        return pa.list_(_by_names_of(raw.value_type, kind.value_type))
    return kind


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


def _ddl_type(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        inside = ", ".join(f"{_quoted(each.name)}: {_ddl_type(each.type)}" for each in kind)
        return f"STRUCT<{inside}>"
    if pa.types.is_list(kind):
        return f"ARRAY<{_ddl_type(kind.value_type)}>"
    return {pa.int64(): "BIGINT", pa.float64(): "DOUBLE", pa.bool_(): "BOOLEAN"}.get(kind, "STRING")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
