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

from magnetar.pipeline.jobs.decode.columns import column, merge, missing
from magnetar.pipeline.jobs.decode.registry import RegisteredSchema, RegistryClient, registry
from magnetar.pipeline.jobs.decode.wire import Undecodable, message_indexes, unframe
from magnetar.pipeline.jobs.spec import ProjectSpec, RegistrySpec, SpecError, TopicSpec


class SchemaGrew(Exception):
    """A schema was registered while the run was under way, and its fields have no columns yet: run again."""


class RecordDecoder(Protocol):
    """What reads records of one schema."""

    type: pa.StructType

    def read(self, data: memoryview) -> dict[str, Any]: ...


class Decoder:
    """Decodes values of one topic; small enough to travel to workers."""

    def __init__(
        self, topic: TopicSpec, spec: RegistrySpec | None, fields: pa.StructType, defaults: Any
    ) -> None:
        self.fields = fields
        self._topic = topic
        self._registry = spec
        self._defaults = defaults

    @property
    def type(self) -> pa.StructType:
        """What `decode` gives: the record's columns, the schema's id, and the error."""
        return pa.struct([("row", self.fields), ("schema_id", pa.int32()), ("error", pa.string())])

    def decode(self, values: pa.Array) -> pa.StructArray:
        """Return columns, schema id and error per value; all null for a null."""
        rows: list[dict[str, Any] | None] = []
        ids: list[int | None] = []
        errors: list[str | None] = []
        read = _reader(self._topic, self._registry, self)
        for value in values.to_pylist():
            row = schema_id = error = None
            if value is not None:
                try:
                    schema_id, row = read(value)
                except Undecodable as why:
                    schema_id, error = getattr(why, "schema_id", None), str(why)
            rows.append(row)
            ids.append(schema_id)
            errors.append(error)
        columns = column(rows, self.fields, errors)
        return pa.StructArray.from_arrays(
            [columns, pa.array(ids, pa.int32()), pa.array(errors, pa.string())], fields=list(self.type)
        )

    def completed(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return a row with the defaults of fields that its version lacks."""
        for name, default in self._defaults:
            if name not in row:
                row[name] = default
        return row

    def check(self, schema: RegisteredSchema, kind: pa.StructType, client: RegistryClient) -> None:
        """See that a schema met on the way fits the columns; raise `SchemaGrew` or `Undecodable`."""
        lacking = missing(kind, self.fields)
        if not lacking:
            return
        told = f"schema {schema.schema_id} has fields without a column: {', '.join(lacking)}"
        for subject in self._topic.subjects:
            if any(each.schema_id == schema.schema_id for each in client.versions(subject)):
                raise SchemaGrew(f"{told}. It was registered during this run; run again, and they are added")
        raise Undecodable(f"{told}, and it is of none of the subjects {', '.join(self._topic.subjects)}")


def plan(topic: TopicSpec, project: ProjectSpec) -> Decoder:
    """Find out the columns of a topic that is Avro or Protobuf; raise `SpecError` or ``RegistryError``."""
    try:
        if topic.schema_file is not None:
            known: list[Any] = [_of_file(topic)]
        else:
            assert project.registry is not None
            known = _versions(topic, registry(project.registry))
    except (ValueError, OSError) as error:
        raise SpecError(f"topics.{topic.topic}: {error}") from None
    defaults: dict[str, Any] = {}
    for each in known:
        defaults |= getattr(each, "defaults", {})
    return Decoder(topic, project.registry, merge(each.type for each in known), tuple(defaults.items()))


def _versions(topic: TopicSpec, client: RegistryClient) -> list[Any]:
    found = [schema for subject in topic.subjects for schema in client.versions(subject)]
    if not found:
        raise SpecError(
            f"topics.{topic.topic}.subjects: the registry has no subject {' or '.join(topic.subjects)}; register a "
            "schema, or name the subjects that the producers use"
        )
    return [_reading(topic, each) for each in found]


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


def _reader(
    topic: TopicSpec, spec: RegistrySpec | None, decoder: Decoder
) -> Callable[[bytes], tuple[int | None, dict[str, Any]]]:
    """Return what reads one value."""
    if topic.schema_file is not None:
        fixed = _of_file(topic)
        return lambda value: (None, fixed.read(memoryview(value)))
    assert spec is not None
    client = registry(spec)
    checked: dict[tuple[int, tuple[int, ...]], RecordDecoder | str] = {}

    def find(schema_id: int, indexes: tuple[int, ...]) -> RecordDecoder | str:
        try:
            schema = client.schema(schema_id)
            found = _reading(topic, schema, indexes or None)
            decoder.check(schema, found.type, client)
        except (Undecodable, ValueError) as why:
            return str(why)
        return found

    def read(value: bytes) -> tuple[int | None, dict[str, Any]]:
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
            return schema_id, decoder.completed(found.read(data))
        except Undecodable as why:
            why.schema_id = schema_id  # type: ignore[attr-defined]
            raise

    return read
