"""Decoding by the ids of the broker's own schema registry, as Confluent's serializers register them. No Spark."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2

from magnetar.pipeline.jobs.decode.decoder import plan
from magnetar.pipeline.jobs.spec import ProjectSpec, RegistrySpec, TopicSpec
from tests.pipeline.jobs.schema_registry import SchemaRegistry
from tests.process import BrokerProcess
from tests.schema_registry.test_serializers import ORDER, compiled

SEAT = {"type": "record", "name": "Seat", "fields": [{"name": "row", "type": "int"}]}
WIDER = SEAT | {"fields": [*SEAT["fields"], {"name": "letter", "type": "string", "default": "?"}]}  # type: ignore[misc]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data = tmp_path_factory.mktemp("own") / "data"
    with BrokerProcess(data, "--schema-registry", "127.0.0.1:0") as process:
        yield f"http://{process.served['schema-registry'][0]}"


def decoded(url: str, topic: str, form: str, values: list[bytes]) -> list[Any]:
    spec = RegistrySpec(url=url)
    asked = TopicSpec(topic=topic, format=form, subjects=(f"{topic}-value",))
    project = ProjectSpec(directory=Path(), data=None, registry=spec, topics={topic: asked})
    return list(plan(asked, project).decode(pa.array(values, pa.binary())).to_pylist())


def value_of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


@pytest.mark.slow
def test_avro_of_two_versions(url: str) -> None:
    client = SchemaRegistryClient({"url": url})
    first = AvroSerializer(client, json.dumps(SEAT))({"row": 1}, value_of("seats"))
    second = AvroSerializer(client, json.dumps(WIDER))({"row": 2, "letter": "F"}, value_of("seats"))
    rows = decoded(url, "seats", "avro", [first, second, b"\0\0\0\x13\x88\x02", b"no frame"])
    assert [each["row"] for each in rows[:2]] == [{"row": 1, "letter": "?"}, {"row": 2, "letter": "F"}]
    assert "has no schema with id 5000" in rows[2]["error"]
    assert "magic 0" in rows[3]["error"]


def test_avro_with_a_reference(url: str) -> None:
    client = SchemaRegistryClient({"url": url})
    town = {
        "type": "record",
        "name": "Town",
        "namespace": "x",
        "fields": [{"name": "name", "type": "string"}],
    }
    trip = {"type": "record", "name": "Trip", "namespace": "x", "fields": [{"name": "to", "type": "x.Town"}]}
    client.register_schema("town", Schema(json.dumps(town), "AVRO"))
    references = [SchemaReference("x.Town", "town", 1)]
    serialize = AvroSerializer(client, Schema(json.dumps(trip), "AVRO", references))
    (row,) = decoded(url, "trips", "avro", [serialize({"to": {"name": "Ulm"}}, value_of("trips"))])
    assert row["row"] == {"to": {"name": "Ulm"}}


def test_protobuf_that_a_registry_gives_as_a_descriptor(tmp_path: Path) -> None:
    """Apicurio gives back in base64 what Python's serializer registered so."""
    order = compiled(ORDER, tmp_path)["shop.Order"]
    descriptor = descriptor_pb2.FileDescriptorProto()
    order.DESCRIPTOR.file.CopyToProto(descriptor)
    registry = SchemaRegistry()
    text = base64.b64encode(descriptor.SerializeToString()).decode()
    schema_id = registry.register("orders-value", text, "PROTOBUF")
    value = b"\0" + schema_id.to_bytes(4, "big") + b"\x02\x02" + order(id=7, card="visa").SerializeToString()
    asked = TopicSpec(topic="orders", format="protobuf", subjects=("orders-value",), message="shop.Order")
    project = ProjectSpec(Path(), None, {"orders": asked}, registry=RegistrySpec(url=registry.url))
    (found,) = plan(asked, project).decode(pa.array([value], pa.binary())).to_pylist()
    registry.close()
    assert (found["error"], found["row"]["id"], found["row"]["card"]) == (None, 7, "visa")


@pytest.mark.slow
def test_protobuf_as_pythons_serializer_registers_it(url: str, tmp_path: Path) -> None:
    order = compiled(ORDER, tmp_path)["shop.Order"]
    client = SchemaRegistryClient({"url": url})
    serialize = ProtobufSerializer(order, client, {"use.deprecated.format": False})
    row = order(id=7, lines={"a": {"sku": "bolt", "pieces": 3}}, cash=1.5, state=1)
    spec = RegistrySpec(url=url)
    asked = TopicSpec(topic="orders", format="protobuf", subjects=("orders-value",), message="shop.Order")
    value = serialize(row, value_of("orders"))
    project = ProjectSpec(directory=Path(), data=None, registry=spec, topics={"orders": asked})
    (found,) = plan(asked, project).decode(pa.array([value], pa.binary())).to_pylist()
    assert found["error"] is None
    assert (found["row"]["id"], found["row"]["cash"], found["row"]["state"]) == (7, 1.5, "SENT")
    assert found["row"]["lines"] == [("a", {"sku": "bolt", "pieces": 3})]
