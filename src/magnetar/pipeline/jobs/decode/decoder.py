"""The decoder of one topic: planned on the driver, run on the workers, by batch.

The driver asks for all schemas first, because the table's columns must be known before a run begins. A worker meets
an id that was registered since: if its fields fit the columns, it is read; if its subject is one of the topic's, the
run ends and the next one adds the columns; otherwise the record becomes a dead letter, for nothing of it may be lost
silently.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

import pyarrow as pa

from magnetar.pipeline.jobs.decode.columns import column, conformed
from magnetar.pipeline.jobs.decode.fields import Facts, FieldFacts, lacking, merged
from magnetar.pipeline.jobs.decode.placing import Placed, VersionFields, placed_by_setting, renamed
from magnetar.pipeline.jobs.decode.registry import (
    RegisteredSchema,
    RegistryClient,
    RegistryUnavailable,
    registry,
)
from magnetar.pipeline.jobs.decode.there import NO_TABLE, columns_there
from magnetar.pipeline.jobs.spec import ProjectSpec, RegistrySpec, SpecError, TopicSpec
from magnetar.schema_registry.framing import Undecodable, message_indexes, reason_of, unframe

OP = "\0op"
"""Where a row that was in an envelope has what became of it; no field has such a name."""
_OPS = ("c", "u", "r", "d")
_SIDES = ("before", "after")


class SchemaGrew(Exception):
    """A schema was registered while the run was under way, and its fields have no columns yet: run again."""


class RecordDecoder(Protocol):
    """What reads records of one schema."""

    type: pa.StructType
    facts: Facts

    def read(self, data: memoryview) -> dict[str, Any]: ...


class HasRegistry(Protocol):
    """What names the registry that topics' schemas are in: a project, or what stands for one."""

    @property
    def registry(self) -> RegistrySpec | None: ...


class Enveloped:
    """Debezium's envelope around records of one schema: the row is ``after``, or ``before`` of what was deleted."""

    def __init__(self, version: RecordDecoder) -> None:
        sides = [version.type.field(name).type for name in _SIDES if name in version.type.names]
        if len(sides) != len(_SIDES) or "op" not in version.type.names:
            raise ValueError(
                f"envelope debezium needs fields before, after and op; the schema has {', '.join(version.type.names)}"
            )
        if not all(pa.types.is_struct(each) for each in sides):
            raise ValueError("envelope debezium needs records in before and after")
        inside = [version.facts.get(name, FieldFacts()).inside for name in _SIDES]
        self.type, self.facts = merged(zip(sides, inside, strict=True))
        self._read = version.read

    def read(self, data: memoryview) -> dict[str, Any]:
        """Return one row, and Debezium's op under the name `OP`; raise `Undecodable`."""
        found = self._read(data)
        op = found["op"]
        if op not in _OPS:
            told = "it is no Debezium change: it has no op" if op is None else (
                f"Debezium's op '{op}' changes no row that has a key"
            )  # fmt: skip
            raise Undecodable(told)
        row = found["before" if op == "d" else "after"]
        if row is None and op != "d":
            raise Undecodable(f"Debezium's op '{op}' lacks after")
        return {**(row or {}), OP: op}


class Decoder:
    """Decodes values of one topic; small enough to travel to workers."""

    def __init__(self, topic: TopicSpec, spec: RegistrySpec | None, places: Placed) -> None:
        self.fields = places.fields
        self.moved = places.moved
        self._topic = topic
        self._registry = spec
        self._facts = places.facts
        self._columns = places.columns

    @property
    def type(self) -> pa.StructType:
        """What `decode` gives: the record's columns, the schema's id, the error, and Debezium's op or null."""
        return pa.struct(
            [("row", self.fields), ("schema_id", pa.int32()), ("error", pa.string()), ("op", pa.string())]
        )

    def decode(self, values: pa.Array) -> pa.StructArray:
        """Return columns, schema id, error and op per value; all null for a null."""
        rows: dict[int, dict[str, Any]] = {}
        versions: dict[int, tuple[RecordDecoder, list[int]]] = {}
        ids: list[int | None] = [None] * len(values)
        errors: list[str | None] = [None] * len(values)
        read = _reader(self._topic, self._registry, self)
        for at, value in enumerate(values.to_pylist()):
            if value is None:
                continue
            try:
                ids[at], version, rows[at] = read(value)
                versions.setdefault(id(version), (version, []))[1].append(at)
            except Undecodable as why:
                ids[at], errors[at] = getattr(why, "schema_id", None), str(why)
        groups = [(ids[there[0]], version, there) for version, there in versions.values()]
        ops = [rows[at].pop(OP, None) if at in rows else None for at in range(len(values))]
        columns = self._together(groups, rows, errors)
        told = [pa.array(ids, pa.int32()), pa.array(errors, pa.string()), pa.array(ops, pa.string())]
        return pa.StructArray.from_arrays([columns, *told], fields=list(self.type))

    def _together(
        self, versions: list[tuple[int | None, RecordDecoder, list[int]]], rows: dict[int, Any],
        errors: list[str | None],
    ) -> pa.StructArray:  # fmt: skip
        """Return the rows of all versions in the table's columns, at their places."""
        parts, places = [pa.nulls(1, self.fields)], [0] * len(errors)
        for schema_id, version, there in versions:
            wrong: list[str | None] = [None] * len(there)
            made = column([rows[at] for at in there], version.type, wrong)
            for number, at in enumerate(there):
                places[at], errors[at] = sum(map(len, parts)) + number, wrong[number]
            made = renamed(made, self._columns.get(schema_id or 0, {}))
            parts.append(conformed(made, self.fields, self._facts))
        return pa.concat_arrays(parts).take(pa.array(places, pa.int32()))

    def refused(self, schema_id: int) -> str:
        """Return why all records of a schema are dead letters; empty if they are not."""
        if self._topic.changed_types != "dead_letters":
            return ""
        moved = (each for each in self.moved if each.schema_id == schema_id)
        return next((f"field {each.field} of schema {schema_id}: {each.reason}" for each in moved), "")

    def check(self, schema: RegisteredSchema, version: RecordDecoder, client: RegistryClient) -> None:
        """See that a schema met on the way fits the columns; raise `SchemaGrew` or `Undecodable`."""
        if schema.schema_id in self._columns:
            if reason := self.refused(schema.schema_id):
                raise Undecodable(reason)
            return
        without = lacking(version.type, self.fields, self._facts)
        if not without:
            return
        told = f"schema {schema.schema_id} has fields without a column: {', '.join(without)}"
        for subject in self._topic.subjects:
            if any(each.schema_id == schema.schema_id for each in client.versions(subject)):
                raise SchemaGrew(f"{told}. It was registered during this run; run again, and they are added")
        raise Undecodable(f"{told}, and it is of none of the subjects {', '.join(self._topic.subjects)}")


def plan(topic: TopicSpec, project: HasRegistry) -> Decoder:
    """Find out the columns of a topic that is Avro or Protobuf; raise `SpecError` or ``RegistryError``.

    If there is a decoded table that Magnetar writes, its columns are what fields are placed in; what is no project of a
    directory, and has nothing but a registry, has no tables.
    """
    try:
        if topic.schema_file is not None:
            known: list[tuple[int, Any]] = [(0, _opened(topic, _of_file(topic)))]
        else:
            assert project.registry is not None
            known = _versions(topic, registry(project.registry))
    except (ValueError, OSError) as error:
        raise SpecError(f"topics.{topic.topic}: {error}") from None
    versions = [VersionFields(number, each.type, each.facts) for number, each in known]
    there = columns_there(project, topic) if isinstance(project, ProjectSpec) else NO_TABLE
    return Decoder(topic, project.registry, placed_by_setting(topic, versions, *there))


def _versions(topic: TopicSpec, client: RegistryClient) -> list[tuple[int, Any]]:
    found = [schema for subject in topic.subjects for schema in client.versions(subject)]
    if not found:
        raise SpecError(
            f"topics.{topic.topic}.subjects: the registry has no subject {' or '.join(topic.subjects)}; register a "
            "schema, or name the subjects that the producers use"
        )
    return [(each.schema_id, _opened(topic, _reading(topic, each))) for each in found]


def _opened(topic: TopicSpec, version: RecordDecoder) -> RecordDecoder:
    return Enveloped(version) if topic.envelope == "debezium" else version


def _reading(
    topic: TopicSpec, schema: RegisteredSchema, indexes: tuple[int, ...] | None = None
) -> RecordDecoder:
    """Return what reads a schema's records; with ``indexes`` what they say must be the topic's message."""
    wanted = {"avro": "AVRO", "protobuf": "PROTOBUF"}[topic.format]
    if schema.kind != wanted:
        raise ValueError(
            f"schema {schema.schema_id} is {schema.kind}, but the topic's format is {topic.format}"
        )
    if topic.format == "avro":
        avro: RecordDecoder = _avro(schema)
        return avro
    file = _protobuf(schema)
    message: RecordDecoder = file.named(topic.message)
    if indexes is not None and file.message(indexes).name != message.name:  # type: ignore[attr-defined]
        raise Undecodable(f"it is a {file.message(indexes).name}, not a {message.name}")  # type: ignore[attr-defined]
    return message


@cache
def _avro(schema: RegisteredSchema) -> Any:
    from magnetar.pipeline.jobs.decode.avro import AvroDecoder

    return AvroDecoder(schema)


@cache
def _protobuf(schema: RegisteredSchema) -> Any:
    from magnetar.pipeline.jobs.decode.protobuf import of_registry

    return of_registry(schema)


@cache
def _of_file(topic: TopicSpec) -> RecordDecoder:
    assert topic.schema_file is not None
    if topic.format == "avro":
        avro: RecordDecoder = _avro(RegisteredSchema(0, "AVRO", topic.schema_file.read_text()))
        return avro
    from magnetar.pipeline.jobs.decode.protobuf import of_file

    found: RecordDecoder = of_file(topic.schema_file).named(topic.message)
    return found


def _refusing(reason: str) -> Callable[[bytes], Any]:
    def refuse(_: bytes) -> Any:
        raise Undecodable(reason)

    return refuse


def _reader(
    topic: TopicSpec, spec: RegistrySpec | None, decoder: Decoder
) -> Callable[[bytes], tuple[int | None, RecordDecoder, dict[str, Any]]]:
    """Return what reads one value: its schema's id, its version, and its row by that version's fields."""
    if topic.schema_file is not None:
        fixed = _opened(topic, _of_file(topic))
        if reason := decoder.refused(0):
            return _refusing(reason)
        return lambda value: (None, fixed, fixed.read(memoryview(value)))
    assert spec is not None
    client = registry(spec)
    checked: dict[tuple[int, tuple[int, ...]], RecordDecoder | str] = {}

    def find(schema_id: int, indexes: tuple[int, ...]) -> RecordDecoder | str:
        try:
            schema = client.schema(schema_id)
            found = _opened(topic, _reading(topic, schema, indexes or None))
            decoder.check(schema, found, client)
        except (SchemaGrew, RegistryUnavailable):
            raise
        except (
            Exception
        ) as why:  # a record names its schema, so that one which no decoder can be made of is its fault
            return reason_of(why)
        return found

    def read(value: bytes) -> tuple[int | None, RecordDecoder, dict[str, Any]]:
        schema_id, data = unframe(value)
        try:
            indexes: tuple[int, ...] = ()
            if topic.format == "protobuf":
                indexes, data = message_indexes(data)
            key = (schema_id, indexes)
            if key not in checked:
                checked[key] = find(*key)
            found = checked[key]
            if isinstance(found, str):
                raise Undecodable(found)
            return schema_id, found, found.read(data)
        except Undecodable as why:
            why.schema_id = schema_id  # type: ignore[attr-defined]
            raise

    return read
