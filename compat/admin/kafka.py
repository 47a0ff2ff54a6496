"""The Kafka side of a group that Pulsar's tools administer."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer, TopicPartition


def produced(bootstrap: str, topic: str, count: int) -> None:
    """Produce so many records, each a batch of its own."""
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 1})
    for number in range(count):
        producer.produce(topic, b"record %d" % number, partition=0)
        producer.flush(30)


def committed(bootstrap: str, group: str, topic: str) -> int:
    """What the group has committed, below 0 for nothing."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        return int(consumer.committed([TopicPartition(topic, 0)], 30)[0].offset)
    finally:
        consumer.close()
