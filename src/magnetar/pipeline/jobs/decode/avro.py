"""Avro by fastavro: schemas as Arrow types, and records of any version of a schema.

Every record is read with the schema that it was written with, so that no field of an old version is lost. A field
that its version lacks gets the default of the newest version that has the field, as Avro's own resolution would give;
that goes for records within records too.

    null, boolean, int, long, float, double, bytes, string    the same
    record, array, map                                        struct, array, map<string, ...>
    a record without fields                                   struct<_present: boolean>
    enum, uuid                                                string
    fixed                                                     binary
    [null, T]                                                 T
    other unions, and records that hold themselves            string (`magnetar.pipeline.jobs.decode.text`)
    date, timestamp-*, decimal                                date, timestamp, decimal; local-timestamp-* as UTC
    time-millis, time-micros, duration                        string, as in 12:30:00.001000; binary
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from fastavro import parse_schema, schemaless_reader
from fastavro.schema import SchemaParseException

from magnetar.pipeline.jobs.decode.avro_values import bare, record_shape, understood
from magnetar.pipeline.jobs.decode.fields import Facts
from magnetar.pipeline.jobs.decode.registry import RegisteredSchema
from magnetar.pipeline.jobs.decode.reserved import RESERVED
from magnetar.schema_registry.avro_bounds import AvroBounds
from magnetar.schema_registry.framing import Undecodable, reason_of


class AvroDecoder:
    """One schema: its Arrow type, and how its records are read. Raises ``ValueError`` for what is no Avro record."""

    def __init__(self, schema: RegisteredSchema) -> None:
        known: dict[str, Any] = {}
        plain: dict[str, Any] = {}
        try:
            for _, each in _flat(schema.references):
                _parsed(each.text, known, plain)
            parsed, self._plain = _parsed(schema.text, known, plain)
        except (ValueError, SchemaParseException) as error:
            raise ValueError(f"schema {schema.schema_id} is not Avro: {error}") from None
        if not isinstance(parsed, dict) or parsed.get("type") != "record":
            raise ValueError(f"schema {schema.schema_id} is not a record, so it has no columns")
        self._bounds = AvroBounds(parsed, known)
        shape = record_shape(parsed, known, (), RESERVED)
        self.type: pa.StructType = shape.type
        self.facts: Facts = shape.inside
        self._convert = shape.convert

    def read(self, data: memoryview) -> dict[str, Any]:
        """Return one record; raise `Undecodable`."""
        self._bounds.check(data)
        source = io.BytesIO(data)
        try:
            found = schemaless_reader(
                source, self._plain, None, return_record_name=True, return_record_name_override=True
            )
            rest = len(data) - source.tell()
        except Exception as error:  # fastavro's readers raise whatever the bytes lead to
            raise Undecodable(f"it is not Avro of its schema: {reason_of(error)}") from None
        if rest:
            raise Undecodable(f"it is not Avro of its schema: {rest} bytes are left over")
        try:
            return self._convert(found)  # type: ignore[no-any-return]
        except Exception as error:  # what is in order by its bytes may yet have no place in a column
            raise Undecodable(f"its values cannot be converted: {reason_of(error)}") from None


def _parsed(text: str, known: dict[str, Any], plain: dict[str, Any]) -> tuple[Any, Any]:
    """Return a schema as it is, and as fastavro is to read by it."""
    schema = json.loads(text)
    return parse_schema(understood(schema), known), parse_schema(bare(schema), plain)


def _flat(references: Iterable[tuple[str, RegisteredSchema]]) -> Iterable[tuple[str, RegisteredSchema]]:
    for name, schema in references:
        yield from _flat(schema.references)
        yield name, schema
