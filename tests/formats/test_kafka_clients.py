"""Kafka's clients on topics of every entry format: what one wrote all read, whatever the format is or was."""

from __future__ import annotations

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from magnetar.topics.topic_config import ENTRY_FORMATS
from tests.end_to_end.clients import CONSUMERS, Seen, consume_confluent, produce_confluent
from tests.process import BrokerProcess

FORMATS = ENTRY_FORMATS
RECORDS = [
    Seen(b"key", b"value", (("h", b"1"), ("h", b"2"), ("binary", b"\x00\xff"))),
    Seen(None, b"no key"),
    Seen(b"no value", None),
    Seen(b"", b"", (("trace", "ä".encode()),)),
    Seen(b"\xff", b"binary key"),
    *[Seen(b"%d" % n, b"x" * n) for n in range(300)],
]


def create(broker: BrokerProcess, topic: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    wanted = NewTopic(topic, 1, config={name.replace("_", "."): value for name, value in config.items()})
    admin.create_topics([wanted])[topic].result(30)


def alter(broker: BrokerProcess, topic: str, entry_format: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    entry = ConfigEntry("entry.format", entry_format, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)


def described(broker: BrokerProcess, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": broker.address})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    return str(admin.describe_configs([resource])[resource].result(30)["entry.format"].value)


@pytest.mark.parametrize("entry_format", FORMATS)
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_format_and_codec_comes_back(broker: BrokerProcess, entry_format: str, codec: str) -> None:
    topic = f"format-{entry_format}-{codec}"
    create(broker, topic, entry_format=entry_format)
    settings = {"compression.type": codec, "linger.ms": 50, "enable.idempotence": True}
    produce_confluent(broker.address, topic, RECORDS, **settings)
    readers = CONSUMERS if codec == "none" else {"confluent-kafka": consume_confluent}
    for reader, consume in readers.items():
        assert consume(broker.address, topic, len(RECORDS)) == RECORDS, reader


def test_the_format_changes_while_records_flow(broker: BrokerProcess) -> None:
    create(broker, "changing")
    assert described(broker, "changing") == "kafka"
    for entry_format in (*FORMATS, "kafka", "pulsar"):
        alter(broker, "changing", entry_format)
        assert described(broker, "changing") == entry_format
        produce_confluent(broker.address, "changing", RECORDS)
    assert consume_confluent(broker.address, "changing", 5 * len(RECORDS)) == 5 * RECORDS


def test_offsets_times_and_seeks_are_those_of_format_kafka(broker: BrokerProcess) -> None:
    create(broker, "times", entry_format="pulsar")
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 20})
    for number in range(200):
        producer.produce("times", b"%d" % number, timestamp=1000 + number)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "times"})
    assert consumer.get_watermark_offsets(TopicPartition("times", 0), timeout=30) == (0, 200)
    for wanted in (0, 1000, 1117, 1199):
        (found,) = consumer.offsets_for_times([TopicPartition("times", 0, wanted)], timeout=30)
        assert found.offset == max(wanted - 1000, 0)
    consumer.assign([TopicPartition("times", 0, 117)])
    message = consumer.poll(30)
    assert (message.offset(), message.value(), message.timestamp()) == (117, b"117", (1, 1117))
    consumer.assign([TopicPartition("times", 0, OFFSET_BEGINNING)])
    assert consumer.poll(30).offset() == 0
    consumer.close()


@pytest.mark.slow
def test_the_broker_may_be_told_the_format_as_kop_calls_it(start_broker, tmp_path) -> None:  # type: ignore[no-untyped-def]
    broker = start_broker(tmp_path / "data", "--set", "entryFormat=pulsar")
    produce_confluent(broker.address, "topic", RECORDS)
    assert described(broker, "topic") == "pulsar"
    assert consume_confluent(broker.address, "topic", len(RECORDS)) == RECORDS
    assert described(broker, "__consumer_offsets") == "kafka"
    broker.kill()
    again = start_broker(tmp_path / "data")  # without: what is stored stays readable, the producers known
    assert described(again, "topic") == "kafka"
    produce_confluent(again.address, "topic", RECORDS)
    assert consume_confluent(again.address, "topic", 2 * len(RECORDS), group="second") == 2 * RECORDS
