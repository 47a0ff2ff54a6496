"""Avro by fastavro: schemas as Arrow types, and records of any version of a schema.

Every record is read with the schema that it was written with, so that no field of an old version is lost. A field
that its version lacks gets the default of the newest version that has the field, as Avro's own resolution would give.

    null, boolean, int, long, float, double, bytes, string    the same
    record, array, map                                        struct, array, map<string, ...>
    enum, uuid                                                string
    fixed                                                     binary
    [null, T]                                                 T
    other unions, and records that hold themselves            string: JSON
    date, timestamp-*, decimal                                date, timestamp, decimal; local-timestamp-* as UTC
    time-millis, time-micros, duration                        string, as in 12:30:00.001000; binary
"""

from __future__ import annotations

import datetime
import io
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
from fastavro import parse_schema, schemaless_reader
from fastavro.schema import SchemaParseException

from magnetar.pipeline.jobs.decode.columns import TEXT, as_text
from magnetar.pipeline.jobs.decode.registry import RegisteredSchema
from magnetar.pipeline.jobs.decode.wire import Undecodable

_INSTANT = pa.timestamp("us", tz="UTC")
_PRIMITIVE = {
    "null": TEXT, "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "bytes": pa.binary(), "string": TEXT,
}  # fmt: skip
_LOGICAL = {
    "date": pa.date32(), "timestamp-millis": _INSTANT, "timestamp-micros": _INSTANT, "timestamp-nanos": pa.int64(),
    "local-timestamp-millis": _INSTANT, "local-timestamp-micros": _INSTANT, "uuid": TEXT, "time-millis": TEXT,
    "time-micros": TEXT,
}  # fmt: skip

Convert = Callable[[Any], Any]


class AvroDecoder:
    """One schema: its Arrow type, and how its records are read. Raises ``ValueError`` for what is no Avro record."""

    def __init__(self, schema: RegisteredSchema) -> None:
        known: dict[str, Any] = {}
        try:
            for _, each in _flat(schema.references):
                parse_schema(json.loads(each.text), known)
            parsed = parse_schema(json.loads(schema.text), known)
        except (ValueError, SchemaParseException) as error:
            raise ValueError(f"schema {schema.schema_id} is not Avro: {error}") from None
        if not isinstance(parsed, dict) or parsed.get("type") != "record":
            raise ValueError(f"schema {schema.schema_id} is not a record, so it has no columns")
        self._parsed = parsed
        self.type, self._convert = _record(parsed, known, ())
        self.defaults: dict[str, Any] = {
            field["name"]: field["default"] for field in parsed["fields"] if field.get("default") is not None
        }

    def read(self, data: memoryview) -> dict[str, Any]:
        """Return one record; raise `Undecodable`."""
        source = io.BytesIO(data)
        try:
            found = schemaless_reader(source, self._parsed, None)
            rest = len(data) - source.tell()
        except Exception as error:  # fastavro's readers raise whatever the bytes lead to
            raise Undecodable(f"it is not Avro of its schema: {error or type(error).__name__}") from None
        if rest:
            raise Undecodable(f"it is not Avro of its schema: {rest} bytes are left over")
        return self._convert(found)  # type: ignore[no-any-return]


def _flat(references: Iterable[tuple[str, RegisteredSchema]]) -> Iterable[tuple[str, RegisteredSchema]]:
    for name, schema in references:
        yield from _flat(schema.references)
        yield name, schema


def _same(value: Any) -> Any:
    return value


def _record(
    schema: Mapping[str, Any], known: Mapping[str, Any], inside: tuple[str, ...]
) -> tuple[Any, Convert]:
    inside = (*inside, schema["name"])
    types, converts = [], []
    for field in schema["fields"]:
        kind, convert = _kind(field["type"], known, inside)
        types.append(pa.field(field["name"], kind))
        if convert is not _same:
            converts.append((field["name"], convert))
    if not converts:
        return pa.struct(types), _same

    def converted(row: dict[str, Any]) -> dict[str, Any]:
        for name, convert in converts:
            if row[name] is not None:
                row[name] = convert(row[name])
        return row

    return pa.struct(types), converted


def _kind(schema: Any, known: Mapping[str, Any], inside: tuple[str, ...]) -> tuple[Any, Convert]:
    """Return the Arrow type of a schema, and what makes of fastavro's values such that Arrow takes."""
    if isinstance(schema, list):
        others = [each for each in schema if each != "null"]
        return _kind(others[0], known, inside) if len(others) == 1 else (TEXT, as_text)
    if isinstance(schema, str):
        if schema in _PRIMITIVE:
            return _PRIMITIVE[schema], _same
        return (TEXT, as_text) if schema in inside else _kind(known[schema], known, inside)
    kind, logical = schema["type"], schema.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision = int(schema["precision"])
        if precision <= 38:
            return pa.decimal128(precision, int(schema.get("scale", 0))), _same
        return TEXT, str
    if logical in _LOGICAL and kind in ("int", "long", "string", "fixed"):
        if logical.startswith("local-"):
            return _INSTANT, _as_utc
        return _LOGICAL[logical], str if _LOGICAL[logical] is TEXT else _same
    if kind in ("record", "error"):
        return (TEXT, as_text) if schema["name"] in inside else _record(schema, known, inside)
    if kind == "array":
        item, convert = _kind(schema["items"], known, inside)
        return pa.list_(item), _same if convert is _same else _each(convert)
    if kind == "map":
        item, convert = _kind(schema["values"], known, inside)
        return pa.map_(TEXT, item), _pairs if convert is _same else _pairs_of(convert)
    if kind == "fixed":
        return pa.binary(), _same
    return (TEXT, _same) if kind == "enum" else _kind(kind, known, inside)


def _as_utc(value: Any) -> Any:
    return value.replace(tzinfo=datetime.UTC) if isinstance(value, datetime.datetime) else value


def _pairs(value: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return list(value.items())


def _each(convert: Convert) -> Convert:
    return lambda value: [None if each is None else convert(each) for each in value]


def _pairs_of(convert: Convert) -> Convert:
    return lambda value: [(k, None if each is None else convert(each)) for k, each in value.items()]
