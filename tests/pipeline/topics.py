"""Topics as a stock client makes and reads them."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.process import BrokerProcess


def create(broker: BrokerProcess, topic: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    for made in admin.create_topics([NewTopic(topic, partitions, 1, config=config)]).values():
        made.result(20)


def consumed(broker: BrokerProcess, topic: str) -> list[Any]:
    """Return all messages of a topic, partition by partition."""
    consumer = Consumer(
        {"bootstrap.servers": broker.address, "group.id": "look", "enable.auto.commit": False}
    )
    found = []
    try:
        for partition in consumer.list_topics(topic, 20).topics[topic].partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), 20)
            consumer.assign([TopicPartition(topic, partition, low)])
            while low < high:
                for message in consumer.consume(min(high - low, 10_000), 5):
                    assert message.error() is None
                    found.append(message)
                    low = message.offset() + 1
    finally:
        consumer.close()
    return found
