"""Stock clients, reduced to what these tests ask of them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

SECONDS = 60
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"


def make_topic(address: str, name: str, partitions: int = 1, **config: str) -> str:
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.create_topics([NewTopic(name, partitions, 1, config=config)]).values():
        future.result(SECONDS)
    return name


def producer(address: str, transactional_id: str, **settings: Any) -> Producer:
    """Return a producer that has its epoch."""
    made = Producer(
        {"bootstrap.servers": address, "transactional.id": transactional_id, "linger.ms": 1} | settings
    )
    made.init_transactions(SECONDS)
    return made


def in_transaction(
    made: Producer, topic: str, values: Iterable[bytes], *, commit: bool = True, partition: int = 0
) -> None:
    """Write values in one transaction."""
    made.begin_transaction()
    for value in values:
        made.produce(topic, value, partition=partition)
        made.poll(0)
    if commit:
        made.commit_transaction(SECONDS)
    else:
        made.flush(SECONDS)
        made.abort_transaction(SECONDS)


def ends(address: str, topic: str, isolation: str, partition: int = 0) -> tuple[int, int]:
    """Return what ListOffsets says of both ends of a partition, once its owner serves it.

    librdkafka asks the leader once here, so a partition that is just moving is asked for again.
    """
    until = time.monotonic() + SECONDS
    while True:
        consumer = Consumer({"bootstrap.servers": address, "group.id": "ends", "isolation.level": isolation})
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), SECONDS)
        except KafkaException as error:
            moving = error.args[0].code() == KafkaError.NOT_LEADER_FOR_PARTITION
            if not moving or time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            return low, high
        finally:
            consumer.close()


def values(address: str, topic: str, isolation: str, partitions: int = 1) -> list[bytes]:
    """Return all values that a consumer of an isolation level is given, up to where its partitions end."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reads",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
    found: list[bytes] = []
    ended: set[int] = set()
    deadline = time.monotonic() + SECONDS
    while len(ended) < partitions:
        assert time.monotonic() < deadline, f"{len(found)} values, and {ended} ended"
        for message in consumer.consume(1000, timeout=1):
            if message.error() is None:
                found.append(message.value())
            else:
                ended.add(message.partition())
    consumer.close()
    return found
