"""A consumer that joins its group before its topic exists reads what is written once it does.

``asking`` makes the topic by the consumer's own question; otherwise an administrator makes it after the group has met.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from uuid import uuid4

import confluent_kafka as ck
import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer

from tests.process import BrokerProcess

LOOKS_MS = 200
"""How often clients look whether their topics have changed."""
PATIENCE_S = 60
Met = Callable[[], None]
"""Called once the consumer polls; the topic is made and written to then."""


def confluent(address: str, topic: str, met: Met, *, asking: bool) -> bytes:
    config: dict[str, object] = {
        "bootstrap.servers": address,
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "allow.auto.create.topics": asking,
        "topic.metadata.refresh.interval.ms": LOOKS_MS,
    }
    consumer = ck.Consumer(config)
    consumer.subscribe([topic])
    ends_s = time.monotonic() + PATIENCE_S
    met()
    while time.monotonic() < ends_s:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            value = message.value()
            consumer.close()
            assert value is not None
            return value
    raise AssertionError("nothing came")


def kafka_python(address: str, topic: str, met: Met, *, asking: bool) -> bytes:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id=topic,
        auto_offset_reset="earliest",
        metadata_max_age_ms=LOOKS_MS,
        allow_auto_create_topics=asking,
    )
    met()
    # One poll: kafka-python 3.0.12 never takes its partitions if one ends amid the join that changed metadata ask for.
    for rows in consumer.poll(PATIENCE_S * 1000).values():
        value: bytes = rows[0].value
        consumer.close(autocommit=False)
        return value
    raise AssertionError("nothing came")


def aio(address: str, topic: str, met: Met, *, asking: bool) -> bytes:
    async def run() -> bytes:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=address,
            group_id=topic,
            auto_offset_reset="earliest",
            metadata_max_age_ms=LOOKS_MS,
        )
        await consumer.start()
        try:
            met()
            value: bytes = (await asyncio.wait_for(consumer.getone(), PATIENCE_S)).value
            return value
        finally:
            await consumer.stop()

    return asyncio.run(run())


def write(address: str, topic: str) -> None:
    producer = ck.Producer({"bootstrap.servers": address, "topic.metadata.refresh.interval.ms": LOOKS_MS})
    producer.produce(topic, b"it came")
    assert producer.flush(PATIENCE_S) == 0


@pytest.mark.parametrize("read", [confluent, kafka_python, aio])
def test_the_consumers_question_makes_the_topic(broker: BrokerProcess, read: Callable[..., bytes]) -> None:
    topic = f"asked-{uuid4().hex}"
    writer = threading.Thread(target=write, args=(broker.address, topic))
    assert read(broker.address, topic, writer.start, asking=True) == b"it came"
    writer.join()


def test_an_administrator_makes_the_topic_later(broker: BrokerProcess) -> None:
    topic = f"made-{uuid4().hex}"

    def make_and_write() -> None:
        time.sleep(1.0)  # what the group finds first is no topic, and it has met by then
        admin = AdminClient({"bootstrap.servers": broker.address})
        admin.create_topics([NewTopic(topic, 2)])[topic].result(PATIENCE_S)
        write(broker.address, topic)

    writer = threading.Thread(target=make_and_write)
    assert confluent(broker.address, topic, writer.start, asking=False) == b"it came"
    writer.join()
