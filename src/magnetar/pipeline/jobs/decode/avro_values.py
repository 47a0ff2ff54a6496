"""Avro's types as Arrow's, and what makes of an Avro value, or a default in a schema, such that Arrow takes.

fastavro reads plain values, without logical types: what these mean is said here once, for records and for defaults
alike. Moments are whole numbers up to Arrow, so that no calendar of Python's bounds them. Only in unions of several
types, which are text, fastavro has texts made by branch: there a value does not say which of its types it is of.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import time
from decimal import Decimal
from typing import Any

import pyarrow as pa
from fastavro.read import LOGICAL_READERS

from magnetar.pipeline.jobs.decode.fields import TEXT, Facts, FieldFacts, distinct, record_type
from magnetar.pipeline.jobs.decode.text import as_text, date_text, decimal_of, instant_text
from magnetar.pipeline.tables.schema import PRESENT

_INSTANT = pa.timestamp("us", tz="UTC")
_PRIMITIVE = {
    "null": TEXT, "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "bytes": pa.binary(), "string": TEXT,
}  # fmt: skip
_OURS = "magnetar-"
_NESTED = ("record", "error", "map", "array")

Convert = Callable[[Any], Any]
Known = Mapping[str, Any]


def same(value: Any) -> Any:
    """Leave a value as it is."""
    return value


@dataclass(frozen=True)
class Shape:
    """A schema as a column: its type, what converts its values, its values' text, and what its records' fields are."""

    type: pa.DataType
    convert: Convert = same
    text: Convert = same
    inside: Facts = field(default_factory=dict)


def shape_of(schema: Any, known: Known, inside: tuple[str, ...] = ()) -> Shape:
    """Return the shape of a parsed schema; ``known`` has what it names, ``inside`` the records that it is in."""
    if isinstance(schema, list):
        others = [each for each in schema if each != "null"]
        return shape_of(others[0], known, inside) if len(others) == 1 else _of_union(others, known)
    if isinstance(schema, str):
        return Shape(_PRIMITIVE[schema]) if schema in _PRIMITIVE else shape_of(known[schema], known, inside)
    logical = logical_shape(schema)
    if logical is not None:
        return logical
    kind = schema["type"]
    if kind in ("record", "error"):
        return _held(schema, known) if schema["name"] in inside else record_shape(schema, known, inside)
    if kind == "array":
        item = shape_of(schema["items"], known, inside)
        return Shape(pa.list_(item.type), _each(item.convert), _each(item.text), item.inside)
    if kind == "map":
        item = shape_of(schema["values"], known, inside)
        return Shape(pa.map_(TEXT, item.type), _pairs(item.convert), _values(item.text), item.inside)
    if kind == "fixed":
        return Shape(pa.binary())
    return Shape(TEXT) if kind == "enum" else shape_of(kind, known, inside)


def record_shape(
    schema: Mapping[str, Any], known: Known, inside: tuple[str, ...], reserved: Any = ()
) -> Shape:
    """Return the shape of a record: its facts tell fields' defaults and aliases."""
    inside = (*inside, schema["name"])
    fields = schema["fields"]
    columns = distinct((each["name"] for each in fields), reserved)
    shapes = [shape_of(each["type"], known, inside) for each in fields]
    facts = {}
    for column, each, shape in zip(columns, fields, shapes, strict=True):
        default = None if each.get("default") is None else _default(each, shape, known)
        facts[column] = FieldFacts(default, frozenset(each.get("aliases", ())), shape.inside)
    names = [each["name"] for each in fields]
    return Shape(
        record_type(columns, (each.type for each in shapes)),
        _fields([*zip(names, columns, (each.convert for each in shapes), strict=True)]),
        _fields([*zip(names, names, (each.text for each in shapes), strict=True)]),
        facts,
    )


def _default(field: Mapping[str, Any], shape: Shape, known: Known) -> pa.Array | None:
    """Return a field's default as an array of one; None for one that is none of its type, which Avro forbids."""
    try:
        return pa.array([shape.convert(plain_default(field["type"], field["default"], known))], shape.type)
    except Exception:
        return None


def logical_shape(schema: Mapping[str, Any]) -> Shape | None:
    """Return the shape of a logical type; None for one that is not known, or not of this type: it is left aside."""
    kind, logical = schema["type"], schema.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        digits, scale = schema.get("precision"), schema.get("scale", 0)
        if (
            not isinstance(digits, int)
            or not isinstance(scale, int)
            or not 0 <= scale <= digits
            or not digits
        ):
            return None
        convert = _decimal(scale)
        if digits <= 38:
            return Shape(pa.decimal128(digits, scale), convert, lambda value: f"{convert(value):f}")
        text: Convert = lambda value: f"{convert(value):f}"  # noqa: E731
        return Shape(TEXT, text, text)
    if logical == "uuid" and kind == "fixed" and schema["size"] == 16:
        return Shape(TEXT, _uuid, _uuid)
    known = _LOGICAL.get((kind, logical)) if isinstance(kind, str) else None
    return None if known is None else Shape(*known)


def _decimal(scale: int) -> Convert:
    def convert(value: Any) -> Decimal:
        if isinstance(value, str):  # of a type with a name that a union has, too
            return Decimal(value)
        return decimal_of(value, scale)

    return convert


def _uuid(value: Any) -> str:
    return value if isinstance(value, str) else str(uuid.UUID(bytes=value))


def _micros(per_unit: int) -> Convert:
    return lambda value: value * per_unit


def _time(per_second: int) -> Convert:
    def convert(value: int) -> str:
        seconds, rest = divmod(value, per_second)
        if not 0 <= seconds < 86_400:
            raise ValueError(f"{value} is no time of a day")
        return str(time(seconds // 3600, seconds // 60 % 60, seconds % 60, rest * (1_000_000 // per_second)))

    return convert


_LOGICAL: dict[tuple[str, Any], tuple[Any, ...]] = {
    ("int", "date"): (pa.date32(), same, date_text),
    ("string", "uuid"): (TEXT,),
    ("int", "time-millis"): (TEXT, _time(1000), _time(1000)),
    ("long", "time-micros"): (TEXT, _time(1_000_000), _time(1_000_000)),
    **{("long", f"{local}timestamp-millis"): (_INSTANT, _micros(1000), lambda value: instant_text(value * 1000))
       for local in ("", "local-")},
    **{("long", f"{local}timestamp-micros"): (_INSTANT, same, instant_text) for local in ("", "local-")},
}  # fmt: skip


def bare(schema: Any, *, text: bool = False) -> Any:
    """Return a schema's JSON with logical types left away, or, with ``text``, such that fastavro has texts made."""
    if isinstance(schema, list):
        several = sum(each != "null" for each in schema) > 1
        return [bare(each, text=several) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = dict(schema)
    logical = found.pop("logicalType", None)
    if text and logical is not None and logical_shape(schema) is not None:
        found["logicalType"] = f"{_OURS}{logical}"
    for name in ("items", "values"):
        if name in found:
            found[name] = bare(found[name])
    if "fields" in found:
        found["fields"] = [{**each, "type": bare(each["type"])} for each in found["fields"]]
    if isinstance(found.get("type"), dict | list):
        found["type"] = bare(found["type"], text=text)
    return found


def understood(schema: Any) -> Any:
    """Return a schema's JSON without logical types that are not known, or not in order, such as a negative scale.

    Avro's specification has readers leave such a one aside; fastavro refuses the whole schema.
    """
    if isinstance(schema, list):
        return [understood(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = dict(schema)
    if "logicalType" in found and logical_shape(found) is None:
        del found["logicalType"]
    for name in ("type", "items", "values"):
        if name in found:
            found[name] = understood(found[name])
    if "fields" in found:
        found["fields"] = [{**each, "type": understood(each["type"])} for each in found["fields"]]
    return found


def _text_by_schema(value: Any, schema: Mapping[str, Any], _: Any = None) -> Any:
    of = logical_shape({**schema, "logicalType": schema["logicalType"].removeprefix(_OURS)})
    assert of is not None
    return as_text(of.text(value))


def _teach_fastavro() -> None:
    for kind, logical in (*_LOGICAL, ("bytes", "decimal"), ("fixed", "decimal"), ("fixed", "uuid")):
        LOGICAL_READERS[f"{kind}-{_OURS}{logical}"] = _text_by_schema


_teach_fastavro()


def _of_union(branches: list[Any], known: Known) -> Shape:
    """Return the shape of a union of several types: text, by the branch that a value is of."""

    named = [known.get(each, each) if isinstance(each, str) else each for each in branches]
    nested = sorted(
        (each for each in named if isinstance(each, dict) and each["type"] in _NESTED),
        key=lambda each: _NESTED.index(each["type"]),
    )
    made: dict[int, Convert] = {}  # when there is a value: a record may hold itself by a union

    def plain(value: Any) -> Any:
        name = None
        if isinstance(value, tuple):  # a record's name and the record, where it could be one of several
            name, value = value
        for number, each in enumerate(nested) if isinstance(value, dict | list) else ():
            if _is_of(each, value, name):
                if number not in made:
                    made[number] = shape_of(each, known).text
                return made[number](value)
        return value

    return Shape(TEXT, lambda value: as_text(plain(value)), plain)


def _is_of(schema: Mapping[str, Any], value: Any, name: str | None) -> bool:
    kind = schema["type"]
    if kind == "array" or isinstance(value, list):
        return kind == "array" and isinstance(value, list)
    if kind == "map":
        return name is None
    return schema["name"] == name if name else {each["name"] for each in schema["fields"]} == set(value)


def _held(schema: Mapping[str, Any], known: Known) -> Shape:
    """Return the shape of a record within itself: text. What it is made of is found out when there is one."""
    made: list[Convert] = []

    def plain(value: Any) -> Any:
        if not made:
            made.append(record_shape(schema, known, ()).text)
        return made[0](value)

    return Shape(TEXT, lambda value: as_text(plain(value)), plain)


def plain_default(schema: Any, value: Any, known: Known) -> Any:
    """Return a default as fastavro would read it, were it in a record: bytes are Latin-1, fields have defaults too."""
    if isinstance(schema, list):
        return _default_of_union(schema, value, known)
    if isinstance(schema, str):
        if schema in known:
            return plain_default(known[schema], value, known)
        return (
            value.encode("latin-1")
            if schema == "bytes"
            else float(value)
            if schema in ("float", "double")
            else value
        )
    kind = schema["type"]
    if kind in ("record", "error"):
        return {
            each["name"]: plain_default(each["type"], value.get(each["name"], each.get("default")), known)
            for each in schema["fields"]
        }
    if kind == "array":
        return [plain_default(schema["items"], each, known) for each in value]
    if kind == "map":
        return {key: plain_default(schema["values"], each, known) for key, each in value.items()}
    if kind == "fixed":
        return value.encode("latin-1")
    return value if kind == "enum" else plain_default(kind, value, known)


def _default_of_union(branches: list[Any], value: Any, known: Known) -> Any:
    """Return a union's default: of its first type by Avro's rules; registries take one of the others, too."""
    if value is None:
        return None
    others = [each for each in branches if each != "null"]
    for each in others:
        try:
            found = plain_default(each, value, known)
            shape = shape_of(each, known)
            pa.array([shape.convert(found)], shape.type)
        except Exception:
            continue
        # A union of several types is read as text by its branch, see `bare`.
        return found if len(others) == 1 else as_text(shape.text(found))
    raise ValueError(f"{value!r} is no default of {branches}")


def _fields(converts: list[tuple[str, str, Convert]]) -> Convert:
    if not converts:
        return lambda _: {PRESENT: True}
    if all(name == column and convert is same for name, column, convert in converts):
        return same

    def converted(row: Mapping[str, Any]) -> dict[str, Any]:
        return {
            column: None if (value := row[name]) is None else convert(value)
            for name, column, convert in converts
        }

    return converted


def _each(convert: Convert) -> Convert:
    if convert is same:
        return same
    return lambda value: [None if each is None else convert(each) for each in value]


def _pairs(convert: Convert) -> Convert:
    if convert is same:
        return lambda value: list(value.items())
    return lambda value: [(k, None if each is None else convert(each)) for k, each in value.items()]


def _values(convert: Convert) -> Convert:
    return lambda value: {k: None if each is None else convert(each) for k, each in value.items()}
