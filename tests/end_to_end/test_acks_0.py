"""Producers that want no answers: everything they send is stored, however much it is and however small each piece."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.wire.kafka.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.hostile.client import Wire, frame, request_bytes
from tests.process import BrokerProcess

RECORDS, PARTITIONS = 20_000, 12
SECONDS = 120
VALUE = bytes(100)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("acks-0") / "data") as process:
        yield process


def made(broker: BrokerProcess, name: str) -> str:
    """Make a topic that nobody has used yet."""
    admin = AdminClient({"bootstrap.servers": broker.address})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
        future.result()
    return name


def stored(broker: BrokerProcess, topic: str, wanted: int) -> int:
    """Return how many records there are, once all are there: nobody says when they have arrived."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "counts"})
    until = time.monotonic() + SECONDS
    count = 0
    while count < wanted and time.monotonic() < until:
        marks = [
            consumer.get_watermark_offsets(TopicPartition(topic, each), SECONDS) for each in range(PARTITIONS)
        ]
        count = sum(high for _, high in marks)
    consumer.close()
    return count


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 10_000], ids=["single-records", "batches"])
def test_all_that_librdkafka_sends_is_stored(broker: BrokerProcess, batch: int) -> None:
    topic = made(broker, f"librdkafka-{batch}")
    producer = Producer(
        {
            "bootstrap.servers": broker.address,
            "acks": 0,
            "linger.ms": 0,
            "batch.num.messages": batch,
            "message.timeout.ms": SECONDS * 1000,
        }
    )
    for number in range(RECORDS):
        producer.produce(topic, VALUE, partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(SECONDS) == 0
    assert stored(broker, topic, RECORDS) == RECORDS


def request(topic: str, partition: int, acks: int, correlation_id: int) -> bytes:
    batch = encode_batch([PlainRecord(None, VALUE, [], 0, 0)])
    rows = [PartitionProduceData(index=partition, records=batch)]
    message = ProduceRequest(
        acks=acks, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=rows)]
    )
    return frame(request_bytes(message, 7, correlation_id))


def test_a_connection_that_wanted_no_answers_gets_the_ones_it_wants(broker: BrokerProcess) -> None:
    """As kafka-go's Writer: a connection for each partition, and one record a request."""
    topic = made(broker, "raw")
    each = 40
    wires = [Wire(broker.host_and_port) for _ in range(PARTITIONS)]
    for partition, wire in enumerate(wires):
        wire.send(b"".join(request(topic, partition, 0, number) for number in range(each)))
    for partition, wire in enumerate(wires):
        wire.send(request(topic, partition, 1, 4711))
        (correlation_id,) = struct.unpack_from(">i", wire.frame())
        assert correlation_id == 4711
        wire.close()
    assert stored(broker, topic, (each + 1) * PARTITIONS) == (each + 1) * PARTITIONS


def test_what_was_sent_before_the_client_went_is_stored(broker: BrokerProcess) -> None:
    topic = made(broker, "gone")
    each = 300
    for partition in range(PARTITIONS):
        with Wire(broker.host_and_port) as wire:
            wire.send(b"".join(request(topic, partition, 0, number) for number in range(each)))
    assert stored(broker, topic, each * PARTITIONS) == each * PARTITIONS


def test_what_cannot_be_stored_ends_the_connection(broker: BrokerProcess) -> None:
    """As in Kafka: there is no other way to tell, and behind it nothing is stored any more."""
    topic = made(broker, "refused")
    with Wire(broker.host_and_port) as wire:
        wire.send(request(topic, 0, 0, 1) + request("no-such-topic", 77, 0, 2) + request(topic, 0, 0, 3))
        assert wire.is_closed()
    with Wire(broker.host_and_port) as wire:
        asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(timestamp=-1)])
        answer = wire.ask(ListOffsetsRequest(replica_id=-1, topics=[asked]), 5)
        assert answer.topics[0].partitions[0].offset == 1
