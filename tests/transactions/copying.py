"""Consume, transform, produce: records of a topic are copied to another exactly once, transactions with the offsets.

Partitions and orders stay, so that whoever reads what is committed sees the source's records as they were.
"""

from __future__ import annotations

import threading
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.transactions.clients import COMMITTED, SECONDS

BATCH = 50


class Copier(threading.Thread):
    """One of those who copy, a member of their group. Every fifth transaction it aborts, and does again."""

    def __init__(self, address: str, source: str, target: str, number: int) -> None:
        super().__init__(daemon=True)
        self.halt = threading.Event()
        self.committed = self.aborted = 0
        self.errors: list[str] = []
        self._address, self._source, self._target, self._number = address, source, target, number
        self._common = {
            "bootstrap.servers": address,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "topic.metadata.refresh.interval.ms": 1000,
            "error_cb": lambda error: None,
            # Otherwise librdkafka 2.16 waits for good for a group's coordinator that went from the list of brokers.
            "metadata.recovery.strategy": "none",
            "log_level": 0,
        }

    def run(self) -> None:
        consumer = Consumer(
            self._common
            | {
                "group.id": f"copy-{self._source}",
                "isolation.level": COMMITTED,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([self._source])
        made = self._producer()
        while not self.halt.is_set():
            messages = [each for each in consumer.consume(BATCH, 0.2) if each.error() is None]
            if not messages:
                continue
            try:
                made.begin_transaction()
                for each in messages:
                    made.produce(self._target, each.value(), partition=each.partition())
                made.send_offsets_to_transaction(
                    consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), SECONDS
                )
                if (self.committed + self.aborted) % 5 == 4:
                    made.abort_transaction(SECONDS)
                    self.aborted += 1
                    self._rewind(consumer)
                else:
                    made.commit_transaction(SECONDS)
                    self.committed += 1
            except KafkaException as error:
                self.errors.append(str(error.args[0]))
                made = self._again(made, error)
                self._rewind(consumer)
        consumer.close()

    def _again(self, made: Producer, error: KafkaException) -> Producer:
        if error.args[0].txn_requires_abort():
            try:
                made.abort_transaction(SECONDS)
                return made
            except KafkaException as failed:
                self.errors.append(str(failed.args[0]))
        return self._producer()

    @staticmethod
    def _rewind(consumer: Consumer) -> None:
        """Go back to what is committed; what there is none of begins at the beginning."""
        while True:
            try:
                places = consumer.committed(consumer.assignment(), SECONDS)
                break
            except KafkaException as error:  # NOT_COORDINATOR is told, though it is tried again
                if not error.args[0].retriable() and error.args[0].code() != KafkaError.NOT_COORDINATOR:
                    raise
        for each in places:
            consumer.seek(TopicPartition(each.topic, each.partition, max(each.offset, 0)))

    def _producer(self) -> Producer:
        made = Producer(self._common | {"transactional.id": f"copier-{self._number}", "linger.ms": 1})
        while True:
            try:
                made.init_transactions(SECONDS)
                return made
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise


def read_until(address: str, topic: str, partitions: int, wanted: int) -> list[list[bytes]]:
    """Return what is committed in each partition as soon as there is so much of it."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "reads-copy", "isolation.level": COMMITTED, "log_level": 0}
    )
    consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
    found: list[list[bytes]] = [[] for _ in range(partitions)]
    deadline = time.monotonic() + 3 * SECONDS
    while sum(map(len, found)) < wanted:
        assert time.monotonic() < deadline, (
            f"{sum(map(len, found))} of {wanted}: {[len(each) for each in found]}"
        )
        for message in consumer.consume(1000, 0.5):
            if message.error() is None:
                found[message.partition()].append(message.value())
    consumer.close()
    return found
