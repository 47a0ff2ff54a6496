"""Values and keys by their schemas: what Confluent's serializers and Pulsar's clients write, and what they read."""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import timestamp_pb2
from hypothesis import given
from hypothesis import strategies as st
from pulsar.schema import AvroSchema, BytesSchema, Integer, JsonSchema, Record, String, StringSchema

from magnetar.admin.payloads.avro import AvroPayload
from magnetar.admin.payloads.decoding import Decoding
from magnetar.admin.payloads.encoding import Encoding
from magnetar.admin.payloads.pulsar import PulsarPayload
from magnetar.admin.payloads.registry import FetchedSchema
from magnetar.schema_registry.framing import Undecodable
from tests.cli.operator import Operator
from tests.process import BrokerProcess
from tests.schema_registry.conftest import registry_url, start
from tests.schema_registry.key_value import send_key_value

EVENT = {
    "type": "record",
    "name": "Event",
    "namespace": "example",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "raw", "type": "bytes", "default": "\u00ff"},
        {"name": "size", "type": ["null", "int", "string"], "default": None},
        {
            "name": "tags",
            "type": {"type": "map", "values": {"type": "array", "items": "long"}},
            "default": {},
        },
        {
            "name": "kind",
            "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]},
            "default": "A",
        },
    ],
}
ONE = {
    "name": "x", "at": "2026-01-02T03:04:05.678000+00:00", "price": "12.50", "raw": {"base64": "AAE="},
    "size": "large", "tags": {"a": [1, 2]}, "kind": "B",
}  # fmt: skip
NUMBER_JSON = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with start(tmp_path_factory.mktemp("payloads") / "data", "--http", "127.0.0.1:0", "--set",
               "kafkaApplyAvroSchemaOnDecode=false") as process:  # fmt: skip
        yield process


@pytest.fixture
def operator(served: BrokerProcess) -> Operator:
    return Operator(served.address)


@pytest.fixture
def registry(served: BrokerProcess) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry_url(served)})


def sent(served: BrokerProcess, topic: str, *values: bytes | None, key: bytes | None = None) -> None:
    producer = Producer({"bootstrap.servers": served.address})
    for value in values:
        producer.produce(topic, value, key)
    assert producer.flush(30) == 0


def stored(served: BrokerProcess, topic: str) -> list[Any]:
    consumer = Consumer({"bootstrap.servers": served.address, "group.id": "x", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while True:
        message = consumer.poll(30)
        assert message is not None
        if message.error() is not None:
            consumer.close()
            return found
        found.append(message)


def value_of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


class TestDecoding:
    @pytest.mark.slow
    def test_avro_keys_and_values(
        self, served: BrokerProcess, operator: Operator, registry: SchemaRegistryClient
    ) -> None:
        topic = "payload-avro"
        keys = AvroSerializer(registry, '"string"')
        values = AvroSerializer(registry, json.dumps(EVENT), lambda value, _: value)
        from datetime import UTC, datetime
        from decimal import Decimal

        event = {"name": "x", "at": datetime(2026, 1, 2, 3, 4, 5, 678000, UTC), "price": Decimal("12.50"),
                 "raw": b"\0\1", "size": "large", "tags": {"a": [1, 2]}, "kind": "B"}  # fmt: skip
        key = keys("k", SerializationContext(topic, MessageField.KEY))
        sent(served, topic, values(event, value_of(topic)), None, key=key)
        first, last = operator.run("consume", topic, "-e", "--decode", "auto", "--json").lines
        assert (first["key"], first["value"]) == ("k", ONE)
        assert first["value_schema"]["name"] == "example.Event"
        assert first["key_schema"]["type"] == "AVRO"
        assert last["value"] is None
        text = operator.ok("consume", topic, "-c", "1", "--decode", "auto", "-f", r"%k=%s\n")
        assert text.startswith('k={"name":"x","at":"2026-01-02T03:04:05.678000+00:00","price":"12.50"')
        grepped = operator.ok("consume", topic, "-e", "-D", "auto", "--grep", "large", "--key", "k")
        assert len(grepped.splitlines()) == 1

    @pytest.mark.slow
    def test_protobuf_and_json_schema(
        self, served: BrokerProcess, operator: Operator, registry: SchemaRegistryClient
    ) -> None:
        topic = "payload-protobuf"
        values = ProtobufSerializer(timestamp_pb2.Timestamp, registry, {"use.deprecated.format": False})
        sent(served, topic, values(timestamp_pb2.Timestamp(seconds=5), value_of(topic)))
        (shown,) = operator.run("consume", topic, "-e", "--decode", "auto", "--json").lines
        assert shown["value"] == "1970-01-01T00:00:05Z"
        assert shown["value_schema"]["name"] == "google.protobuf.Timestamp"
        topic = "payload-json"
        write = JSONSerializer(json.dumps(NUMBER_JSON), registry)
        sent(served, topic, write({"n": 3}, value_of(topic)))
        (shown,) = operator.run("consume", topic, "-e", "--decode", "auto", "--json").lines
        assert (shown["value"], shown["value_schema"]["type"]) == ({"n": 3}, "JSON")

    @pytest.mark.slow
    def test_schemas_that_refer_to_others(
        self, served: BrokerProcess, operator: Operator, registry: SchemaRegistryClient
    ) -> None:
        inner = 'syntax = "proto3"; package p; message Inner { int32 n = 1; }'
        registry.register_schema("inner", Schema(inner, "PROTOBUF"))
        outer = ('syntax = "proto3"; package p; import "inner.proto"; message Other {} '
                 "message Outer { message Deep { p.Inner inner = 1; } }")  # fmt: skip
        number = registry.register_schema(
            "outer", Schema(outer, "PROTOBUF", [SchemaReference("inner.proto", "inner", 1)])
        )
        topic = "payload-references"
        told = operator.run("produce", topic, "--schema-id", str(number), "--message", "Outer.Deep",
                            stdin='{"inner":{"n":7}}\n')  # fmt: skip
        assert told.status == 0, told.err
        (message,) = stored(served, topic)
        assert message.value() == b"\0" + number.to_bytes(4, "big") + b"\x04\x02\x00" + b"\x0a\x02\x08\x07"
        (shown,) = operator.run("consume", topic, "-e", "--decode", "auto", "--json").lines
        assert (shown["value"], shown["value_schema"]["name"]) == ({"inner": {"n": 7}}, "p.Outer.Deep")

    @pytest.mark.slow
    def test_no_record_is_left_out(self, served: BrokerProcess, operator: Operator) -> None:
        topic = "payload-odd"
        values = [b"text", b'{"a": 1}', b"\0\0\0\0\x63?", b"\0\xff", b"", b"\x1b[31m", b"[broken"]
        sent(served, topic, *values)
        done = operator.run("consume", topic, "-e", "--decode", "auto")
        assert done.status == 0
        assert done.out.splitlines() == [
            "text", '{"a":1}', "0x00000000633f", "0x00ff", "", "0x1b5b33316d", "[broken",
        ]  # fmt: skip
        assert "not decoded: 1 keys or values" in done.err
        assert "no schema with id 99" in done.err
        away = operator.run("consume", topic, "-e", "-D", "auto", "--schema-registry", "http://127.0.0.1:1")
        assert (away.status, away.out) == (0, done.out)
        assert "no schema registry answers" in away.err
        assert operator.ok("consume", topic, "-c", "1", "-D", "hex") == "74657874\n"
        assert operator.run("consume", topic, "-e", "-J").lines[3]["value"] == {"base64": "AP8="}

    def test_what_a_few_bytes_ask_for_is_bounded(self) -> None:
        nulls = AvroPayload('{"type": "array", "items": "null"}')
        with pytest.raises(Undecodable):
            nulls.decode(memoryview(b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
        deep = {"type": "record", "name": "L", "fields": [{"name": "n", "type": ["null", "L"]}]}
        with pytest.raises(Undecodable):
            AvroPayload(json.dumps(deep)).decode(memoryview(b"\x02" * 100_000 + b"\0"))

    def test_times_that_no_calendar_has_are_shown_as_numbers(self) -> None:
        payload = AvroPayload('{"type": "long", "logicalType": "timestamp-millis"}')
        assert payload.decode(memoryview(b"\xfe" + b"\xff" * 8 + b"\x01")) == (1 << 63) - 1

    @given(st.binary(max_size=40))
    def test_any_bytes_are_shown(self, data: bytes) -> None:
        schemas = [FetchedSchema(1, "AVRO", json.dumps(EVENT)), FetchedSchema(2, "JSON", "{}")]

        class Known:
            def schema(self, schema_id: int) -> FetchedSchema:
                return schemas[schema_id % 2]

        decoding = Decoding(Known())  # type: ignore[arg-type]
        from magnetar.admin.lines import Seen

        for value in (data, b"\0\0\0\0\0" + data, b"\0\0\0\0\1" + data):
            shown = decoding.decode(Seen("t", 0, 0, 0, "none", None, value, ()))
            json.dumps(shown.json())
            assert (shown.printed().value == b"") == (shown.value.value == "")


class Flight(Record):  # type: ignore[misc]
    carrier = String()
    number = Integer()


class LateFlight(Record):  # type: ignore[misc]
    carrier = String()
    number = Integer()
    delay = Integer(required_default=True)


@pytest.mark.slow
class TestPulsarSchemas:
    def test_each_record_by_its_version(self, served: BrokerProcess, operator: Operator) -> None:
        topic = "payload-pulsar"
        client = pulsar.Client(served.pulsar_url)
        first = client.create_producer(topic, schema=AvroSchema(Flight), batching_max_publish_delay_ms=200)
        for number in range(5):
            first.send_async(Flight(carrier="LH", number=number), lambda *_: None)
        first.flush()
        client.create_producer(topic, schema=AvroSchema(LateFlight)).send(
            LateFlight(carrier="LH", number=5, delay=9)
        )
        client.close()
        # A Kafka producer's value, though it would be one by the schema.
        sent(served, topic, b"\x02\x04AB\x02\x06")
        rows = operator.run("consume", topic, "-e", "--decode", "auto", "--json").lines
        assert [row["value"] for row in rows[:5]] == [{"carrier": "LH", "number": n} for n in range(5)]
        assert rows[5]["value"] == {"carrier": "LH", "number": 5, "delay": 9}
        assert [row["value_schema"]["version"] for row in rows[:6]] == [0] * 5 + [1]
        assert "value_schema" not in rows[6]

    def test_json_text_and_none(self, served: BrokerProcess, operator: Operator) -> None:
        client = pulsar.Client(served.pulsar_url)
        client.create_producer("payload-p-json", schema=JsonSchema(Flight)).send(
            Flight(carrier="LH", number=1)
        )
        client.create_producer("payload-p-text", schema=StringSchema()).send('{"no": "object"}')
        client.create_producer("payload-p-bytes", schema=BytesSchema()).send(b"\xff\0")
        client.close()
        shown = [
            operator.run("consume", f"payload-p-{kind}", "-e", "-D", "auto", "-J").lines[0]["value"]
            for kind in ("json", "text", "bytes")
        ]
        assert shown == [{"carrier": "LH", "number": 1}, '{"no": "object"}', {"base64": "/wA="}]

    def test_keys_and_values(self, served: BrokerProcess, operator: Operator) -> None:
        key = {"type": "record", "name": "K", "fields": [{"name": "id", "type": "long"}]}
        value = {"type": "record", "name": "V", "fields": [{"name": "town", "type": "string"}]}
        for encoding in ("SEPARATED", "INLINE"):
            topic = f"payload-kv-{encoding.lower()}"
            send_key_value(served, topic, key, value, b"\x0e", b"\x06Ulm", encoding)
        (apart,) = operator.run("consume", "payload-kv-separated", "-e", "-D", "auto", "-J").lines
        assert (apart["key"], apart["value"]) == ({"id": 7}, {"town": "Ulm"})
        (together,) = operator.run("consume", "payload-kv-inline", "-e", "-D", "auto", "-J").lines
        assert together["value"] == {"key": {"id": 7}, "value": {"town": "Ulm"}}

    def test_values_that_the_broker_frames(self, tmp_path: Path) -> None:
        with start(tmp_path / "data") as framing:
            client = pulsar.Client(framing.pulsar_url)
            client.create_producer("framed", schema=AvroSchema(Flight)).send(Flight(carrier="LH", number=3))
            client.close()
            operator = Operator(framing.address)
            assert operator.run("consume", "framed", "-e", "-J").lines[0]["value"].startswith("\0")
            (row,) = operator.run("consume", "framed", "-e", "-D", "auto", "-J").lines
            assert row["value"] == {"carrier": "LH", "number": 3}
            assert row["value_schema"]["id"] == 1


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        ("Int8", b"\xff", -1),
        ("Int64", struct.pack(">q", 5), 5),
        ("Double", struct.pack(">d", 0.5), 0.5),
        ("Bool", b"\1", True),
        ("Timestamp", struct.pack(">q", 1500), "1970-01-01T00:00:01.500000+00:00"),
        ("Instant", struct.pack(">qi", 1, 5000), "1970-01-01T00:00:01.000005+00:00"),
        ("LocalDate", struct.pack(">q", 1), "1970-01-02"),
        ("LocalTime", struct.pack(">q", 1_000_000_000), "00:00:01"),
        ("LocalDateTime", struct.pack(">qq", 1, 1_000_000_000), "1970-01-02T00:00:01"),
    ],
)
def test_pulsars_plain_types(kind: str, data: bytes, value: object) -> None:
    payload = PulsarPayload(kind, b"", {})
    assert payload.value(memoryview(data)) == value
    for wrong in (data[1:], data + b"x", b"\x7f" * len(data)):
        with contextlib.suppress(Undecodable):
            payload.value(memoryview(wrong))


@pytest.mark.slow
class TestEncoding:
    def test_confluents_deserializers_read_it(
        self, served: BrokerProcess, operator: Operator, registry: SchemaRegistryClient, tmp_path: Path
    ) -> None:
        avro, key = tmp_path / "event.avsc", tmp_path / "key.avsc"
        avro.write_text(json.dumps(EVENT))
        key.write_text('"string"')
        topic = "encode-avro"
        line = json.dumps({"key": "k", "value": ONE, "headers": {"h": "1"}})
        short = json.dumps({"key": "123", "value": {"name": "y", "at": 5, "price": 1, "size": {"int": 3}}})
        operator.ok("produce", topic, "-F", "json", "--schema", avro, "--key-schema", key,
                    stdin=f"{line}\n{short}\n")  # fmt: skip
        read = AvroDeserializer(registry)
        messages = stored(served, topic)
        first, second = (read(each.value(), value_of(topic)) for each in messages)
        assert first["raw"] == b"\0\1"
        assert str(first["price"]) == "12.50"
        assert first["at"].isoformat() == ONE["at"]
        assert (second["raw"], second["size"], second["kind"], second["tags"]) == (b"\xff", 3, "A", {})
        keys = [read(each.key(), SerializationContext(topic, MessageField.KEY)) for each in messages]
        assert keys == ["k", "123"]
        assert messages[0].headers() == [("h", b"1")]
        assert registry.get_subjects()
        again = operator.run("consume", topic, "-e", "--decode", "auto", "--json").lines
        assert again[0]["value"] == ONE

    def test_json_and_protobuf(
        self, served: BrokerProcess, operator: Operator, registry: SchemaRegistryClient, tmp_path: Path
    ) -> None:
        schema = tmp_path / "n.json"
        schema.write_text(json.dumps(NUMBER_JSON))
        operator.ok("produce", "encode-json", "--schema", schema, "--subject", "other", stdin='{"n": 4}\n')
        read = JSONDeserializer(json.dumps(NUMBER_JSON))
        assert [read(each.value(), value_of("x")) for each in stored(served, "encode-json")] == [{"n": 4}]
        assert "other" in registry.get_subjects()
        operator.ok("produce", "encode-json", "--subject", "other", stdin='{"n": 5}\n')
        wrong = operator.run("produce", "encode-json", "--subject", "other", stdin='{"n": "5"}\n')
        assert wrong.status == 2
        assert "line 1" in wrong.err
        assert "n: '5' is not of type 'integer'" in wrong.err
        assert len(stored(served, "encode-json")) == 2
        proto = tmp_path / "t.proto"
        proto.write_text('syntax = "proto3"; import "google/protobuf/timestamp.proto"; '
                         "message M { google.protobuf.Timestamp at = 1; }")  # fmt: skip
        operator.ok("produce", "encode-protobuf", "--schema", proto, stdin='{"at": "1970-01-01T00:00:05Z"}\n')
        (message,) = stored(served, "encode-protobuf")
        assert message.value()[5:] == b"\0\x0a\x02\x08\x05"
        read_time = ProtobufDeserializer(timestamp_pb2.Timestamp, {"use.deprecated.format": False}, registry)
        assert read_time is not None

    def test_what_cannot_be(self, operator: Operator, served: BrokerProcess) -> None:
        assert "no schema with id 777" in operator.run("produce", "encode-x", "--schema-id", "777").err
        nowhere = operator.run("produce", "encode-x", "--subject", "nosuch", stdin="1\n")
        assert nowhere.status == 1
        assert "nosuch" in nowhere.err


class TestAvroFits:
    @pytest.mark.parametrize(
        ("value", "reason"),
        [
            ({}, "name is missing, and has no default"),
            ({**ONE, "name": 1}, "name is string, and not 1"),
            ({**ONE, "extra": 1}, "no field 'extra'"),
            ({**ONE, "kind": "C"}, "kind is one of A, B"),
            ({**ONE, "tags": {"a": ["x"]}}, "tags.a[0] is long"),
            ({**ONE, "at": "soon"}, "at is timestamp-millis"),
            ({**ONE, "raw": {"base64": "?"}}, "raw is bytes"),
            ([], "the value is a record example.Event"),
        ],
    )
    def test_the_reason_names_the_place(self, value: Any, reason: str) -> None:
        with pytest.raises(ValueError) as refused:
            AvroPayload(json.dumps(EVENT)).encode(value)
        assert reason in str(refused.value)

    @given(st.recursive(
        st.none() | st.booleans() | st.integers(-(1 << 31), (1 << 31) - 1) | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=10,
    ))  # fmt: skip
    def test_what_is_encoded_is_decoded_again(self, value: Any) -> None:
        schema = {"type": "record", "name": "J", "fields": [{"name": "v", "type": [
            "null", "boolean", "int", "string", {"type": "array", "items": "J"},
            {"type": "map", "values": "J"}]}]}  # fmt: skip

        def wrapped(each: Any) -> Any:
            if isinstance(each, list):
                return {"v": {"array": [wrapped(one) for one in each]}}
            if isinstance(each, dict):
                return {"v": {"map": {name: wrapped(one) for name, one in each.items()}}}
            return {"v": each}

        def bare(each: Any) -> Any:
            found = each["v"]
            if isinstance(found, list):
                return [bare(one) for one in found]
            if isinstance(found, dict):
                return {name: bare(one) for name, one in found.items()}
            return found

        payload = AvroPayload(json.dumps(schema))
        assert bare(payload.decode(memoryview(payload.encode(wrapped(value))))) == value


def test_a_schema_that_is_none() -> None:
    from magnetar.admin.errors import Invalid

    for kind, text in (("AVRO", "{"), ("AVRO", '{"type": "nosuch"}'), ("PROTOBUF", "x"), ("WSDL", "x")):
        with pytest.raises(Invalid):
            Encoding(FetchedSchema(1, kind, text))


@pytest.mark.slow
class TestUntil:
    def test_places(self, served: BrokerProcess, operator: Operator) -> None:
        topic = "until"
        operator.ok("topic", "create", topic, "--partitions", "2")
        for partition in ("0", "1"):
            operator.ok("produce", topic, "-p", partition, stdin="".join(f"{n}\n" for n in range(10)))
        said = operator.ok("consume", topic, "--until", "3", "-f", "%p:%o ").split()
        assert sorted(said) == [f"{p}:{o}" for p in (0, 1) for o in range(3)]
        said = operator.ok("consume", topic, "-o", "5", "--until", "-4", "-f", "%p:%o ").split()
        assert sorted(said) == ["0:5", "1:5"]
        assert len(operator.ok("consume", topic, "--until", "end").split()) == 20
        assert operator.ok("consume", topic, "-o", "5", "--until", "5") == ""
        middle = operator.run("consume", topic, "-p", "1", "-e", "-J").lines[0]["timestamp"]
        said = operator.ok("consume", topic, "--until", f"s@{middle}", "-f", "%p:%o ").split()
        assert said == [f"0:{n}" for n in range(10)]
        with operator.start("consume", topic, "-p", "0", "--until", "12") as follows:
            operator.ok("produce", topic, "-p", "0", stdin="10\n11\n12\n")
            assert follows.wait(60) == 0

    def test_transactions_end_it_too(self, served: BrokerProcess, operator: Operator) -> None:
        topic = "until-transaction"
        producer = Producer({"bootstrap.servers": served.address, "transactional.id": "until"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, b"x")
        producer.commit_transaction(30)
        assert operator.ok("consume", topic, "--until", "end") == "x\n"

    def test_a_group_commits_what_was_printed(self, served: BrokerProcess, operator: Operator) -> None:
        topic = "until-group"
        operator.ok("produce", topic, stdin="a\nb\nc\nd\n")
        assert operator.ok("consume", topic, "-g", "until-g", "--until", "2") == "a\nb\n"
        rows = operator.run("group", "describe", "until-g", "--json").value["partitions"]
        assert rows[0]["committed"] == 2

    def test_what_cannot_be(self, operator: Operator) -> None:
        operator.ok("produce", "until-odd", stdin="a\n")
        assert "one of --exit and --until" in operator.run("consume", "until-odd", "-e", "--until", "3").err
        assert "not come" in operator.run("consume", "until-odd", "--until", "s@2999-01-01").err
