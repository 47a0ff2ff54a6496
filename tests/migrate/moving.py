"""What a migration from Kafka is tried on: topics of all kinds in a cluster, and how a client sees them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    Consumer,
    ConsumerGroupTopicPartitions,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

SECONDS = 120
RECORDS = 20_000
PARTITIONS = 3


class Row(NamedTuple):
    """One record as a client gave it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int


def create(address: str, *topics: NewTopic) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    for made in admin.create_topics(list(topics)).values():
        made.result(SECONDS)


def produce(address: str, topic: str, numbers: Iterable[int], **settings: Any) -> None:
    """Write records whose key, value, header and time tell their number; return when all are acknowledged."""
    failures: list[Any] = []
    producer = Producer({"bootstrap.servers": address, "linger.ms": 5} | settings)
    for number in numbers:
        while True:
            try:
                producer.produce(
                    topic,
                    key=b"%d" % (number % 500),
                    value=b"%d" % number,
                    headers=[("number", b"%d" % number)],
                    partition=number % PARTITIONS,
                    timestamp=1_700_000_000_000 + number,
                    on_delivery=lambda error, _: failures.append(error) if error else None,
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(SECONDS) == 0
    assert not failures, failures[0]


def transactions(address: str, topic: str, count: int, *, size: int = 100) -> None:
    """Write transactions one after the other; each third one is aborted."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": f"writes {topic}"})
    producer.init_transactions(SECONDS)
    for index in range(count):
        producer.begin_transaction()
        for number in range(index * size, (index + 1) * size):
            producer.produce(topic, value=b"%d" % number, partition=number % PARTITIONS)
        if index % 3 == 2:
            assert producer.flush(SECONDS) == 0
            producer.abort_transaction(SECONDS)
        else:
            producer.commit_transaction(SECONDS)


def rows(address: str, topic: str, *, committed: bool = True) -> list[Row]:
    """Return all records of a topic up to where it ends now."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reads all",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    partitions = list(consumer.list_topics(topic, SECONDS).topics[topic].partitions)
    consumer.assign(
        [
            TopicPartition(topic, index, consumer.get_watermark_offsets(TopicPartition(topic, index))[0])
            for index in partitions
        ]
    )
    found, ended, deadline = [], set(), time.monotonic() + SECONDS
    while len(ended) < len(partitions):
        assert time.monotonic() < deadline, f"{len(found)} records of {topic} only"
        for message in consumer.consume(1000, 0.2):
            if message.error():
                ended.add(message.partition())
                continue
            kind, timestamp = message.timestamp()
            assert kind == TIMESTAMP_CREATE_TIME
            headers = tuple(message.headers() or ())
            found.append(
                Row(message.partition(), message.offset(), message.key(), message.value(), headers, timestamp)
            )
    consumer.close()
    return sorted(found)


def watermarks(address: str, topic: str) -> list[tuple[int, int]]:
    """Return where each partition begins and ends."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "asks"})
    partitions = sorted(consumer.list_topics(topic, SECONDS).topics[topic].partitions)
    found = [consumer.get_watermark_offsets(TopicPartition(topic, index), SECONDS) for index in partitions]
    consumer.close()
    return found


def commit(address: str, group: str, topic: str, offsets: dict[int, int]) -> None:
    """Commit for a group without members, with something noted beside each offset."""
    wanted = [TopicPartition(topic, index, offset, f"at {offset}") for index, offset in offsets.items()]
    admin = AdminClient({"bootstrap.servers": address})
    request = ConsumerGroupTopicPartitions(group, wanted)
    for done in admin.alter_consumer_group_offsets([request]).values():
        done.result(SECONDS)


def committed(address: str, group: str) -> dict[tuple[str, int], tuple[int, str | None]]:
    """Return what a group committed, and what it noted."""
    admin = AdminClient({"bootstrap.servers": address})
    (done,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {(p.topic, p.partition): (p.offset, p.metadata) for p in done.result(SECONDS).topic_partitions}
