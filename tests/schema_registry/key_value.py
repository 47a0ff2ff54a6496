"""A producer with Pulsar's KeyValue schema, byte for byte as Java's client is one."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand, Schema
from tests.process import BrokerProcess
from tests.pulsar import raw


def send_key_value(
    broker: BrokerProcess, topic: str, key: Any, value: Any, key_data: bytes, value_data: bytes, encoding: str
) -> None:
    """Write one message whose key and value are Avro."""
    definitions = [json.dumps(each).encode() for each in (key, value)]
    ask = raw.producer(f"persistent://public/default/{topic}")
    schema = ask.producer.schema
    schema.name, schema.type = "KeyValue", Schema.KeyValue
    schema.schema_data = b"".join(struct.pack(">i", len(each)) + each for each in definitions)
    said = {"key.schema.type": "AVRO", "value.schema.type": "AVRO", "kv.encoding.type": encoding}
    for name, text in said.items():
        schema.properties.add(key=name, value=text)
    with raw.Raw(broker) as client:
        made = client.ask(ask)
        assert made.type == BaseCommand.PRODUCER_SUCCESS, made
        version = made.producer_success.schema_version
        if encoding == "SEPARATED":
            encoded = base64.b64encode(key_data).decode()
            entry = raw.entry(
                value_data, schema_version=version, partition_key=encoded, partition_key_b64_encoded=True
            )
        else:
            both = [struct.pack(">i", len(each)) + each for each in (key_data, value_data)]
            entry = raw.entry(b"".join(both), schema_version=version)
        assert client.ask(raw.send(), entry).type == BaseCommand.SEND_RECEIPT
