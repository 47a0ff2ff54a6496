"""Pairs of schemas that a topic gets one after another, for which a real Pulsar's answers are recorded.

``compat/pulsar_schema_rules.py`` asks a broker for each case under each strategy and keeps what it said in
``schema_rules.json``; ``test_schema_rules.py`` asks ours.
"""

from __future__ import annotations

import base64
import json
import struct
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2

from magnetar.wire.pulsar.pulsar_pb2 import Schema

STRATEGIES = (
    "UNDEFINED", "ALWAYS_INCOMPATIBLE", "ALWAYS_COMPATIBLE", "BACKWARD", "FORWARD", "FULL", "BACKWARD_TRANSITIVE",
    "FORWARD_TRANSITIVE", "FULL_TRANSITIVE",
)  # fmt: skip
_F = descriptor_pb2.FieldDescriptorProto


class Case(NamedTuple):
    """What a topic has, oldest first, and what comes next. All must be refused or taken in this order."""

    old: tuple[Schema, ...]
    new: Schema


def schema(kind: str, data: Any = b"", **properties: str) -> Schema:
    """Return a schema; ``data`` that is no bytes is written as JSON."""
    made = Schema(name="s", type=Schema.Type.Value(kind))
    made.schema_data = data if isinstance(data, bytes) else json.dumps(data).encode()
    for key, value in properties.items():
        made.properties.add(key=key.replace("_", "."), value=value)
    return made


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    """Return an Avro record; a field is (name, type) or (name, type, default)."""
    made = [
        {"name": each[0], "type": each[1]} | ({"default": each[2]} if len(each) > 2 else {})
        for each in fields
    ]
    return {"type": "record", "name": name} | more | {"fields": made}


A = record(("a", "int"))
AB = record(("a", "int"), ("b", "string"))
AB_DEFAULT = record(("a", "int"), ("b", "string", ""))
B = record(("b", "string"))
LONG = record(("a", "long"))
RENAMED = record(("a", "int"), name="S")
ALIASED = record(("a", "int"), name="S", aliases=["R"])
ELSEWHERE = record(("a", "int"), namespace="other.place")
REAL_JSON_SCHEMA = {"type": "object", "id": "urn:r", "properties": {"a": {"type": "integer"}}}
OTHER_JSON_SCHEMA = {"type": "object", "id": "urn:s", "properties": {"b": {"type": "integer"}}}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return record(("e", {"type": "enum", "name": "E", "symbols": list(symbols)} | more))


def native(
    *fields: tuple[str, int], root: str = "M", package: str = "p", said_root: str | None = None
) -> bytes:
    """Return a PROTOBUF_NATIVE definition of one message; fields are (name, type)."""
    file = descriptor_pb2.FileDescriptorProto(name="m.proto", package=package, syntax="proto3")
    message = file.message_type.add(name=root)
    for number, (name, kind) in enumerate(fields, 1):
        message.field.add(name=name, number=number, type=kind, label=_F.LABEL_OPTIONAL)
    files = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    return json.dumps(
        {
            "fileDescriptorSet": base64.b64encode(files).decode(),
            "rootMessageTypeName": f"{package}.{root}" if said_root is None else said_root,
            "rootFileDescriptorName": "m.proto",
        }
    ).encode()


def key_value(key: Schema, value: Schema, encoding: str | None = "INLINE", **more: str) -> Schema:
    """Return a KEY_VALUE schema as Pulsar's clients write it: both parts behind their sizes, kinds as properties."""
    parts = b"".join(struct.pack(">i", len(each.schema_data)) + each.schema_data for each in (key, value))
    said: dict[str, str] = {}
    for part, each in (("key", key), ("value", value)):
        said[f"{part}_schema_name"] = each.name
        said[f"{part}_schema_type"] = (
            str(Schema.Type.Name(each.type)).upper().replace("KEYVALUE", "KEY_VALUE")
        )
        said[f"{part}_schema_properties"] = "{}"
    if encoding is not None:
        said["kv_encoding_type"] = encoding
    return schema("KeyValue", parts, **(said | more))


STRING, INT32 = schema("String"), schema("Int32")


def avro(content: Any) -> Schema:
    return schema("Avro", content)


def one(old: Schema, new: Schema) -> Case:
    return Case((old,), new)


CASES: dict[str, Case] = {
    # Avro: fields
    "avro: a field with default more": one(avro(A), avro(AB_DEFAULT)),
    "avro: a field without default more": one(avro(A), avro(AB)),
    "avro: a field without default less": one(avro(AB), avro(A)),
    "avro: all fields others": one(avro(A), avro(B)),
    "avro: int becomes long": one(avro(A), avro(LONG)),
    "avro: long becomes int": one(avro(LONG), avro(A)),
    "avro: string becomes bytes": one(avro(B), avro(record(("b", "bytes")))),
    "avro: null or a value": one(avro(A), avro(record(("a", ["null", "int"])))),
    "avro: laid out otherwise": one(avro(A), schema("Avro", json.dumps(A, indent=2).encode())),
    "avro: another doc": one(avro(A), avro(A | {"doc": "said"})),
    # names
    "avro: another name": one(avro(A), avro(RENAMED)),
    "avro: another name, the old as alias": one(avro(A), avro(ALIASED)),
    "avro: another namespace": one(avro(A), avro(ELSEWHERE)),
    "avro: an inner type of another name": one(
        avro(record(("r", A | {"name": "I"}))), avro(record(("r", A | {"name": "J"})))
    ),
    "avro: an inner type of another namespace and shape": one(
        avro(record(("r", A | {"name": "x.I"}))), avro(record(("r", B | {"name": "y.I"})))
    ),
    "avro: fixed of another size": one(
        avro(record(("f", {"type": "fixed", "name": "F", "size": 4}))),
        avro(record(("f", {"type": "fixed", "name": "F", "size": 5}))),
    ),
    "avro: fixed of another name": one(
        avro(record(("f", {"type": "fixed", "name": "F", "size": 4}))),
        avro(record(("f", {"type": "fixed", "name": "G", "size": 4}))),
    ),
    "avro: fixed of another name, the old as alias": one(
        avro(record(("f", {"type": "fixed", "name": "F", "size": 4}))),
        avro(record(("f", {"type": "fixed", "name": "G", "size": 4, "aliases": ["F"]}))),
    ),
    "avro: fixed of another namespace": one(
        avro(record(("f", {"type": "fixed", "name": "x.F", "size": 4}))),
        avro(record(("f", {"type": "fixed", "name": "y.F", "size": 4}))),
    ),
    "avro: an enum of another name": one(avro(enum("X")), avro(enum("X", name="D"))),
    "avro: an enum of another namespace": one(avro(enum("X")), avro(enum("X", namespace="y"))),
    "avro: a record becomes one of two, by another name": one(
        avro(record(("r", A | {"name": "I"}))),
        avro(record(("r", ["null", A | {"name": "J"}]))),
    ),
    "avro: one of two records has a field without default more": one(
        avro(record(("r", [A | {"name": "I"}, B | {"name": "J"}]))),
        avro(record(("r", [AB | {"name": "I"}, B | {"name": "J"}]))),
    ),
    "avro: another record of the union would do": one(
        avro(record(("r", A | {"name": "I"}))),
        avro(record(("r", [AB | {"name": "I"}, A | {"name": "J"}]))),
    ),
    "avro: an array of others": one(
        avro(record(("l", {"type": "array", "items": "int"}))),
        avro(record(("l", {"type": "array", "items": "string"}))),
    ),
    "avro: a map of wider values": one(
        avro(record(("m", {"type": "map", "values": "int"}))), avro(record(("m", {"type": "map", "values": "long"})))
    ),
    "avro: a field of another name, the old as alias": one(
        avro(A), avro({"type": "record", "name": "R", "fields": [{"name": "z", "type": "int", "aliases": ["a"]}]})
    ),
    "avro: named like a primitive": Case((), avro(record(name="int"))),
    "avro: an enum with a symbol twice": Case((), avro(enum("X", "X"))),
    "avro: an enum default that is no symbol": Case((), avro(enum("X", default="Y"))),
    "avro: a union in a union": Case((), avro(record(("u", ["null", ["int", "null"]])))),
    "avro: a union with a type twice": Case((), avro(record(("u", ["int", "int"])))),
    "avro: used before it is told": Case((), avro(record(("a", "Later"), ("b", A | {"name": "Later"})))),
    "avro: an enum with a symbol more": one(avro(enum("X")), avro(enum("X", "Y"))),
    "avro: an enum with a symbol less": one(avro(enum("X", "Y")), avro(enum("X"))),
    "avro: an enum with a symbol less and a default": one(avro(enum("X", "Y")), avro(enum("X", default="X"))),
    "avro: another decimal": one(
        avro(record(("d", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}))),
        avro(record(("d", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3}))),
    ),
    "avro: a type that holds itself": one(
        avro(record(("n", ["null", "R"], None))), avro(record(("n", ["null", "R"], None), ("a", "int", 0)))
    ),
    # all versions, or the last
    "avro: fits the last, not the first": Case(
        (avro(record(("a", "int", 0))), avro(record()), ), avro(record(("a", "string", ""))),
    ),
    # what is no schema
    "avro: a union": one(avro(A), avro(["null", A])),
    "avro: a primitive": Case((), avro("int")),
    "avro: an array": Case((), avro({"type": "array", "items": "int"})),
    "avro: a union first": Case((), avro(["null", "int"])),
    "avro: no JSON": Case((), schema("Avro", b"not even json")),
    "avro: nothing": Case((), schema("Avro", b"")),
    "avro: no such type": Case((), avro(record(("a", "nothing")))),
    "avro: a name twice": Case((), avro(record(("a", A), ("b", B)))),
    "avro: a field twice": Case((), avro(record(("a", "int"), ("a", "int")))),
    "avro: a default of another type": Case((), avro(record(("a", "int", "text")))),
    "avro: a name that is none": Case((), avro(record(("a-b", "int")))),
    "avro: a name with a dollar": Case((), avro(record(("a$b", "int")))),
    "avro: text behind it": Case((), schema("Avro", json.dumps(A).encode() + b" more")),
    # JSON and PROTOBUF, which are described in Avro's words
    "json: a field with default more": one(schema("Json", A), schema("Json", AB_DEFAULT)),
    "json: a field without default more": one(schema("Json", A), schema("Json", AB)),
    "json: another name": one(schema("Json", A), schema("Json", RENAMED)),
    "json: a JSON Schema": Case((), schema("Json", REAL_JSON_SCHEMA)),
    "json: Avro after a JSON Schema": one(schema("Json", REAL_JSON_SCHEMA), schema("Json", A)),
    "json: a JSON Schema after Avro": one(schema("Json", A), schema("Json", REAL_JSON_SCHEMA)),
    "json: a JSON Schema after another": one(schema("Json", REAL_JSON_SCHEMA), schema("Json", OTHER_JSON_SCHEMA)),
    "json: no JSON": Case((), schema("Json", b"not even json")),
    "json: a union": Case((), schema("Json", ["null", "int"])),
    "protobuf: a field with default more": one(schema("Protobuf", A), schema("Protobuf", AB_DEFAULT)),
    "protobuf: a field without default more": one(schema("Protobuf", A), schema("Protobuf", AB)),
    "protobuf: no JSON": Case((), schema("Protobuf", b"not even json")),
    # PROTOBUF_NATIVE
    "native: a field more": one(
        schema("ProtobufNative", native(("a", _F.TYPE_INT32))),
        schema("ProtobufNative", native(("a", _F.TYPE_INT32), ("b", _F.TYPE_STRING))),
    ),
    "native: another type": one(
        schema("ProtobufNative", native(("a", _F.TYPE_INT32))), schema("ProtobufNative", native(("a", _F.TYPE_STRING)))
    ),
    "native: another root": one(
        schema("ProtobufNative", native(("a", _F.TYPE_INT32))),
        schema("ProtobufNative", native(("a", _F.TYPE_INT32), root="N")),
    ),
    "native: another package": one(
        schema("ProtobufNative", native(("a", _F.TYPE_INT32))),
        schema("ProtobufNative", native(("a", _F.TYPE_INT32), package="q")),
    ),
    "native: no JSON": Case((), schema("ProtobufNative", b"not even json")),
    "native: nothing": Case((), schema("ProtobufNative", b"")),
    "native: no descriptors": Case((), schema("ProtobufNative", {"rootMessageTypeName": "M"})),
    "native: descriptors that are none": Case(
        (),
        schema(
            "ProtobufNative",
            {"fileDescriptorSet": "////", "rootMessageTypeName": "p.M", "rootFileDescriptorName": "m.proto"},
        ),
    ),
    "native: a root that is not there": Case(
        (), schema("ProtobufNative", native(("a", _F.TYPE_INT32), said_root="p.Nothing"))
    ),
    # KEY_VALUE
    "key value: the value's field with default more": one(
        key_value(STRING, avro(A)), key_value(STRING, avro(AB_DEFAULT))
    ),
    "key value: the value's field without default more": one(key_value(STRING, avro(A)), key_value(STRING, avro(AB))),
    "key value: the key's field without default more": one(
        key_value(avro(A), avro(A)), key_value(avro(AB), avro(A))
    ),
    "key value: the key's field without default less": one(
        key_value(avro(AB), avro(A)), key_value(avro(A), avro(A))
    ),
    "key value: the value of another kind": one(key_value(STRING, avro(A)), key_value(STRING, schema("Json", A))),
    "key value: the key of another kind": one(key_value(STRING, avro(A)), key_value(INT32, avro(A))),
    "key value: the value of another kind and shape": one(
        key_value(STRING, avro(A)), key_value(STRING, schema("Json", AB_DEFAULT))
    ),
    "key value: the key of another kind, the value of another shape": one(
        key_value(STRING, avro(A)), key_value(INT32, avro(AB_DEFAULT))
    ),
    "key value: json values": one(
        key_value(STRING, schema("Json", A)), key_value(STRING, schema("Json", AB))
    ),
    "key value: another encoding": one(
        key_value(STRING, avro(A), "INLINE"), key_value(STRING, avro(A), "SEPARATED")
    ),
    "key value: another encoding and a field with default more": one(
        key_value(STRING, avro(A), "INLINE"), key_value(STRING, avro(AB_DEFAULT), "SEPARATED")
    ),
    "key value: no encoding said": Case((), key_value(STRING, avro(A), None)),
    "key value: an encoding that is none": Case((), key_value(STRING, avro(A), "SIDEWAYS")),
    "key value: fits the last, not the first": Case(
        (key_value(STRING, avro(record(("a", "int", 0)))), key_value(STRING, avro(record()))),
        key_value(STRING, avro(record(("a", "string", "")))),
    ),
    "key value: a key that is no schema": Case((), key_value(avro({"type": "nothing"}), STRING)),
    "key value: a value that is no schema": Case((), key_value(STRING, schema("Avro", b"not even json"))),
    "key value: native values of another root": one(
        key_value(STRING, schema("ProtobufNative", native(("a", _F.TYPE_INT32)))),
        key_value(STRING, schema("ProtobufNative", native(("a", _F.TYPE_INT32), root="N"))),
    ),
    "key value: no kinds said": Case((), schema("KeyValue", struct.pack(">ii", 0, 0))),
    "key value: a kind that is none": Case((), key_value(STRING, STRING, value_schema_type="NOTHING")),
    "key value: nothing": Case((), schema("KeyValue", b"")),
    "key value: cut short": Case((), schema("KeyValue", struct.pack(">i", 99) + b"short")),
    "key value: text": Case((), schema("KeyValue", b"not even json")),
    "key value: a negative size": Case((), schema("KeyValue", struct.pack(">ii", -5, 0))),
    "key value: after avro": one(avro(A), key_value(STRING, avro(A))),
    "key value: avro after it": one(key_value(STRING, avro(A)), avro(A)),
    # plain kinds
    "plain: the same": one(STRING, STRING),
    "plain: another": one(STRING, INT32),
    "plain: avro after string": one(STRING, avro(A)),
    "plain: string after avro": one(avro(A), STRING),
    "plain: json after avro": one(avro(A), schema("Json", A)),
    "plain: avro after json": one(schema("Json", A), avro(A)),
    "plain: bytes after avro": one(avro(A), schema("None")),
    "plain: bytes first": Case((), schema("None")),
    "plain: a string with a definition": Case((), schema("String", b"said")),
    "plain: a string as Python's client describes it": Case((), schema("String", b"null")),
    "plain: a string as Avro describes it": Case((), schema("String", b'"string"')),
    "plain: a string as a JSON Schema": Case((), schema("String", {"type": "string"})),
    "plain: a string as another JSON Schema": Case((), schema("String", {"type": "integer"})),
    "plain: a string as any JSON": Case((), schema("String", {"a": 7})),
    "plain: an int as null": Case((), schema("Int32", b"null")),
    "plain: an int with a definition": Case((), schema("Int32", b"said")),
    "plain: auto consume": one(avro(A), schema("AutoConsume")),
    "plain: local date": one(schema("LocalDate"), schema("LocalTime")),
}  # fmt: skip
