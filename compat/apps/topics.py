"""What the checks do themselves on both sides of an application: topics, records, waiting."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from functools import partial

import waiting
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from waiting import same

WAIT_SECONDS = 240


until = partial(waiting.until, seconds=WAIT_SECONDS, forgiving=True)
"""Wait, whatever goes wrong meanwhile: brokers are killed."""


def make(address: str, name: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
    new = NewTopic(name, partitions, 1, config=dict(config or {}))
    admin = AdminClient(
        {"bootstrap.servers": address}
    )  # it ends with its last reference, and its answers with it
    admin.create_topics([new])[name].result(30)


def config_of(address: str, name: str) -> dict[str, str]:
    """A topic's configuration, each value as text."""
    resource = ConfigResource(ResourceType.TOPIC, name)
    admin = AdminClient({"bootstrap.servers": address})
    found = admin.describe_configs([resource])[resource].result(30)
    return {entry.name: entry.value for entry in found.values()}


def names(address: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": address}).list_topics(timeout=30).topics)


def partitions(address: str, topic: str) -> list[int]:
    return sorted(
        AdminClient({"bootstrap.servers": address}).list_topics(timeout=30).topics[topic].partitions
    )


def bounds(address: str, topic: str) -> dict[int, tuple[int, int]]:
    """First and end offset by partition."""
    consumer = Consumer(_settings(address))
    try:
        return {
            index: consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=30)
            for index in partitions(address, topic)
        }
    finally:
        consumer.close()


def produce(
    address: str, topic: str, records: Iterable[tuple[str | None, str, list[tuple[str, bytes]]]]
) -> None:
    """Write (key, value, headers), and have each acknowledged."""
    refused: list[object] = []
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    for key, value, headers in records:
        producer.produce(
            topic,
            value,
            key,
            headers=headers,
            on_delivery=lambda error, _: refused.append(error) if error else None,
        )
        producer.poll(0)
    left = producer.flush(WAIT_SECONDS)
    same((left, refused), (0, []), f"records of {topic} that were not acknowledged")


def read(address: str, topic: str) -> list[Message]:
    """All records of a topic as it is now."""
    ends = {index: end for index, (first, end) in bounds(address, topic).items() if end > first}
    consumer = Consumer({**_settings(address), "enable.partition.eof": True})
    found: list[Message] = []
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in ends])
    open_partitions = set(ends)
    end = time.monotonic() + WAIT_SECONDS
    while open_partitions and time.monotonic() < end:
        for message in consumer.consume(1000, 0.5):
            if message.error():
                open_partitions.discard(message.partition())
            else:
                found.append(message)
    consumer.close()
    same(open_partitions, set(), f"partitions of {topic} that were not read to their end")
    return found


def committed(address: str, group: str, topic: str) -> dict[int, int]:
    """A group's offsets by partition; -1001 where it has none."""
    consumer = Consumer({**_settings(address), "group.id": group})
    try:
        asked = [TopicPartition(topic, index) for index in partitions(address, topic)]
        return {each.partition: each.offset for each in consumer.committed(asked, timeout=30)}
    finally:
        consumer.close()


def lag(address: str, group: str, topic: str) -> int:
    """How many records the group has not committed."""
    where = committed(address, group, topic)
    return sum(end - max(where[index], first) for index, (first, end) in bounds(address, topic).items())


def _settings(address: str) -> dict[str, object]:
    return {"bootstrap.servers": address, "group.id": "compat-apps", "enable.auto.commit": False}
