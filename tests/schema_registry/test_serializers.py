"""Confluent's own serializers and deserializers work through the registry and the Kafka listener."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, message_factory

from tests.process import BrokerProcess
from tests.schema_registry.conftest import registry_url

USER = {
    "type": "record",
    "name": "User",
    "namespace": "example",
    "fields": [{"name": "name", "type": "string"}, {"name": "age", "type": ["null", "int"], "default": None}],
}
USER_JSON = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "User",
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name"],
}


@pytest.fixture
def client(broker: BrokerProcess) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry_url(broker)})


def through_the_broker(broker: BrokerProcess, topic: str, values: list[bytes]) -> list[bytes]:
    producer = Producer({"bootstrap.servers": broker.address})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    return consumed(broker, topic, len(values))


def consumed(broker: BrokerProcess, topic: str, count: int) -> list[Any]:
    consumer = Consumer(
        {"bootstrap.servers": broker.address, "group.id": f"of-{topic}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[Any] = []
    while len(found) < count:
        message = consumer.poll(30)
        assert message is not None, f"{len(found)} of {count} came"
        assert message.error() is None, message.error()
        found.append(message.value())
    consumer.close()
    return found


def value_of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def test_avro(broker: BrokerProcess, client: SchemaRegistryClient) -> None:
    rows = [{"name": f"user {number}", "age": number or None} for number in range(10)]
    serialize = AvroSerializer(client, json.dumps(USER))
    context = value_of("users-avro")
    stored = through_the_broker(broker, "users-avro", [serialize(row, context) for row in rows])
    read = AvroDeserializer(SchemaRegistryClient({"url": registry_url(broker)}))
    assert [read(value, context) for value in stored] == rows
    registered = client.get_latest_version("users-avro-value")
    assert (registered.version, json.loads(registered.schema.schema_str)) == (1, USER)
    assert stored[0][:5] == b"\0" + registered.schema_id.to_bytes(4, "big")


def test_json(broker: BrokerProcess, client: SchemaRegistryClient) -> None:
    rows = [{"name": f"user {number}", "age": number} for number in range(10)]
    serialize = JSONSerializer(json.dumps(USER_JSON), client)
    context = value_of("users-json")
    stored = through_the_broker(broker, "users-json", [serialize(row, context) for row in rows])
    read = JSONDeserializer(None, schema_registry_client=SchemaRegistryClient({"url": registry_url(broker)}))
    assert [read(value, context) for value in stored] == rows
    assert client.get_latest_version("users-json-value").schema.schema_type == "JSON"


ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Other { string ignored = 1; }
message Order {
  message Line { string sku = 1; uint32 pieces = 2; }
  int64 id = 1;
  map<string, Line> lines = 2;
  oneof paid { string card = 3; double cash = 4; }
  google.protobuf.Timestamp at = 5;
  optional State state = 6;
  enum State { NEW = 0; SENT = 1; }
}
"""


def compiled(text: str, place: Path) -> Any:
    """Return the messages of a .proto text by name."""
    (place / "order.proto").write_text(text)
    out = place / "order.desc"
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{place}", "--include_imports"]
    subprocess.run([*command, f"--descriptor_set_out={out}", "order.proto"], check=True)
    return message_factory.GetMessages(descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file)


def test_protobuf(broker: BrokerProcess, client: SchemaRegistryClient, tmp_path: Path) -> None:
    order = compiled(ORDER, tmp_path)["shop.Order"]
    row = order(id=7, lines={"a": {"sku": "bolt", "pieces": 3}}, cash=1.5, at={"seconds": 99}, state=1)
    serialize = ProtobufSerializer(order, client, {"use.deprecated.format": False})
    context = value_of("orders-proto")
    (stored,) = through_the_broker(broker, "orders-proto", [serialize(row, context)])
    other = SchemaRegistryClient({"url": registry_url(broker)})
    read = ProtobufDeserializer(order, {"use.deprecated.format": False}, other)
    assert read(stored, context) == row
    assert (
        "map<string, .shop.Order.Line> lines = 2;"
        in client.get_latest_version("orders-proto-value").schema.schema_str
    )


def test_evolution_is_checked_for_the_serializers(
    broker: BrokerProcess, client: SchemaRegistryClient
) -> None:
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    context = value_of("evolving")
    first = AvroSerializer(client, json.dumps(USER))({"name": "a", "age": 1}, context)
    wider = USER | {"fields": [*USER["fields"], {"name": "town", "type": "string", "default": "Ulm"}]}  # type: ignore[misc]
    second = AvroSerializer(client, json.dumps(wider))({"name": "b", "age": 2, "town": "Bonn"}, context)
    read = AvroDeserializer(client, json.dumps(wider))
    assert [read(value, context) for value in (first, second)] == [
        {"name": "a", "age": 1, "town": "Ulm"},
        {"name": "b", "age": 2, "town": "Bonn"},
    ]
    narrow = USER | {"fields": [{"name": "name", "type": "int"}]}
    with pytest.raises(SchemaRegistryError) as refused:
        AvroSerializer(client, json.dumps(narrow))({"name": 3}, context)
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 409)
