"""Bytes by their schemas, as pages show them: the same values that ``magnetar consume --decode`` prints."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2

from magnetar.admin.lines import Seen
from magnetar.admin.payloads.decoding import Decoding, Written
from magnetar.admin.payloads.registry import FetchedSchema
from magnetar.admin.topic_schema import TopicSchemaVersion
from magnetar.console import decoding
from magnetar.console.decoding import RegistrySchema, ShownBytes, shown
from magnetar.schema_registry.topic_schemas import TopicSchema
from magnetar.wire.pulsar.pulsar_pb2 import Schema

EVENT = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "raw", "type": "bytes"},
    ],
}
EVENT_BYTES = b"\xd8\x17" + b"\x04\x04\xe2" + b"\x04\x00\xff"
EVENT_JSON = {"at": "1970-01-01T00:00:01.516000+00:00", "price": "12.50", "raw": {"base64": "AP8="}}
INNER = 'syntax = "proto3"; package p; message Inner { int32 n = 1; }'
OUTER = 'syntax = "proto3"; import "inner.proto"; message Other {} message Outer { p.Inner inner = 1; }'
NUMBER = json.dumps({"type": "record", "name": "N", "fields": [{"name": "n", "type": "int"}]}).encode()


def native() -> bytes:
    file = descriptor_pb2.FileDescriptorProto.FromString(timestamp_pb2.DESCRIPTOR.serialized_pb)
    files = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    return json.dumps(
        {
            "fileDescriptorSet": base64.b64encode(files).decode(),
            "rootMessageTypeName": "google.protobuf.Timestamp",
        }
    ).encode()


def key_value(key: tuple[str, bytes], value: tuple[str, bytes], encoding: str) -> TopicSchema:
    definition = b"".join(struct.pack(">i", len(each)) + each for _, each in (key, value))
    properties = {"key.schema.type": key[0], "value.schema.type": value[0], "kv.encoding.type": encoding}
    return TopicSchema("KeyValue", definition, properties)


@pytest.mark.parametrize(
    ("kind", "text", "references", "data", "value"),
    [
        ("AVRO", json.dumps(EVENT), (), EVENT_BYTES, EVENT_JSON),
        ("AVRO", '"string"', (), b"\x04ab", "ab"),
        ("JSON", "{}", (), b'{"a": [1, null]}', {"a": [1, None]}),
        ("PROTOBUF", OUTER, (("inner.proto", INNER),), b"\x02\x02\x0a\x02\x08\x07", {"inner": {"n": 7}}),
    ],
)
def test_schemas_of_the_registry(
    kind: str, text: str, references: tuple[tuple[str, str], ...], data: bytes, value: Any
) -> None:
    class Known:
        def schema(self, schema_id: int) -> FetchedSchema:
            return FetchedSchema(schema_id, kind, text, references)

    framed = struct.pack(">bI", 0, 7) + data
    told = shown(framed, {7: RegistrySchema("id 7", kind, text, references)})
    assert (told.format, told.schema, told.problem) == (kind.lower(), "id 7", "")
    assert json.loads(told.text) == value
    printed = Decoding(Known()).decode(Seen("t", 0, 0, 0, "none", None, framed, ()))  # type: ignore[arg-type]
    assert printed.value.value == value


PULSAR = {
    "String": (b"", b"words", "text", "words"),
    "Json": (NUMBER, b'{"n":1}', "json", '{\n "n": 1\n}'),
    "Avro": (NUMBER, b"\x02", "avro", '{\n "n": 1\n}'),
    "ProtobufNative": (native(), b"\x08\x05", "protobuf", '"1970-01-01T00:00:05Z"'),
    "Bool": (b"", b"\1", "number", "true"),
    "Int8": (b"", b"\xff", "number", "-1"),
    "Int16": (b"", b"\1\0", "number", "256"),
    "Int32": (b"", b"\0\0\0\5", "number", "5"),
    "Int64": (b"", struct.pack(">q", 1 << 40), "number", str(1 << 40)),
    "Float": (b"", struct.pack(">f", 0.5), "number", "0.5"),
    "Double": (b"", struct.pack(">d", float("nan")), "number", "NaN"),
    "Date": (b"", struct.pack(">q", 1500), "time", "1970-01-01T00:00:01.500000+00:00"),
    "Time": (b"", struct.pack(">q", 1500), "time", "1970-01-01T00:00:01.500000+00:00"),
    "Timestamp": (b"", struct.pack(">q", 1500), "time", "1970-01-01T00:00:01.500000+00:00"),
    "Instant": (b"", struct.pack(">qi", 1, 0), "time", "1970-01-01T00:00:01+00:00"),
    "LocalDate": (b"", struct.pack(">q", 1), "time", "1970-01-02"),
    "LocalTime": (b"", struct.pack(">q", 1_000_000_000), "time", "00:00:01"),
    "LocalDateTime": (b"", struct.pack(">qq", 1, 0), "time", "1970-01-02T00:00:00"),
}
NOT_READ = {"None", "Protobuf", "KeyValue", "AutoConsume", "External"}


@pytest.mark.parametrize("kind", PULSAR)
def test_schemas_of_a_topic(kind: str) -> None:
    definition, data, form, text = PULSAR[kind]
    told = shown(data, {}, TopicSchema(kind, definition, {}))
    assert told == ShownBytes(form, text, len(data), schema=f"{kind} of the topic")
    assert shown(data, {}, TopicSchema(kind, definition, {}), part="key").schema == ""
    # The same as one half of a KeyValue, whose properties have it in capitals.
    spelt = {"ProtobufNative": "PROTOBUF_NATIVE", "Bool": "BOOLEAN"}.get(kind, kind.upper())
    half = key_value((spelt, definition), ("BYTES", b""), "SEPARATED")
    assert (found := shown(data, {}, half, part="key"))[:3] == told[:3]
    assert found.schema.endswith(" of the topic")
    schema = TopicSchemaVersion(0, kind, base64.b64encode(definition).decode(), {})
    printed = Decoding(topic_schemas=[schema], written=lambda record: Written(0))
    value = printed.decode(Seen("t", 0, 0, 0, "none", None, data, ())).value.value
    assert text in (value, json.dumps(value, indent=1))


def test_every_kind_of_pulsars_is_read_or_known_not_to_be() -> None:
    assert set(Schema.Type.keys()) == PULSAR.keys() | NOT_READ
    for kind in NOT_READ - {"KeyValue"}:
        assert shown(b"\xff\0", {}, TopicSchema(kind, b"", {})).schema == ""


def test_keys_and_values() -> None:
    number, text = ("AVRO", NUMBER), ("STRING", b"")
    inline = struct.pack(">i", 1) + b"\x02" + struct.pack(">i", 2) + b"ab"
    told = shown(inline, {}, key_value(number, text, "INLINE"))
    assert (told.format, told.schema) == ("json", "KeyValue of the topic")
    assert json.loads(told.text) == {"key": {"n": 1}, "value": "ab"}
    assert shown(b"k", {}, key_value(number, text, "INLINE"), part="key") == ShownBytes("text", "k", 1)
    for cut in range(len(inline)):
        assert shown(inline[:cut], {}, key_value(number, text, "INLINE")).problem
    null = struct.pack(">i", -1) + struct.pack(">i", 2) + b"ab"
    assert json.loads(shown(null, {}, key_value(number, text, "INLINE")).text)["key"] is None
    apart = key_value(number, text, "SEPARATED")
    assert json.loads(shown(b"\x02", {}, apart, part="key").text) == {"n": 1}
    assert shown(b"ab", {}, apart).text == "ab"


def test_a_half_is_read_whatever_the_other_is() -> None:
    for other in (("PROTOBUF", NUMBER), ("AVRO", b"{"), ("BYTES", b""), ("", b"")):
        for part, halves in (("key", (("STRING", b""), other)), ("value", (other, ("STRING", b"")))):
            told = shown(b"ab", {}, key_value(*halves, "SEPARATED"), part=part)
            assert told == ShownBytes("text", "ab", 2, schema="String of the topic")
    told = shown(b"\x02", {}, key_value(("AVRO", b"{"), ("STRING", b""), "SEPARATED"), part="key")
    assert told.format == "hex"
    assert "no Avro schema" in told.problem


@pytest.mark.parametrize("definition", [b"", b"\0\0\0\5ab", b"\xff\xff\xff\xff"])
def test_definitions_that_are_cut(definition: bytes) -> None:
    schema = TopicSchema("KeyValue", definition, {"value.schema.type": "STRING"})
    told = shown(struct.pack(">ii", -1, 2) + b"ab", {}, schema)
    assert told.format == "hex"
    assert "ends before its two definitions" in told.problem


def test_a_schema_that_cannot_be_used_is_tried_once_for_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    real = decoding.reader_of

    def counted(kind: str, text: str, references: tuple[tuple[str, str], ...]) -> Any:
        tried.append(text)
        return real(kind, text, references)

    monkeypatch.setattr(decoding, "reader_of", counted)
    broken = RegistrySchema("id 1", "PROTOBUF", "message of a test that tries it once {")
    for number in range(20):
        told = shown(struct.pack(">bIb", 0, 1, 0) + bytes([0xFF, number]), {1: broken})
        assert (told.format, told.schema) == ("hex", "id 1")
        assert "cannot be put together" in told.problem
    assert tried == [broken.text]


def test_few_readers_stay() -> None:
    for number in range(200):
        schema = json.dumps({"type": "fixed", "name": f"F{number}", "size": 1})
        shown(b"\0\0\0\0\1x", {1: RegistrySchema("id 1", "AVRO", schema)})
        shown(b"x", {}, TopicSchema("Avro", schema.encode(), {}))
    for cached in (decoding._registry_reader, decoding._pulsar_payload):
        assert cached.cache_info().currsize <= 64


def test_what_is_wanted_as_text_or_digits_is_not_decoded() -> None:
    schema = TopicSchema("Int32", b"", {})
    assert shown(b"\0\0\0\5", {}, schema, wanted="hex").format == "hex"
    assert shown(b"abcd", {}, schema, wanted="text").text == "abcd"
    assert shown(None, {}, schema).format == "null"
    large = b"x" * ((1 << 20) + 4)
    assert shown(large, {}, TopicSchema("String", b"", {})).schema == ""
