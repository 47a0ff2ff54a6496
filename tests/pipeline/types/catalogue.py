"""Every type that a schema language can say, with its extreme values, and what a table must have of them.

A case is one field ``v`` of a record (or several fields), the records as a producer writes them, and the rows as
`canonical` gives them, written by hand from the languages' own specifications. `DEAD` stands for a record that must be
a dead letter.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastavro import parse_schema, schemaless_writer

DEAD = "a dead letter"
LANGUAGES = ("Avro", "Protobuf", "JSON Schema", "Pulsar's primitive schemas")


@dataclass(frozen=True)
class Case:
    """One type. ``columns`` are those of the table; a row that has only ``v`` is given by its value."""

    language: str
    name: str
    schema: str
    values: tuple[bytes, ...]
    columns: str
    rows: tuple[Any, ...]
    shown: str = ""

    @property
    def expected(self) -> list[dict[str, Any]]:
        """The rows of the table, without the dead letters."""
        found = []
        for row in self.rows:
            if row != DEAD:
                found.append(row if isinstance(row, dict) and "v" in row else {"v": row})
        return found


def avro(name: str, kind: Any, columns: str, *values: tuple[Any, Any], shown: str = "") -> Case:
    """Return a case of Avro: ``kind`` is the type of ``v``, values are (as fastavro writes it plainly, row)."""
    fields = kind if _is_fields(kind) else [{"name": "v", "type": kind}]
    schema = {"type": "record", "name": "Record", "fields": fields}
    plain = parse_schema(_without_logical(json.loads(json.dumps(schema))))
    written = []
    for value, _ in values:
        out = io.BytesIO()
        schemaless_writer(out, plain, value if _is_fields(kind) else {"v": value})
        written.append(out.getvalue())
    return Case(
        "Avro", name, json.dumps(schema), tuple(written), columns, tuple(row for _, row in values), shown
    )


def _is_fields(kind: Any) -> bool:
    return (
        isinstance(kind, list)
        and bool(kind)
        and isinstance(kind[0], dict)
        and "name" in kind[0]
        and (kind[0].get("type") not in ("record", "enum", "fixed"))
    )


def _without_logical(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: _without_logical(each) for name, each in schema.items() if name != "logicalType"}


def logical(kind: str, of: str, **more: Any) -> dict[str, Any]:
    """Return a logical type of Avro."""
    return {"type": kind, "logicalType": of, **more}


INT, LONG = 2**31 - 1, 2**63 - 1
MICROS_9999 = 253_402_300_799_999_999

_FIXED_ID = {"type": "fixed", "name": "Id", "size": 16, "logicalType": "uuid"}
_POINT = {
    "type": "record",
    "name": "Point",
    "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "double"}],
}
_VOID = {"type": "record", "name": "Void", "fields": []}
_NODE = {
    "type": "record", "name": "Node",
    "fields": [{"name": "x", "type": "int"}, {"name": "next", "type": ["null", "Node"]}],
}  # fmt: skip


def _digits(number: int) -> bytes:
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


AVRO = (
    avro("null", "null", "string", (None, None)),
    avro("boolean", "boolean", "bool", (True, True), (False, False)),
    avro("int", "int", "int32", (INT, INT), (-INT - 1, -INT - 1)),
    avro("long", "long", "int64", (LONG, LONG), (-LONG - 1, -LONG - 1), (2**53 + 1, 2**53 + 1)),
    avro("float", "float", "float", (float("inf"), "Infinity"), (float("nan"), "NaN"), (-0.0, -0.0), (1.5, 1.5)),
    avro("double", "double", "double", (float("-inf"), "-Infinity"), (float("nan"), "NaN"), (5e-324, 5e-324),
         (1.7976931348623157e308, 1.7976931348623157e308)),
    avro("bytes", "bytes", "binary", (b"", "0x"), (b"\0\xff", "0x00ff")),
    avro("string", "string", "string", ("", ""), ("a\0b", "a\0b"), ("\U0001f600é", "\U0001f600é")),
    avro("fixed", {"type": "fixed", "name": "F", "size": 4}, "binary", (b"\0\1\2\xff", "0x000102ff")),
    avro("enum", {"type": "enum", "name": "E", "symbols": ["A", "B"]}, "string", ("B", "B")),
    avro("array of int", {"type": "array", "items": "int"}, "list<int32>", ([], []), ([1, -1], [1, -1])),
    avro("array of [null, string]", {"type": "array", "items": ["null", "string"]}, "list<string>",
         ([None, "a"], [None, "a"])),
    avro("array of arrays", {"type": "array", "items": {"type": "array", "items": "long"}}, "list<list<int64>>",
         ([[], [1]], [[], [1]])),
    avro("map of long", {"type": "map", "values": "long"}, "map<string, int64>", ({}, []),
         ({"": 1, "é": LONG}, [["", 1], ["é", LONG]])),
    avro("map of records", {"type": "map", "values": _POINT}, "map<string, struct<x: int32, y: double>>",
         ({"a": {"x": 1, "y": float("inf")}}, [["a", {"x": 1, "y": "Infinity"}]])),
    avro("record", _POINT, "struct<x: int32, y: double>", ({"x": 1, "y": float("nan")}, {"x": 1, "y": "NaN"})),
    avro("record without fields", _VOID, "struct<_present: bool>", ({}, {"_present": True})),
    avro("[null, record without fields]", ["null", _VOID], "struct<_present: bool>", (None, None),
         ({}, {"_present": True})),
    avro("array of records", {"type": "array", "items": _POINT}, "list<struct<x: int32, y: double>>", ([], []),
         ([{"x": 1, "y": 0.5}], [{"x": 1, "y": 0.5}])),
    avro("record within itself", _NODE, "struct<x: int32, next: string>",
         ({"x": 1, "next": {"x": 2, "next": None}}, {"x": 1, "next": '{"x":2,"next":null}'})),
    avro("[null, T]", ["null", "int"], "int32", (None, None), (7, 7)),
    avro("[null, int, string, double]", ["null", "int", "string", "double"], "string", (None, None), (7, "7"),
         ("x", "x"), (0.5, "0.5")),
    avro("nested unions", ["null", {"type": "array", "items": ["int", {"type": "map", "values": ["null", "string"]}]}],
         "list<string>", (None, None), ([1, {"a": None, "b": "x"}], ["1", '{"a":null,"b":"x"}'])),
    avro("union of records", [_POINT, {"type": "record", "name": "Q", "fields": [{"name": "z", "type": "int"}]}],
         "string", ({"z": 1}, '{"z":1}'), ({"x": 1, "y": 0.5}, '{"x":1,"y":0.5}')),
    avro("names that differ in case", [{"name": "v", "type": "int"}, {"name": "V", "type": "string"}],
         "v: int32, V_2: string", ({"v": 1, "V": "a"}, {"v": 1, "V_2": "a"})),
    avro("a name of ours", [{"name": "v", "type": "int"}, {"name": "_offset", "type": "long"}],
         "v: int32, _offset_2: int64", ({"v": 1, "_offset": 2}, {"v": 1, "_offset_2": 2})),
    avro("decimal(4, 2)", logical("bytes", "decimal", precision=4, scale=2), "decimal(4, 2)",
         (_digits(9999), "99.99"), (_digits(-9999), "-99.99"), (_digits(10000), DEAD)),
    avro("decimal(38, 0)", logical("bytes", "decimal", precision=38), "decimal(38, 0)",
         (_digits(10**38 - 1), str(10**38 - 1)), (_digits(1 - 10**38), str(1 - 10**38))),
    avro("decimal(38, 38)", logical("bytes", "decimal", precision=38, scale=38), "decimal(38, 38)",
         (_digits(1), "0." + "0" * 37 + "1")),
    avro("decimal(50, 2)", logical("bytes", "decimal", precision=50, scale=2), "string",
         (_digits(10**49 + 5), "1" + "0" * 46 + "0.05")),
    avro("decimal of negative scale", logical("bytes", "decimal", precision=4, scale=-2), "binary",
         (b"\1", "0x01")),
    avro("decimal of fixed(16)", {"type": "fixed", "name": "D", "size": 16, "logicalType": "decimal", "precision": 38,
         "scale": 4}, "decimal(38, 4)", ((-1).to_bytes(16, "big", signed=True), "-0.0001")),
    avro("uuid of string", logical("string", "uuid"), "string",
         ("3e6ba5e1-8b1e-4d4c-9c6f-000000000001", "3e6ba5e1-8b1e-4d4c-9c6f-000000000001")),
    avro("uuid of fixed(16)", _FIXED_ID, "string", (bytes(range(16)), "00010203-0405-0607-0809-0a0b0c0d0e0f")),
    avro("date", logical("int", "date"), "date", (0, "1970-01-01"), (2_932_896, "9999-12-31"),
         (-719_162, "0001-01-01")),
    avro("date out of years 1 to 9999", logical("int", "date"), "date", (2_932_897, "10000-01-01"),
         (-719_163, "0000-12-31"), (-800_000, "-221-09-04")),
    avro("time-millis", logical("int", "time-millis"), "string", (0, "00:00:00"), (86_399_999, "23:59:59.999000"),
         (86_400_000, DEAD)),
    avro("time-micros", logical("long", "time-micros"), "string", (1, "00:00:00.000001"), (-1, DEAD)),
    avro("timestamp-millis", logical("long", "timestamp-millis"), "timestamp",
         (-1, "1969-12-31T23:59:59.999000Z"), (253_402_300_799_999, "9999-12-31T23:59:59.999000Z")),
    avro("timestamp-micros", logical("long", "timestamp-micros"), "timestamp",
         (-62_135_596_800_000_000, "0001-01-01T00:00:00.000000Z"), (MICROS_9999, "9999-12-31T23:59:59.999999Z")),
    avro("timestamp out of years 1 to 9999", logical("long", "timestamp-millis"), "timestamp",
         (253_402_300_800_000, "10000-01-01T00:00:00.000000Z"), (-62_135_596_800_001, "0000-12-31T23:59:59.999000Z"),
         (LONG, DEAD)),
    avro("timestamp-nanos", logical("long", "timestamp-nanos"), "int64", (1_700_000_000_000_000_001,) * 2),
    avro("local-timestamp-micros", logical("long", "local-timestamp-micros"), "timestamp",
         (1, "1970-01-01T00:00:00.000001Z")),
    avro("duration", {"type": "fixed", "name": "Du", "size": 12, "logicalType": "duration"}, "binary",
         (b"\1\0\0\0" * 3, "0x" + "01000000" * 3)),
    avro("a logical type that is not known", logical("string", "no-such"), "string", ("x", "x")),
)  # fmt: skip


def protobuf(
    name: str, body: str, columns: str, *values: tuple[Any, Any], head: str = "", shown: str = ""
) -> Case:
    """Return a case of Protobuf: values are (as `json_format` reads them, or the message's bytes; the row)."""
    imports = "".join(f"{line}\n" for line in head.splitlines() if line.startswith("import"))
    others = "".join(f"{line}\n" for line in head.splitlines() if not line.startswith("import"))
    text = f'syntax = "proto3";\n{imports}message M {{ {body} }}\n{others}'
    return Case("Protobuf", name, text, tuple(_message(text, value) for value, _ in values), columns,
                tuple(row for _, row in values), shown)  # fmt: skip


_CLASSES: dict[str, Any] = {}


def _message(text: str, value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    from google.protobuf import descriptor_pool, json_format, message_factory

    from magnetar.schema_registry.kinds.protoc import compile_texts

    if text not in _CLASSES:
        pool = descriptor_pool.DescriptorPool()
        for each in compile_texts({"m.proto": text}).file:
            pool.Add(each)
        _CLASSES[text] = message_factory.GetMessageClass(pool.FindMessageTypeByName("M")), pool
    made, pool = _CLASSES[text]
    return bytes(json_format.ParseDict(value, made(), descriptor_pool=pool).SerializeToString())


def _import(*names: str) -> str:
    return "".join(f'import "{name}";\n' for name in names)


def _same(kind: str, columns: str, *values: Any) -> Case:
    return protobuf(kind, f"{kind} v = 1;", columns, *(({"v": each}, each) for each in values))


PROTOBUF = (
    protobuf("double", "double v = 1;", "double", ({"v": "Infinity"}, "Infinity"), ({"v": "NaN"}, "NaN"), ({}, 0.0)),
    protobuf("float", "float v = 1;", "float", ({"v": "-Infinity"}, "-Infinity"), ({"v": 1.5}, 1.5)),
    *(_same(kind, "int32", INT, -INT - 1) for kind in ("int32", "sint32", "sfixed32")),
    *(_same(kind, "int64", LONG, -LONG - 1) for kind in ("int64", "sint64", "sfixed64")),
    *(_same(kind, "int64", 0, 2**32 - 1) for kind in ("uint32", "fixed32")),
    *(protobuf(kind, f"{kind} v = 1;", "decimal(20, 0)", ({"v": 2**64 - 1}, str(2**64 - 1)), ({}, "0"))
      for kind in ("uint64", "fixed64")),
    _same("bool", "bool", True, False),
    _same("string", "string", "", "a\0b\U0001f600"),
    protobuf("string that is no UTF-8", "string v = 1;", "string", (b"\x0a\x02\xff\xfe", DEAD), ({"v": "a"}, "a")),
    protobuf("bytes", "bytes v = 1;", "binary", ({"v": "AP8="}, "0x00ff"), ({}, "0x")),
    protobuf("enum", "E v = 1;", "string", ({"v": "B"}, "B"), (b"\x08\x07", "7"), ({}, "A"),
             head="enum E { A = 0; B = 1; }"),
    protobuf("optional int32", "optional int32 v = 1;", "int32", ({}, None), ({"v": 0}, 0)),
    protobuf("repeated int32", "repeated int32 v = 1;", "list<int32>", ({}, []), ({"v": [1, INT]}, [1, INT])),
    protobuf("repeated message", "repeated P v = 1;", "list<struct<x: int32>>", ({"v": [{"x": 1}, {}]},
             [{"x": 1}, {"x": 0}]), head="message P { int32 x = 1; }"),
    protobuf("map<string, int64>", "map<string, int64> v = 1;", "map<string, int64>", ({}, []),
             ({"v": {"a": LONG}}, [["a", LONG]])),
    protobuf("map<bool, message>", "map<bool, P> v = 1;", "map<bool, struct<x: int32>>",
             ({"v": {"true": {"x": 1}}}, [[True, {"x": 1}]]), head="message P { int32 x = 1; }"),
    protobuf("map<uint64, double>", "map<uint64, double> v = 1;", "map<decimal(20, 0), double>",
             ({"v": {str(2**64 - 1): "NaN"}}, [[str(2**64 - 1), "NaN"]])),
    protobuf("message", "P v = 1;", "struct<x: int32>", ({}, None), ({"v": {}}, {"x": 0}),
             head="message P { int32 x = 1; }"),
    protobuf("message without fields", "Z v = 1;", "struct<_present: bool>", ({}, None),
             ({"v": {}}, {"_present": True}), head="message Z {}"),
    protobuf("oneof", "oneof v_of { int32 v = 1; Z z = 2; string s = 3; }",
             "v: int32, z: struct<_present: bool>, s: string", ({"v": 0}, {"v": 0, "z": None, "s": None}),
             ({"z": {}}, {"v": None, "z": {"_present": True}, "s": None}),
             ({"s": ""}, {"v": None, "z": None, "s": ""}), head="message Z {}"),
    protobuf("message within itself", "N v = 1;", "struct<x: int32, n: string>",
             ({"v": {"x": 1, "n": {"x": 2}}}, {"x": 1, "n": '{"x": 2}'}), head="message N { int32 x = 1; N n = 2; }"),
    protobuf("names that differ in case", "int32 v = 1; string V = 2;", "v: int32, V_2: string",
             ({"v": 1, "V": "a"}, {"v": 1, "V_2": "a"})),
    protobuf("google.protobuf.Timestamp", "google.protobuf.Timestamp v = 1;", "timestamp",
             ({"v": "9999-12-31T23:59:59.999999999Z"}, "9999-12-31T23:59:59.999999Z"),
             ({"v": "0001-01-01T00:00:00Z"}, "0001-01-01T00:00:00.000000Z"), ({}, None),
             (b"\x0a\x07\x08\x80\xdc\xef\x9e\xee\x3a", DEAD), head=_import("google/protobuf/timestamp.proto")),
    protobuf("google.protobuf.Duration", "google.protobuf.Duration v = 1;", "string", ({"v": "-1.500s"}, "-1.500s"),
             ({"v": "315576000000s"}, "315576000000s"), head=_import("google/protobuf/duration.proto")),
    protobuf("google.protobuf.Any", "google.protobuf.Any v = 1;", "string",
             ({"v": {"@type": "type.googleapis.com/M", "v": None}}, '{"@type": "type.googleapis.com/M"}'),
             (b"\x0a\x08\x0a\x06x.y/Zz", DEAD), head=_import("google/protobuf/any.proto")),
    protobuf("google.protobuf.Struct", "google.protobuf.Struct v = 1;", "string",
             ({"v": {"a": [1, None, "x"]}}, '{"a": [1.0, null, "x"]}'), head=_import("google/protobuf/struct.proto")),
    protobuf("google.protobuf.Value", "google.protobuf.Value v = 1;", "string", ({"v": "x"}, '"x"'),
             ({"v": 1.5}, "1.5"), head=_import("google/protobuf/struct.proto")),
    protobuf("google.protobuf.FieldMask", "google.protobuf.FieldMask v = 1;", "string", ({"v": "a,bC"}, "a,bC"),
             head=_import("google/protobuf/field_mask.proto")),
    protobuf("google.protobuf.Empty", "google.protobuf.Empty v = 1;", "string", ({"v": {}}, "{}"), ({}, None),
             head=_import("google/protobuf/empty.proto")),
    *(protobuf(f"google.protobuf.{kind}Value", f"google.protobuf.{kind}Value v = 1;", columns, ({}, None),
               ({"v": value}, row), head=_import("google/protobuf/wrappers.proto"))
      for kind, columns, value, row in (
          ("Double", "double", "NaN", "NaN"), ("Float", "float", "Infinity", "Infinity"),
          ("Int64", "int64", LONG, LONG),
          ("UInt64", "decimal(20, 0)", 2**64 - 1, str(2**64 - 1)), ("Int32", "int32", 0, 0),
          ("UInt32", "int64", 2**32 - 1, 2**32 - 1), ("Bool", "bool", False, False), ("String", "string", "", ""),
          ("Bytes", "binary", "/w==", "0xff"))),
    protobuf("confluent.type.Decimal", "confluent.type.Decimal v = 1;", "string",
             ({"v": {"value": "AP8=", "precision": 5, "scale": 2}}, "2.55"),
             head=_import("confluent/type/decimal.proto")),
    protobuf("confluent.type.Decimal of a size",
             'confluent.type.Decimal v = 1 [(confluent.field_meta).params = { key: "precision" value: "5" }, '
             '(confluent.field_meta).params = { key: "scale" value: "2" }];', "decimal(5, 2)",
             ({"v": {"value": "AP8=", "precision": 5, "scale": 2}}, "2.55"),
             head=_import("confluent/type/decimal.proto", "confluent/meta.proto")),
    protobuf("google.type.Date", "google.type.Date v = 1;", "struct<year: int32, month: int32, day: int32>",
             ({"v": {"year": 9999, "month": 12}}, {"year": 9999, "month": 12, "day": 0}),
             head=_import("google/type/date.proto")),
    protobuf("google.type.TimeOfDay", "google.type.TimeOfDay v = 1;",
             "struct<hours: int32, minutes: int32, seconds: int32, nanos: int32>",
             ({"v": {"hours": 23, "nanos": 1}}, {"hours": 23, "minutes": 0, "seconds": 0, "nanos": 1}),
             head=_import("google/type/timeofday.proto")),
)  # fmt: skip


def json_schema(name: str, kind: Any, columns: str, *values: tuple[str, Any], shown: str = "") -> Case:
    """Return a case of JSON Schema: values are (the JSON of ``v``, the row)."""
    schema = (
        kind
        if "properties" in kind and "v" in kind["properties"]
        else {"type": "object", "properties": {"v": kind}}
    )
    texts = tuple((v if v.startswith("{") and '"v"' in v else f'{{"v": {v}}}').encode() for v, _ in values)
    return Case(
        "JSON Schema", name, json.dumps(schema), texts, columns, tuple(row for _, row in values), shown
    )


_OBJECT = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "string"}}}

JSON_SCHEMA = (
    json_schema("integer", {"type": "integer"}, "int64", (str(LONG), LONG), (str(LONG + 1), DEAD), ("1.0", DEAD),
                ("null", None)),
    json_schema("number", {"type": "number"}, "double", ("1.7976931348623157e308", 1.7976931348623157e308),
                ("-0.0", -0.0), ("1", 1.0), ("NaN", DEAD), ('"x"', DEAD)),
    json_schema("boolean", {"type": "boolean"}, "bool", ("true", True), ('"true"', DEAD)),
    json_schema("string", {"type": "string"}, "string", ('""', ""), (r'"a\u0000\ud83d\ude00"', "a\0\U0001f600")),
    json_schema("string of format date-time", {"type": "string", "format": "date-time"}, "string",
                ('"9999-12-31T23:59:59.999999999Z"', "9999-12-31T23:59:59.999999999Z")),
    json_schema("enum", {"enum": ["a", 1]}, "string", ('"a"', "a"), ("1", "1")),
    json_schema("const", {"const": 5}, "string", ("5", "5")),
    json_schema("array", {"type": "array", "items": {"type": "integer"}}, "list<int64>", ("[]", []),
                ("[1, null]", [1, None])),
    json_schema("array of objects", {"type": "array", "items": _OBJECT}, "list<struct<x: int64, y: string>>",
                ('[{"x": 1}]', [{"x": 1, "y": None}])),
    json_schema("array of any items", {"type": "array"}, "list<string>", ('["a", 1, {"b": 2}]', ["a", "1", '{"b":2}'])),
    json_schema("object", _OBJECT, "struct<x: int64, y: string>", ('{"y": "b", "x": 1}', {"x": 1, "y": "b"}),
                ("{}", {"x": None, "y": None})),
    json_schema("object without properties", {"type": "object"}, "string", ('{"a": [1]}', '{"a":[1]}')),
    json_schema("object of additionalProperties", {"type": "object", "additionalProperties": {"type": "integer"}},
                "string", ('{"a": 1}', '{"a":1}')),
    json_schema("[integer, null]", {"type": ["integer", "null"]}, "int64", ("null", None), ("1", 1)),
    json_schema("oneOf with null", {"oneOf": [{"type": "null"}, {"type": "number"}]}, "double", ("null", None),
                ("0.5", 0.5)),
    json_schema("oneOf of several", {"oneOf": [{"type": "integer"}, {"type": "string"}]}, "string", ("1", "1"),
                ('"a"', "a")),
    json_schema("anyOf of objects", {"anyOf": [_OBJECT, {"type": "array"}]}, "string", ('{"x": 1}', '{"x":1}')),
    json_schema("names that differ in case",
                {"type": "object", "properties": {"v": {"type": "integer"}, "V": {"type": "string"}}},
                "v: int64, V_2: string", ('{"v": 1, "V": "a"}', {"v": 1, "V_2": "a"})),
    json_schema("any", {}, "string", ('[1, {"a": null}]', '[1,{"a":null}]'), ('"x"', "x")),
)  # fmt: skip

PULSAR = tuple(
    Case("Pulsar's primitive schemas", name, "", (value,), "binary", ("0x" + value.hex(),))
    for name, value in (
        ("BYTES", b"\0\xff"), ("STRING", "é".encode()), ("BOOLEAN", b"\1"), ("INT8", b"\x80"), ("INT16", b"\x80\0"),
        ("INT32", b"\x7f\xff\xff\xff"), ("INT64", b"\x7f" + b"\xff" * 7), ("FLOAT", b"\x7f\x80\0\0"),
        ("DOUBLE", b"\x7f\xf8" + b"\0" * 6), ("DATE, TIME, TIMESTAMP", b"\0\0\1\x8b\xcf\xe5\x68\0"),
        ("INSTANT, LOCAL_DATE_TIME", b"\0\0\0\0\0\0\0\1\0\0\0\1"), ("LOCAL_DATE, LOCAL_TIME", b"\0" * 7 + b"\1"),
    )
)  # fmt: skip

CASES: tuple[Case, ...] = (*AVRO, *PROTOBUF, *JSON_SCHEMA, *PULSAR)


def by_language(language: str, cases: Sequence[Case] = CASES) -> list[Case]:
    """Return the cases of one language."""
    return [each for each in cases if each.language == language]
