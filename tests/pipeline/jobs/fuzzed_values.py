"""Values as a decoder may meet them by accident: good ones, changed a little, and bytes that were never anything."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from fastavro import parse_schema, schemaless_writer
from fastavro.utils import generate_many

_BOUNDARIES = (0, 1, -1, 2**31 - 1, 2**31, -(2**31), 2**53 + 1, 2**62, 2**63 - 1, -(2**63), 253402300800)

AVRO_TYPES: tuple[Any, ...] = (
    "null", "boolean", "int", "long", "float", "double", "bytes", "string",
    {"type": "int", "logicalType": "date"}, {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"}, {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"}, {"type": "long", "logicalType": "timestamp-nanos"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "string", "logicalType": "uuid"},
    {"type": "array", "items": "long"}, {"type": "array", "items": "null"}, {"type": "map", "values": "double"},
    {"type": "enum", "name": "Enum", "symbols": ["A", "B"]}, {"type": "fixed", "name": "Four", "size": 4},
    {"type": "fixed", "name": "Id", "size": 16, "logicalType": "uuid"},
    {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "string"}]},
    {"type": "record", "name": "Void", "fields": []},
    ["null", "string"], ["null", "int", "string", "double"], ["bytes", {"type": "array", "items": "bytes"}],
    ["null", "Record"], {"type": "array", "items": "Record"},
)  # fmt: skip

PROTOBUF = """
syntax = "proto3";
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
enum Kind { NONE = 0; SOME = 1; }
message Void {}
message Node { int32 x = 1; repeated Node children = 2; map<string, Node> by_name = 3; }
message Everything {
  int32 a = 1; uint32 b = 2; uint64 c = 3; Kind kind = 4; repeated Kind kinds = 5; bytes d = 6; string e = 7;
  google.protobuf.Timestamp at = 8; google.protobuf.Duration took = 9; google.protobuf.Struct more = 10;
  google.protobuf.Any any = 11; google.protobuf.Int64Value wrapped = 12; optional int32 maybe = 13;
  oneof choice { string text = 14; Node node = 15; Void nothing = 16; }
  map<int32, Node> nodes = 17; repeated google.protobuf.Timestamp times = 18; sint64 f = 19; fixed64 g = 20;
  double h = 21; repeated float i = 22; repeated google.protobuf.Any anys = 23;
}
"""


def avro_schema(random: Random) -> dict[str, Any]:
    """Return a record of some fields; types with names are taken once."""
    types = random.sample(AVRO_TYPES, random.randint(1, 8))
    fields = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(types)]
    return {"type": "record", "name": "Record", "fields": fields}


def avro_values(schema: dict[str, Any], random: Random) -> Iterator[bytes]:
    """Yield records of a schema without end."""
    plain = json.loads(json.dumps(schema))
    for field in plain[
        "fields"
    ]:  # written by their plain types: what a logical type cannot say is sent all the same
        if isinstance(field["type"], dict):
            field["type"].pop("logicalType", None)
    parsed = parse_schema(plain)
    # What holds itself grows without bounds where fastavro makes it up.
    itself = [each["name"] for each in plain["fields"] if "Record" in str(each["type"])]
    others = {**plain, "fields": [each for each in plain["fields"] if each["name"] not in itself]}
    while True:
        try:
            for row in generate_many(parse_schema(others), 4):
                row |= {
                    each["name"]: _itself(each, row, random)
                    for each in plain["fields"]
                    if each["name"] in itself
                }
                for name, value in row.items():
                    if isinstance(value, int) and not isinstance(value, bool) and random.random() < 0.3:
                        row[name] = random.choice(_BOUNDARIES)
                out = io.BytesIO()
                schemaless_writer(out, parsed, row)
                yield out.getvalue()
        except (ValueError, TypeError, OverflowError, RecursionError, struct.error):
            yield b""


def _itself(field: dict[str, Any], row: dict[str, Any], random: Random) -> Any:
    """Return a few levels of a record within itself."""
    empty: Any = [] if isinstance(field["type"], dict) else None
    inner = {**row, field["name"]: empty}
    for _ in range(random.randint(0, 3)):
        inner = {**row, field["name"]: inner if empty is None else [inner]}
    return inner[field["name"]]


def protobuf_values(random: Random) -> Iterator[bytes]:
    """Yield what is a message by its wire format, field by field, of any message."""
    while True:
        yield _message(random, 0)


def _message(random: Random, level: int) -> bytes:
    out = b""
    for _ in range(random.randint(0, 4)):
        number, kind = random.randint(1, 23), random.choice((0, 1, 2, 2, 2, 5))
        out += _varint(number << 3 | kind)
        if kind == 0:
            out += _varint(random.choice((*_BOUNDARIES, random.getrandbits(7))) & (1 << 64) - 1)
        elif kind == 2:
            inside = (
                _message(random, level + 1) if level < 4 and random.random() < 0.6 else random.randbytes(3)
            )
            inside = b"\x0a\x06x.y/Zz" if random.random() < 0.1 else inside
            out += _varint(len(inside)) + inside
        else:
            out += random.randbytes(8 if kind == 1 else 4)
    return out


def _varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def json_values(random: Random) -> Iterator[bytes]:
    """Yield JSON, of the columns id, at, price, tags and inner or not."""
    scalars: tuple[Any, ...] = (
        None, True, 1, 1.5, -1, 2**63, 1e308, float("nan"), float("inf"), "", "text", "\U0001f600", "2024-02-30",
        "9999-12-31T23:59:59.999999Z", "+12345-01-01T00:00:00Z", "-0001-01-01", 1700000000000, 10**40, "\0",
    )  # fmt: skip
    names = ("id", "at", "price", "tags", "inner", "day", "other")

    def value(level: int) -> Any:
        roll = random.random()
        if level > 3 or roll < 0.6:
            return random.choice(scalars)
        if roll < 0.8:
            return [value(level + 1) for _ in range(random.randint(0, 3))]
        return {random.choice(names): value(level + 1) for _ in range(random.randint(0, 3))}

    while True:
        yield json.dumps({name: value(0) for name in random.sample(names, 4)}).encode()


def mutated(value: bytes, random: Random) -> bytes:
    """Return a value with a few changes, or none."""
    out = bytearray(value)
    changes: tuple[Callable[[int], None], ...] = (
        lambda at: out.__setitem__(slice(at, at + 1), bytes([random.getrandbits(8)])),
        lambda at: out.__delitem__(slice(at, at + random.randint(1, 9))),
        lambda at: out.__setitem__(slice(at, at), random.randbytes(random.randint(1, 12))),
        lambda at: out.__setitem__(slice(at, at), out[at : at + 8] * random.randint(1, 200)),
        lambda at: out.__setitem__(slice(at, at + 1), b"\xff" * random.randint(1, 10) + b"\x01"),
    )
    for _ in range(random.choice((0, 1, 1, 2, 5))):
        random.choice(changes)(random.randint(0, len(out)))
    return bytes(out)


def framed(schema_id: int, data: bytes, random: Random) -> bytes:
    """Return data behind a schema's id, or what is no frame."""
    roll = random.random()
    if roll < 0.03:
        return random.randbytes(random.randint(0, 40))
    if roll < 0.06:
        return struct.pack(">bI", 0, random.choice((0, 2**31 - 1, 2**31, 2**32 - 1))) + data
    return struct.pack(">bI", 0, schema_id) + data
