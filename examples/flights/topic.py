"""The topic, by way of an unmodified Kafka client (librdkafka's, for Python)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from flights import Record
from proof import MODULUS, Proof, digest

TOPIC = "flights"
PARTITIONS = 4
GROUP = "flights-demo"
Progress = Callable[[int], object]


def records_in_topic(address: str) -> int | None:
    """Return how many records the topic holds, or None if there is no such topic."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 4})
    if TOPIC not in admin.list_topics(timeout=10).topics:
        return None
    partitions = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
    ends = []
    for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):
        answers = admin.list_offsets(dict.fromkeys(partitions, spec))
        ends.append(sum(answer.result(10).offset for answer in answers.values()))
    return ends[1] - ends[0]


def create_topic(address: str) -> None:
    """Make the topic anew; what an interrupted run left of it goes."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 4})
    if TOPIC in admin.list_topics(timeout=10).topics:
        admin.delete_topics([TOPIC])[TOPIC].result(30)
    # The records are of 2013, and would be past any retention by time.
    new = NewTopic(TOPIC, PARTITIONS, 1, config={"retention.ms": "-1"})
    for _ in range(50):
        try:
            admin.create_topics([new])[TOPIC].result(30)
            return
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            time.sleep(0.1)  # it is still being deleted
    raise SystemExit(f"topic {TOPIC} can be neither deleted nor created")


def produce(address: str, records: Iterable[Record], progress: Progress) -> int:
    """Send all records, each acknowledged once it is safe on disk, none of them twice; give the digest of all."""
    safely = {"enable.idempotence": True, "acks": "all"}
    producer = Producer({"bootstrap.servers": address, "linger.ms": 20, "compression.type": "lz4", **safely})
    failed: list[KafkaError] = []
    delivered = sent = 0

    def told(error: KafkaError | None, _: Message) -> None:
        nonlocal delivered
        if error is not None:
            failed.append(error)
        delivered += 1

    for number, (key, value, headers, timestamp) in enumerate(records):
        while True:
            try:
                producer.produce(TOPIC, value, key, headers=headers, timestamp=timestamp, on_delivery=told)
                break
            except BufferError:  # the client holds as much as it may: let some be delivered
                producer.poll(0.1)
        sent = (sent + digest(key, value, headers)) % MODULUS
        if number % 1000 == 0:
            producer.poll(0)
            progress(delivered)
    producer.flush()
    progress(delivered)
    if failed:
        raise SystemExit(f"{len(failed)} records were not delivered: {failed[0]}")
    return sent


def consume(address: str, count: int, progress: Progress) -> Proof:
    """Read the whole topic as a member of a consumer group, and commit."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    proof = Proof()

    def from_the_beginning(member: Consumer, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            partition.offset = OFFSET_BEGINNING
        member.assign(partitions)

    consumer.subscribe([TOPIC], on_assign=from_the_beginning)
    quiet_since = time.monotonic()
    while proof.count < count and time.monotonic() - quiet_since < 30:
        for message in consumer.consume(5000, timeout=0.5):
            if message.error() is not None:
                raise SystemExit(f"reading failed: {message.error()}")
            proof.add(
                message.partition(), message.offset(), message.key(), message.value(), message.headers() or ()
            )
            quiet_since = time.monotonic()
        progress(proof.count)
    consumer.commit(asynchronous=False)
    consumer.close()
    return proof
