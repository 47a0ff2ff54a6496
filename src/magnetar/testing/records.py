"""Records as tests write and compare them, by the stock client."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

Text = str | bytes | None
_POLL_S = 0.1


@dataclass(frozen=True)
class Record:
    """One record. What a producer has not set yet is None, and -1 for the offset."""

    value: Text
    key: Text = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    offset: int = -1
    timestamp: int | None = None
    """In ms since 1970."""


def produce(bootstrap: str, topic: str, records: Iterable[Record | Text], timeout_s: float) -> None:
    """Write records and return once all are acknowledged; raise ``KafkaException`` or ``TimeoutError``."""
    failures: list[Any] = []

    def delivered(error: Any, _: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {"bootstrap.servers": bootstrap, "message.timeout.ms": int(timeout_s * 1000), "linger.ms": 0}
    )
    for each in records:
        record = each if isinstance(each, Record) else Record(each)
        chosen: dict[str, Any] = {} if record.partition is None else {"partition": record.partition}
        if record.timestamp is not None:
            chosen["timestamp"] = record.timestamp
        while True:
            try:
                producer.produce(
                    topic,
                    record.value,
                    record.key,
                    headers=list(record.headers),
                    on_delivery=delivered,
                    **chosen,
                )
                break
            except BufferError:  # the client's queue is full
                producer.poll(_POLL_S)
    if producer.flush(timeout_s):
        raise TimeoutError(f"{topic}: not all records were acknowledged within {timeout_s:g} s")
    if failures:
        raise KafkaException(failures[0])


def read(bootstrap: str, topic: str, timeout_s: float, *, isolation: str) -> list[Record]:
    """Return all records of a topic, by partition and offset; raise ``KafkaException`` or ``TimeoutError``."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "magnetar-testing",  # never joined: partitions are assigned by hand
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # a broker waits so long at the end of a partition, where reading is over
        }
    )
    try:
        metadata = consumer.list_topics(topic, timeout_s).topics[topic]
        if metadata.error is not None:
            raise KafkaException(metadata.error)
        consumer.assign([TopicPartition(topic, each, 0) for each in metadata.partitions])
        return sorted(_until_the_end(consumer, topic, len(metadata.partitions), timeout_s), key=_place)
    finally:
        consumer.close()


def _until_the_end(consumer: Consumer, topic: str, partitions: int, timeout_s: float) -> list[Record]:
    records: list[Record] = []
    ended: set[int] = set()
    until = time.monotonic() + timeout_s
    while len(ended) < partitions:
        message = consumer.poll(_POLL_S)
        if message is None:
            if time.monotonic() > until:
                raise TimeoutError(f"{topic}: not read to its end within {timeout_s:g} s")
        elif (error := message.error()) is None:
            records.append(_record(message))
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(_number(message.partition()))
        else:
            raise KafkaException(error)
    return records


def _record(message: Message) -> Record:
    kind, timestamp = message.timestamp()
    return Record(
        message.value(),
        message.key(),
        tuple(cast("list[tuple[str, bytes | None]]", message.headers() or [])),
        message.partition(),
        _number(message.offset()),
        timestamp if kind else None,
    )


def _number(value: int | None) -> int:
    """Return what the client's types leave open and every message that was read has."""
    return -1 if value is None else value


def _place(record: Record) -> tuple[int, int]:
    return record.partition or 0, record.offset
