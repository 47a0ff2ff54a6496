"""kafka-python of any version."""

from __future__ import annotations

import sys

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from program import Started, key, number_of, serve, value

started = Started(sys.argv[1:])
PATIENT = {"bootstrap_servers": started.bootstrap, "metadata_max_age_ms": 1000}
POLL_MS = 10_000
"""Long: an assignment that comes when a call of poll has just run out of time is lost to 3.0.12 (on Kafka, too)."""
transactional: dict[str, KafkaProducer] = {}


def send(producer: KafkaProducer, topic: str, first: int, end: int) -> None:
    sent = []
    for i in range(first, end):
        more = {"headers": started.headers_of(i)} if started.headers else {}
        sent.append(
            producer.send(topic, value(i), key=key(i), partition=0, timestamp_ms=started.time_of(i), **more)
        )
    producer.flush()
    for each in sent:
        each.get(30)


def create(topic: str) -> None:
    from kafka.admin import KafkaAdminClient, NewTopic  # since 1.4.4

    admin = KafkaAdminClient(bootstrap_servers=started.bootstrap)
    admin.create_topics([NewTopic(topic, 1, 1)])
    admin.close()


def produce(topic: str, codec: str, first: str, end: str, how: str) -> None:
    more = {"enable_idempotence": how == "idempotent"}
    if how == "plain" and "enable_idempotence" not in KafkaProducer.DEFAULT_CONFIG:
        more = {}
    producer = KafkaProducer(
        **PATIENT,
        compression_type=None if codec == "none" else codec,
        acks="all",
        linger_ms=20,
        **more,
    )
    send(producer, topic, int(first), int(end))
    producer.close()


def transaction(topic: str, name: str, first: str, end: str, how: str) -> None:
    if name not in transactional:
        transactional[name] = KafkaProducer(**PATIENT, transactional_id=name, linger_ms=20)
        transactional[name].init_transactions()
    producer = transactional[name]
    producer.begin_transaction()
    send(producer, topic, int(first), int(end))
    producer.commit_transaction() if how == "commit" else producer.abort_transaction()


def read(topic: str, group: str, count: str, isolation: str) -> dict[str, list[int]]:
    more = {"isolation_level": isolation} if isolation == "read_committed" else {}
    consumer = KafkaConsumer(
        **PATIENT, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False, **more
    )
    consumer.subscribe([topic])
    numbers: list[int] = []
    while len(numbers) < int(count):
        for records in consumer.poll(POLL_MS, max_records=int(count) - len(numbers)).values():
            numbers += [number_of(each.value) for each in records]
    consumer.commit()
    consumer.close()
    return {"numbers": numbers}


def committed(topic: str, group: str) -> dict[str, int]:
    consumer = KafkaConsumer(**PATIENT, group_id=group)
    offset = consumer.committed(TopicPartition(topic, 0))
    consumer.close()
    return {"offset": offset}


def time(topic: str, at: str) -> dict[str, int]:
    consumer = KafkaConsumer(**PATIENT)
    partition = TopicPartition(topic, 0)
    offset = consumer.offsets_for_times({partition: int(at)})[partition].offset
    consumer.close()
    return {"offset": offset}


serve({each.__name__: each for each in (create, produce, transaction, read, committed, time)})
