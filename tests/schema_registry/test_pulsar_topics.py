"""What Pulsar's producers write with a schema reads with Confluent's deserializers (kafkaApplyAvroSchemaOnDecode)."""

from __future__ import annotations

import base64
import json
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from pulsar.schema import AvroSchema, Integer, JsonSchema, Record, String

from tests.process import BrokerProcess
from tests.schema_registry.conftest import ARGUMENTS, registry_url
from tests.schema_registry.test_serializers import consumed, value_of


class Flight(Record):  # type: ignore[misc]
    carrier = String()
    number = Integer()


class FlightWithDelay(Record):  # type: ignore[misc]
    carrier = String()
    number = Integer()
    delay = Integer(required_default=True)


@pytest.fixture(scope="module")
def pulsar_client(broker: BrokerProcess) -> Iterator[Any]:
    client = pulsar.Client(broker.pulsar_url)
    yield client
    client.close()


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("codec", ["NONE", "ZSTD"])
def test_avro(broker: BrokerProcess, pulsar_client: Any, batched: bool, codec: str) -> None:
    topic = f"flights-{batched}-{codec}"
    producer = pulsar_client.create_producer(
        topic,
        schema=AvroSchema(Flight),
        batching_enabled=batched,
        compression_type=getattr(pulsar.CompressionType, codec),
        batching_max_publish_delay_ms=100,
    )
    rows = [Flight(carrier="LH", number=number) for number in range(1000 if batched else 20)]
    for row in rows:
        producer.send_async(row, lambda *_: None, partition_key="k", properties={"p": "v"})
    producer.flush()
    read = AvroDeserializer(SchemaRegistryClient({"url": registry_url(broker)}))
    values = consumed(broker, topic, len(rows))
    assert [read(value, value_of(topic)) for value in values] == [
        {"carrier": "LH", "number": number} for number in range(len(rows))
    ]
    assert SchemaRegistryClient({"url": registry_url(broker)}).get_versions(f"{topic}-value") == [1]


def test_each_version_has_its_id_and_pulsar_sees_its_own_bytes(
    broker: BrokerProcess, pulsar_client: Any, http: httpx.Client
) -> None:
    topic = "flights-of-two-versions"
    first = pulsar_client.create_producer(topic, schema=AvroSchema(Flight))
    first.send(Flight(carrier="LH", number=1))
    second = pulsar_client.create_producer(topic, schema=AvroSchema(FlightWithDelay))
    second.send(FlightWithDelay(carrier="LH", number=2, delay=5))
    read = AvroDeserializer(SchemaRegistryClient({"url": registry_url(broker)}))
    values = consumed(broker, topic, 2)
    assert [read(value, value_of(topic)) for value in values] == [
        {"carrier": "LH", "number": 1},
        {"carrier": "LH", "number": 2, "delay": 5},
    ]
    ids = [struct.unpack_from(">bI", value)[1] for value in values]
    assert [http.get(f"/subjects/{topic}-value/versions/{each}").json()["id"] for each in (1, 2)] == ids
    reader = pulsar_client.create_reader(topic, pulsar.MessageId.earliest)
    assert [reader.read_next(10_000).data() for _ in values] == [value[5:] for value in values]


@pytest.mark.parametrize("codec", ["NONE", "ZSTD"])
def test_a_message_in_pieces_is_framed_once(broker: BrokerProcess, pulsar_client: Any, codec: str) -> None:
    topic = f"flights-in-pieces-{codec}"
    producer = pulsar_client.create_producer(
        topic,
        schema=AvroSchema(Flight),
        batching_enabled=False,
        chunking_enabled=True,
        compression_type=getattr(pulsar.CompressionType, codec),
    )
    # Of random letters, so that it takes several pieces however well it is compressed.
    long = base64.b64encode(random.Random(7).randbytes(6 << 20)).decode()
    rows = [Flight(carrier=text, number=number) for number, text in enumerate(("before", long, "after"))]
    ids = [producer.send(row) for row in rows]
    assert ids[1].entry_id() > ids[0].entry_id() + 1, "it was sent in pieces"
    read = AvroDeserializer(SchemaRegistryClient({"url": registry_url(broker)}))
    values = consumed(broker, topic, len(rows))
    assert [read(value, value_of(topic)) for value in values] == [
        {"carrier": row.carrier, "number": row.number} for row in rows
    ]


def test_json(broker: BrokerProcess, pulsar_client: Any) -> None:
    topic = "flights-json"
    producer = pulsar_client.create_producer(topic, schema=JsonSchema(Flight))
    producer.send(Flight(carrier="LH", number=1))
    producer.send(Flight(number=2))
    read = JSONDeserializer(None, schema_registry_client=SchemaRegistryClient({"url": registry_url(broker)}))
    assert [read(value, value_of(topic)) for value in consumed(broker, topic, 2)] == [
        {"carrier": "LH", "number": 1},
        {"carrier": None, "number": 2},
    ]


def test_other_values_stay_as_they_are(broker: BrokerProcess, pulsar_client: Any) -> None:
    plain = pulsar_client.create_producer("plain-of-pulsar")
    plain.send(b"\0\0\0\0\7as it is")
    text = pulsar_client.create_producer("text-of-pulsar", schema=pulsar.schema.StringSchema())
    text.send("as it is")
    assert consumed(broker, "plain-of-pulsar", 1) == [b"\0\0\0\0\7as it is"]
    assert consumed(broker, "text-of-pulsar", 1) == [b"as it is"]


def test_without_the_setting_values_stay_as_they_are(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", *ARGUMENTS) as process:
        client = pulsar.Client(process.pulsar_url)
        client.create_producer("flights", schema=AvroSchema(Flight)).send(Flight(carrier="LH", number=1))
        client.close()
        (value,) = consumed(process, "flights", 1)
        assert value == b"\x02\x04LH\x02\x02"
        assert httpx.get(f"{registry_url(process)}/subjects").json() == []


def test_key_value_schemas(broker: BrokerProcess, http: httpx.Client) -> None:
    """Python's client has no KeyValue schema, so the entry is made as Java's sends it."""
    from tests.schema_registry.key_value import send_key_value

    key = {"type": "record", "name": "K", "fields": [{"name": "id", "type": "long"}]}
    value = {"type": "record", "name": "V", "fields": [{"name": "town", "type": "string"}]}
    send_key_value(broker, "kv-separated", key, value, b"\x0e", b"\x06Ulm", "SEPARATED")
    send_key_value(broker, "kv-inline", key, value, b"\x0e", b"\x06Ulm", "INLINE")
    from confluent_kafka import Consumer

    found = {}
    for topic in ("kv-separated", "kv-inline"):
        consumer = Consumer(
            {"bootstrap.servers": broker.address, "group.id": topic, "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([topic])
        found[topic] = consumer.poll(30)
        consumer.close()
    message = found["kv-separated"]
    ids = [
        http.get(f"/subjects/kv-separated-{part}/versions/latest").json()["id"] for part in ("key", "value")
    ]
    assert message.key() == struct.pack(">bI", 0, ids[0]) + b"\x0e"
    assert message.value() == struct.pack(">bI", 0, ids[1]) + b"\x06Ulm"
    inline = found["kv-inline"]
    assert inline.value() == struct.pack(">i", 1) + b"\x0e" + struct.pack(">i", 4) + b"\x06Ulm"
    assert json.loads(http.get("/subjects/kv-separated-key/versions/1/schema").text) == key
