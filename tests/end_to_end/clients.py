"""Three stock clients, each reduced to what these tests ask of it: write records, read them back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from kafka import KafkaConsumer, KafkaProducer

SECONDS = 30


class Seen(NamedTuple):
    """One record as a client gave it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


def produce_confluent(address: str, topic: str, records: Sequence[Seen], **settings: Any) -> None:
    failures: list[Any] = []
    producer = Producer({"bootstrap.servers": address} | settings)
    for record in records:
        producer.produce(
            topic,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(SECONDS) == 0
    if failures:
        raise KafkaException(failures[0])


def consume_confluent(address: str, topic: str, count: int, group: str = "confluent") -> list[Seen]:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    seen: list[Seen] = []
    deadline = time.monotonic() + SECONDS
    while len(seen) < count and time.monotonic() < deadline:
        for message in consumer.consume(count - len(seen), timeout=1):
            assert message.error() is None, message.error()
            seen.append(Seen(message.key(), message.value(), tuple(message.headers() or ())))
    if seen:
        consumer.commit(asynchronous=False)
    consumer.close()
    return seen


def produce_kafka_python(address: str, topic: str, records: Sequence[Seen]) -> None:
    producer = KafkaProducer(bootstrap_servers=address, acks="all")
    sent = [producer.send(topic, key=r.key, value=r.value, headers=list(r.headers)) for r in records]
    for each in sent:
        each.get(SECONDS)
    producer.close()


def consume_kafka_python(address: str, topic: str, count: int, group: str = "kafka-python") -> list[Seen]:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    seen: list[Seen] = []
    deadline = time.monotonic() + SECONDS
    while len(seen) < count and time.monotonic() < deadline:
        # To the end: kafka-python 3.0.12 never takes its partitions if a poll ends amid a join for changed metadata.
        for messages in consumer.poll(timeout_ms=max(0, int((deadline - time.monotonic()) * 1000))).values():
            seen += [Seen(m.key, m.value, tuple(m.headers)) for m in messages]
    consumer.commit()
    consumer.close()
    return seen


def produce_aiokafka(address: str, topic: str, records: Sequence[Seen]) -> None:
    async def produce() -> None:
        async with AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=True) as producer:
            waiting = [await producer.send(topic, r.value, r.key, headers=list(r.headers)) for r in records]
            await asyncio.wait_for(asyncio.gather(*waiting), SECONDS)

    asyncio.run(produce())


def consume_aiokafka(address: str, topic: str, count: int, group: str = "aiokafka") -> list[Seen]:
    async def consume() -> list[Seen]:
        seen: list[Seen] = []
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        async with consumer:
            deadline = time.monotonic() + SECONDS
            while len(seen) < count and time.monotonic() < deadline:
                for messages in (await consumer.getmany(timeout_ms=1000)).values():
                    seen += [Seen(m.key, m.value, tuple(m.headers)) for m in messages]
            await consumer.commit()
        return seen

    return asyncio.run(consume())


PRODUCERS: dict[str, Callable[[str, str, Sequence[Seen]], None]] = {
    "confluent-kafka": produce_confluent,
    "kafka-python": produce_kafka_python,
    "aiokafka": produce_aiokafka,
}
CONSUMERS: dict[str, Callable[[str, str, int], list[Seen]]] = {
    "confluent-kafka": consume_confluent,
    "kafka-python": consume_kafka_python,
    "aiokafka": consume_aiokafka,
}
