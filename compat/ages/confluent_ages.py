"""confluent-kafka of any version: librdkafka of the same."""

from __future__ import annotations

import sys
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from program import Started, key, number_of, serve, value

started = Started(sys.argv[1:])
PATIENT = {"bootstrap.servers": started.bootstrap, "topic.metadata.refresh.interval.ms": 1000}
transactional: dict[str, Producer] = {}


def send(producer: Producer, topic: str, first: int, end: int) -> None:
    refused: list[Any] = []
    for i in range(first, end):
        producer.produce(
            topic,
            value(i),
            key(i),
            partition=0,
            timestamp=started.time_of(i),
            headers=started.headers_of(i),
            on_delivery=lambda error, _: refused.append(error) if error else None,
        )
        producer.poll(0)
    left = producer.flush(60)
    if left or refused:
        raise RuntimeError(f"{left} not acknowledged, {refused[:1]}")


def create(topic: str) -> None:
    admin = AdminClient(PATIENT)  # which ends with its last reference, and its answers with it
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)


def produce(topic: str, codec: str, first: str, end: str, how: str) -> None:
    wanted = {"compression.codec": codec, "linger.ms": 20, "enable.idempotence": how == "idempotent"}
    send(Producer({**PATIENT, **wanted}), topic, int(first), int(end))


def transaction(topic: str, name: str, first: str, end: str, how: str) -> None:
    if name not in transactional:
        transactional[name] = Producer({**PATIENT, "transactional.id": name, "linger.ms": 20})
        transactional[name].init_transactions(30)
    producer = transactional[name]
    producer.begin_transaction()
    send(producer, topic, int(first), int(end))
    producer.commit_transaction(30) if how == "commit" else producer.abort_transaction(30)


def consumer(group: str, **more: Any) -> Consumer:
    wanted = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "allow.auto.create.topics": True}
    return Consumer({**PATIENT, "group.id": group, **wanted, **more})


def read(topic: str, group: str, count: str, isolation: str) -> dict[str, list[int]]:
    member = consumer(group, **{"isolation.level": isolation})
    member.subscribe([topic])
    numbers: list[int] = []
    while len(numbers) < int(count):
        for message in member.consume(int(count) - len(numbers), 0.2):
            if not message.error():  # a topic that is not there yet is told as an error
                numbers.append(number_of(message.value()))
    member.commit(asynchronous=False)
    member.close()
    return {"numbers": numbers}


def committed(topic: str, group: str) -> dict[str, int]:
    member = consumer(group)
    [found] = member.committed([TopicPartition(topic, 0)], timeout=30)
    member.close()
    return {"offset": found.offset}


def time(topic: str, at: str) -> dict[str, int]:
    reader = consumer("unused")
    [found] = reader.offsets_for_times([TopicPartition(topic, 0, int(at))], timeout=30)
    reader.close()
    return {"offset": found.offset}


serve({each.__name__: each for each in (create, produce, transaction, read, committed, time)})
