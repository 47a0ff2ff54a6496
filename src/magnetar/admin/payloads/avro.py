"""Avro as JSON and back, by fastavro.

Bytes are ``{"base64": ...}``; dates and times are ISO 8601, decimals and UUIDs texts. A union's value stands as it is;
where several branches could mean it, the first does, unless the JSON names one as Avro's own JSON encoding has it,
``{"string": "x"}``.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.schema import SchemaParseException

from magnetar.schema_registry.avro_bounds import AvroBounds
from magnetar.schema_registry.framing import Undecodable, reason_of

_INTEGERS = {"int": 1 << 31, "long": 1 << 63}
_MAX_DEPTH = 200


class AvroPayload:
    """One schema; raises ``ValueError`` for what is none."""

    def __init__(self, text: str, references: tuple[tuple[str, str], ...] = ()) -> None:
        self._known: dict[str, Any] = {}
        plain: dict[str, Any] = {}
        try:
            for _, each in references:
                _parse(each, self._known)
                parse_schema(_bare(json.loads(each)), plain)
            self._schema = _parse(text, self._known)
            self._plain = parse_schema(_bare(json.loads(text)), plain)
        except (ValueError, KeyError, TypeError, RecursionError, SchemaParseException) as error:
            raise ValueError(f"it is no Avro schema: {reason_of(error)}") from None
        self._bounds = AvroBounds(self._schema, self._known)
        self.name = self._schema.get("name", "") if isinstance(self._schema, dict) else str(self._schema)

    def decode(self, data: memoryview) -> Any:
        """Return the value as JSON has it; raise `Undecodable`."""
        self._bounds.check(data)
        try:
            return as_json(self._read(self._schema, data))
        except Undecodable:
            raise
        except Exception:
            # A time that no calendar has, a decimal of too many digits: the plain numbers can be shown still.
            try:
                return as_json(self._read(self._plain, data))
            except Undecodable:
                raise
            except Exception as error:
                raise Undecodable(f"it is not Avro of its schema: {reason_of(error)}") from None

    def encode(self, value: Any) -> bytes:
        """Return the bytes of a value as JSON has it; raise ``ValueError`` that says where it does not fit."""
        out = io.BytesIO()
        fitted = self._fit(self._schema, value, "", 0)
        try:
            schemaless_writer(out, self._schema, fitted)
        except Exception as error:
            raise ValueError(f"it does not fit the schema: {reason_of(error)}") from None
        return out.getvalue()

    def _read(self, schema: Any, data: memoryview) -> Any:
        source = io.BytesIO(data)
        found = schemaless_reader(source, schema, None)
        if left := len(data) - source.tell():
            raise Undecodable(f"it is not Avro of its schema: {left} bytes are left over")
        return found

    def _fit(self, schema: Any, value: Any, path: str, depth: int) -> Any:
        """Return the value as fastavro writes it."""
        if depth > _MAX_DEPTH:
            raise ValueError(f"it is nested more than {_MAX_DEPTH} deep")
        if isinstance(schema, list):
            return self._branch(schema, value, path, depth)
        if isinstance(schema, str):
            if schema in self._known:
                return self._fit(self._known[schema], value, path, depth + 1)
            return _plain(schema, value, path)
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self._fit(kind, value, path, depth + 1)
        if "logicalType" in schema and (fitted := _logical(schema, value, path)) is not None:
            return fitted
        if kind in ("record", "error"):
            return self._record(schema, value, path, depth)
        if kind == "enum":
            if value not in schema["symbols"]:
                raise _wrong(path, f"is one of {', '.join(schema['symbols'])}", value)
            return value
        if kind == "fixed":
            data = _bytes(value, path)
            if len(data) != schema["size"]:
                raise _wrong(path, f"takes {schema['size']} bytes", value)
            return data
        if kind == "array":
            if not isinstance(value, list):
                raise _wrong(path, "is an array", value)
            return [
                self._fit(schema["items"], each, f"{path}[{at}]", depth + 1) for at, each in enumerate(value)
            ]
        if kind == "map":
            if not isinstance(value, dict):
                raise _wrong(path, "is a map", value)
            return {
                name: self._fit(schema["values"], each, f"{path}.{name}", depth + 1)
                for name, each in value.items()
            }
        return _plain(kind, value, path)

    def _record(self, schema: Any, value: Any, path: str, depth: int) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _wrong(path, f"is a record {schema['name']}", value)
        names = {each["name"] for each in schema["fields"]}
        if unknown := [name for name in value if name not in names]:
            raise ValueError(
                f"{path or 'the record'} has no field {unknown[0]!r}; it has {', '.join(sorted(names))}"
            )
        made = {}
        for each in schema["fields"]:
            name = each["name"]
            if name in value:
                made[name] = self._fit(each["type"], value[name], f"{path}.{name}".lstrip("."), depth + 1)
            elif "default" in each:
                made[name] = self._fit(each["type"], each["default"], f"{path}.{name}", depth + 1)
            else:
                raise ValueError(f"{f'{path}.{name}'.lstrip('.')} is missing, and has no default")
        return made

    def _branch(self, schema: list[Any], value: Any, path: str, depth: int) -> Any:
        named = next(iter(value)) if isinstance(value, dict) and len(value) == 1 else None
        for each in schema:
            name = _name(each)
            if named == name and name != "base64":
                return name, self._fit(each, value[name], path, depth + 1)
        wrong: list[ValueError] = []
        for each in schema:
            try:
                fitted = self._fit(each, value, path, depth + 1)
            except ValueError as error:
                if each != "null":
                    wrong.append(error)
                continue
            return fitted if each == "null" else (_name(each), fitted)
        raise wrong[0] if len(wrong) == 1 else _wrong(path, f"is {' or '.join(map(_name, schema))}", value)


def as_json(value: Any) -> Any:
    """Return what JSON can say of a value that fastavro read."""
    if isinstance(value, Mapping):
        return {name: as_json(each) for name, each in value.items()}
    if isinstance(value, list):
        return [as_json(each) for each in value]
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)  # JSON has no such numbers
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _parse(text: str, known: dict[str, Any]) -> Any:
    return parse_schema(json.loads(text), known)


def _bare(schema: Any) -> Any:
    """Return a schema without logical types."""
    if isinstance(schema, list):
        return [_bare(each) for each in schema]
    if isinstance(schema, dict):
        return {
            name: each if name == "default" else _bare(each)
            for name, each in schema.items()
            if name != "logicalType"
        }
    return schema


def _name(schema: Any) -> str:
    if isinstance(schema, str):
        return schema
    return str(schema.get("name") or schema["type"])


def _plain(kind: str, value: Any, path: str) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind in _INTEGERS:
        bound = _INTEGERS[kind]
        if isinstance(value, int) and is_number and -bound <= value < bound:
            return value
    elif kind in ("float", "double"):
        if is_number:
            return float(value)
        if value in ("nan", "inf", "-inf"):
            return float(value)
    elif kind == "boolean":
        if isinstance(value, bool):
            return value
    elif kind == "string":
        if isinstance(value, str):
            return value
    elif kind == "bytes":
        return _bytes(value, path)
    elif value is None:
        return None
    raise _wrong(path, f"is {kind}", value)


def _bytes(value: Any, path: str) -> bytes:
    """Read ``{"base64": ...}``, or Avro's own text in which a character is a byte."""
    try:
        if isinstance(value, dict) and value.keys() == {"base64"}:
            return base64.b64decode(value["base64"], validate=True)
        if isinstance(value, str):
            return value.encode("latin-1")
    except (binascii.Error, TypeError, ValueError):
        pass
    raise _wrong(path, 'is bytes, {"base64": ...}', value)


_READS: dict[str, Callable[[str], Any]] = {
    "timestamp-millis": datetime.fromisoformat,
    "timestamp-micros": datetime.fromisoformat,
    "local-timestamp-millis": datetime.fromisoformat,
    "local-timestamp-micros": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time-millis": time.fromisoformat,
    "time-micros": time.fromisoformat,
    "uuid": UUID,
    "decimal": Decimal,
}


def _logical(schema: Any, value: Any, path: str) -> Any:
    """Return what a text says of a logical type; None where the value is to be read as the plain type."""
    read = _READS.get(schema["logicalType"])
    if read is None or isinstance(value, dict | bool) or value is None:
        return None
    if isinstance(value, str):
        try:
            return read(value)
        except (ValueError, InvalidOperation):
            raise _wrong(path, f"is {schema['logicalType']}", value) from None
    return Decimal(str(value)) if schema["logicalType"] == "decimal" else None


def _wrong(path: str, wanted: str, value: Any) -> ValueError:
    shown = json.dumps(value, ensure_ascii=False, default=str)
    shown = shown if len(shown) <= 60 else f"{shown[:60]}..."
    return ValueError(f"{path or 'the value'} {wanted}, and not {shown}")
