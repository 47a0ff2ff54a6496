"""Avro and Protobuf by a registry's ids, and what happens to what does not decode. No Spark, no broker."""

from __future__ import annotations

import datetime
import io
import json
import struct
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fastavro import schemaless_writer

from magnetar.pipeline.jobs.decode.decoder import Decoder, SchemaGrew, plan
from magnetar.pipeline.jobs.decode.json import columns_of
from magnetar.pipeline.jobs.decode.protobuf import of_file
from magnetar.pipeline.jobs.decode.registry import RegistryClient, RegistryUnavailable
from magnetar.pipeline.jobs.spec import ProjectSpec, RegistrySpec, SpecError, TopicSpec
from tests.pipeline.jobs.schema_registry import SchemaRegistry

FLIGHT = {
    "type": "record", "name": "Flight", "fields": [
        {"name": "id", "type": "int"},
        {"name": "carrier", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {"name": "stops", "type": {"type": "array", "items": {
            "type": "record", "name": "Stop", "fields": [{"name": "airport", "type": "string"}]}}},
        {"name": "extra", "type": ["null", "int", "string"]},
    ],
}  # fmt: skip
AT = datetime.datetime(2013, 1, 1, 5, 15, 0, 7000, datetime.UTC)
ROW = {
    "id": 7, "carrier": "UA", "at": AT, "price": Decimal("12.34"), "tags": {"a": 1}, "stops": [{"airport": "EWR"}],
    "extra": "x",
}  # fmt: skip


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    made = SchemaRegistry()
    yield made
    made.close()


def framed(schema_id: int, data: bytes) -> bytes:
    return struct.pack(">bI", 0, schema_id) + data


def avro(schema: Any, row: Any) -> bytes:
    out = io.BytesIO()
    schemaless_writer(out, schema, row)
    return out.getvalue()


def decoder(registry: SchemaRegistry, format: str = "avro", **more: Any) -> Decoder:
    topic = TopicSpec("flights", format=format, subjects=("flights-value",), **more)
    return plan(topic, ProjectSpec(Path(), Path(), {"flights": topic}, registry=RegistrySpec(registry.url)))


def decoded(by: Decoder, *values: bytes | None) -> list[dict[str, Any]]:
    found = by.decode(pa.array(values, pa.binary()))
    assert found.type == by.type
    return found.to_pylist()  # type: ignore[no-any-return]


def test_avro_by_id(registry: SchemaRegistry) -> None:
    schema_id = registry.register("flights-value", FLIGHT)
    (row,) = decoded(decoder(registry), framed(schema_id, avro(FLIGHT, ROW)))
    assert row["error"] is None
    assert row["schema_id"] == schema_id
    assert row["row"] == ROW | {"tags": [("a", 1)], "extra": "x"}


def test_versions_add_columns_and_no_field_is_lost(registry: SchemaRegistry) -> None:
    old = {
        "type": "record",
        "name": "F",
        "fields": [{"name": "id", "type": "int"}, {"name": "gone", "type": "string"}],
    }
    new = {
        "type": "record", "name": "F", "fields": [
            {"name": "id", "type": "long"}, {"name": "gate", "type": "string", "default": "none yet"},
        ],
    }  # fmt: skip
    first, second = registry.register("flights-value", old), registry.register("flights-value", new)
    by = decoder(registry)
    assert by.fields == pa.struct([("id", pa.int64()), ("gone", pa.string()), ("gate", pa.string())])
    rows = decoded(
        by,
        framed(first, avro(old, {"id": 1, "gone": "x"})),
        framed(second, avro(new, {"id": 1 << 40, "gate": "A1"})),
    )
    assert [row["row"] for row in rows] == [
        {"id": 1, "gone": "x", "gate": "none yet"},
        {"id": 1 << 40, "gone": None, "gate": "A1"},
    ]


def test_what_does_not_decode_has_its_reason_and_harms_no_other(registry: SchemaRegistry) -> None:
    schema_id = registry.register("flights-value", FLIGHT)
    good = avro(FLIGHT, ROW)
    rows = decoded(
        decoder(registry),
        framed(schema_id, good), None, b"", b"\x01\0\0\0\1" + good, framed(99, good), framed(schema_id, good[:-3]),
        framed(schema_id, good + b"\0"), framed(schema_id, good),
    )  # fmt: skip
    errors = [row["error"] for row in rows]
    assert errors[0] is errors[1] is errors[7] is None
    assert errors[2] == errors[3] == "it does not begin with magic 0 and a schema id"
    assert errors[4] == f"the registry at {registry.url} has no schema with id 99"
    assert errors[5].startswith("it is not Avro of its schema")
    assert errors[6] == "it is not Avro of its schema: 1 bytes are left over"
    assert [row["schema_id"] for row in rows] == [1, None, None, None, 99, 1, 1, 1]


def test_a_registry_that_is_down_stops_the_run(registry: SchemaRegistry) -> None:
    schema_id = registry.register("flights-value", FLIGHT)
    by = decoder(registry)
    other = registry.register("other", FLIGHT)
    registry.failing = True
    with pytest.raises(RegistryUnavailable, match=f"{registry.url} does not answer: it answers 500"):
        by.decode(pa.array([framed(other, avro(FLIGHT, ROW))], pa.binary()))
    registry.close()
    with pytest.raises(RegistryUnavailable, match="does not answer"):
        RegistryClient(RegistrySpec(registry.url)).schema(schema_id)
    registry._server.server_close = lambda: None  # type: ignore[method-assign]
    registry._server.shutdown = lambda: None  # type: ignore[method-assign]


def test_a_schema_registered_during_the_run_asks_for_another(registry: SchemaRegistry) -> None:
    registry.register("flights-value", FLIGHT)
    by = decoder(registry)
    wider = FLIGHT | {"fields": [*FLIGHT["fields"], {"name": "gate", "type": "int"}]}  # type: ignore[misc]
    value = framed(registry.register("flights-value", wider), avro(wider, ROW | {"gate": 3}))
    with pytest.raises(SchemaGrew, match=r"without a column: gate.*run again"):
        by.decode(pa.array([value], pa.binary()))
    assert decoded(decoder(registry), value)[0]["row"]["gate"] == 3
    foreign = FLIGHT | {"fields": [*FLIGHT["fields"], {"name": "other", "type": "int"}]}  # type: ignore[misc]
    value = framed(registry.register("others-value", foreign), avro(foreign, ROW | {"other": 3}))
    assert "of none of the subjects flights-value" in decoded(by, value)[0]["error"]


PLACE = 'syntax = "proto3"; package geo; message Place { string city = 1; }'
ORDER = """
syntax = "proto3";
import "geo/place.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
package shop;
message Ignored { int32 a = 1; message Inner { string b = 1; } }
message Order {
  enum State { NEW = 0; PAID = 1; }
  int64 id = 1;
  optional string note = 2;
  State state = 3;
  repeated double prices = 4;
  map<string, int32> counts = 5;
  geo.Place place = 6;
  google.protobuf.Timestamp at = 7;
  google.protobuf.BoolValue gift = 8;
  Order parent = 9;
  uint64 big = 10;
  bytes raw = 11;
}
"""
# By hand, from the wire format's specification: fields 1, 3, 4 (packed), 5, 6, 7, 8, 9, 10, 11.
ORDER_BYTES = (
    b"\x08\x2a" b"\x18\x01" b"\x22\x10" + struct.pack("<dd", 1.5, 2.5)
    + b"\x2a\x05\x0a\x01a\x10\x03" b"\x32\x06\x0a\x04Kiel"
    + b"\x3a\x02\x08\x3c" b"\x42\x02\x08\x01" b"\x4a\x02\x08\x07" b"\x50" + b"\xff" * 9 + b"\x01" b"\x5a\x02\x00\xff"
)  # fmt: skip


def test_protobuf_by_id_with_references_and_message_indexes(registry: SchemaRegistry) -> None:
    registry.register("place", PLACE, "PROTOBUF")
    schema_id = registry.register(
        "flights-value", ORDER, "PROTOBUF", [{"name": "geo/place.proto", "subject": "place", "version": 1}]
    )
    by = decoder(registry, "protobuf", message="shop.Order")
    rows = decoded(
        by,
        framed(schema_id, b"\x02\x02" + ORDER_BYTES),  # one index, 1: Order
        framed(schema_id, b"\x02\x08" + ORDER_BYTES),  # index 4 leads nowhere
        framed(schema_id, b"\x02\x02" + ORDER_BYTES[:-1]),
        framed(schema_id, b"\x00\x08\x01"),  # the first message
    )
    assert rows[0]["error"] is None, rows
    assert rows[0]["row"] == {
        "id": 42, "note": None, "state": "PAID", "prices": [1.5, 2.5], "counts": [("a", 3)], "place": {"city": "Kiel"},
        "at": datetime.datetime(1970, 1, 1, 0, 1, tzinfo=datetime.UTC), "gift": True, "big": Decimal(2**64 - 1),
        "parent": json.dumps({"id": "7"}), "raw": b"\x00\xff",
    }  # fmt: skip
    assert "lead to no message" in rows[1]["error"]
    assert rows[2]["error"].startswith("it is not a shop.Order")
    assert rows[3]["error"] == "it is a shop.Ignored, not a shop.Order"


CONNECT = """
syntax = "proto3";
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
import "google/type/date.proto";
message Row {
  confluent.type.Decimal price = 1 [(confluent.field_meta) = {
    params: [{key: "precision", value: "10"}, {key: "scale", value: "2"}]
  }];
  confluent.type.Decimal any = 2;
  google.type.Date day = 3;
}
"""


def test_protobuf_with_what_connect_imports(registry: SchemaRegistry) -> None:
    schema_id = registry.register("flights-value", CONNECT, "PROTOBUF")
    by = decoder(registry, "protobuf")
    day = pa.struct([("year", pa.int32()), ("month", pa.int32()), ("day", pa.int32())])
    assert by.fields == pa.struct([("price", pa.decimal128(10, 2)), ("any", pa.string()), ("day", day)])
    value = b"\0\x0a\x05\x0a\x01\x7d\x18\x02\x12\x06\x0a\x02\xff\x83\x18\x01\x1a\x03\x08\xe8\x0f"
    far = b"\0\x0a\x0e\x0a\x0a" + b"\x7f" * 10 + b"\x18\x02"
    endless = b"\0\x12\x09\x0a\x01\x01\x18" + b"\x80\x80\x80\x80\xf8" + b"\xff" * 4 + b"\x01"
    endless = endless.replace(b"\x12\x09", b"\x12\x0e")
    good, bad, worse = decoded(by, *(framed(schema_id, each) for each in (value, far, endless)))
    assert good["row"] == {
        "price": Decimal("1.25"), "any": "-12.5", "day": {"year": 2024, "month": 0, "day": 0},
    }  # fmt: skip
    assert bad["error"].startswith("it does not fit the table's columns")
    assert "a decimal of 1 bytes and scale -2147483648 is beyond what is converted" in worse["error"]


def test_protobuf_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "geo").mkdir()
    (tmp_path / "geo/place.proto").write_text(PLACE)
    (tmp_path / "order.proto").write_text(ORDER)
    (tmp_path / "broken.proto").write_text("nobody asked for this one")
    order = of_file(tmp_path / "order.proto")
    assert order.named("shop.Order").read(memoryview(ORDER_BYTES))["id"] == 42
    with pytest.raises(ValueError, match=r"no message 'Nope'; there are: shop.Ignored, shop.Order"):
        order.named("Nope")
    with pytest.raises(ValueError, match="protoc refuses the schema"):
        of_file(tmp_path / "broken.proto")


def test_json_schemas_as_columns(registry: SchemaRegistry) -> None:
    who = {"type": "object", "properties": {"name": {"type": ["string", "null"]}}}
    first = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "who": {"$ref": "#/definitions/who"}},
    }
    first["definitions"] = {"who": who}
    registry.register("flights-value", first, "JSON")
    registry.register(
        "flights-value", {"type": "object", "properties": {"odd one": {"type": "array"}}}, "JSON"
    )
    topic = TopicSpec("flights", format="json", subjects=("flights-value",))
    project = ProjectSpec(Path(), Path(), {"flights": topic}, registry=RegistrySpec(registry.url))
    assert columns_of(topic, project) == "`id` BIGINT, `who` STRUCT<`name`: STRING>, `odd one` ARRAY<STRING>"


def test_a_subject_that_is_not_there_or_of_another_kind(registry: SchemaRegistry) -> None:
    with pytest.raises(
        SpecError, match=r"topics.flights.subjects: the registry has no subject flights-value"
    ):
        decoder(registry)
    registry.register("flights-value", PLACE, "PROTOBUF")
    with pytest.raises(SpecError, match="schema 1 is PROTOBUF, but the topic's format is avro"):
        decoder(registry)
