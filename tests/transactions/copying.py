"""Consume, transform, produce: records of a topic are copied to another exactly once, transactions with the offsets.

Partitions and orders stay, so that whoever reads what is committed sees the source's records as they were.
"""

from __future__ import annotations

import threading
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.transactions.clients import COMMITTED, SECONDS

BATCH = 50
HUNG_S = 15.0
REWIND_S = 10.0
"""As long as one question for committed offsets waits before it is asked anew."""
# NOT_COORDINATOR is told, though it is tried again; what is taken away between asking and seeking is not sought in; and
# librdkafka does not count its own time-out among what may be asked again.
AGAIN = {KafkaError.NOT_COORDINATOR, KafkaError._STATE, KafkaError._UNKNOWN_PARTITION, KafkaError._TIMED_OUT}


class Copier(threading.Thread):
    """One of those who copy, a member of their group. Of five transactions it aborts one, and does it again."""

    def __init__(self, address: str, source: str, target: str, number: int) -> None:
        super().__init__(daemon=True)
        self.halt = threading.Event()
        self.committed = self.aborted = 0
        self.errors: list[str] = []
        self.died: BaseException | None = None
        self._sending_since: float | None = None
        self._address, self._source, self._target, self._number = address, source, target, number
        self._common: dict[str, object] = {
            "bootstrap.servers": address,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "topic.metadata.refresh.interval.ms": 1000,
            "error_cb": lambda error: None,
            # Otherwise librdkafka 2.16 waits for good for a group's coordinator that went from the list of brokers.
            "metadata.recovery.strategy": "none",
            "session.timeout.ms": 6000,
            "max.poll.interval.ms": 10_000,  # whoever hangs leaves the group
            "log_level": 0,
        }

    def run(self) -> None:
        try:
            self._copy()
        except BaseException as error:
            # Its member stays in the group as long as the object lives: its partitions would be nobody's, silently.
            self.died = error
            raise

    def _copy(self) -> None:
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
                self._sending_since = time.monotonic()
                made.send_offsets_to_transaction(
                    consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), SECONDS
                )
                self._sending_since = None
                if (self.committed + self.aborted) % 5 == 2:
                    made.abort_transaction(SECONDS)
                    self.aborted += 1
                    self._rewind(consumer)
                else:
                    made.commit_transaction(SECONDS)
                    self.committed += 1
            except KafkaException as error:
                self._sending_since = None
                self.errors.append(str(error.args[0]))
                made = self._again(made, error)
                self._rewind(consumer)
        consumer.close()

    def hangs(self) -> bool:
        """Tell whether its client waits for good: it does not mind its time-out, nor ask anew for a coordinator.

        librdkafka's issues 5456 and 5511: when the group's coordinator left the list of brokers meanwhile.
        """
        since = self._sending_since
        return since is not None and time.monotonic() - since > HUNG_S

    def successor(self) -> Copier:
        """Leave this one behind, as whoever supervises a process would, and begin another of the same name."""
        self.halt.set()
        made = Copier(self._address, self._source, self._target, self._number)
        made.committed, made.aborted = self.committed, self.aborted
        made.errors = [*self.errors, "hung"]
        made.start()
        return made

    def _again(self, made: Producer, error: KafkaException) -> Producer:
        if error.args[0].txn_requires_abort():
            try:
                made.abort_transaction(SECONDS)
                return made
            except KafkaException as failed:
                self.errors.append(str(failed.args[0]))
        return self._producer()

    def _rewind(self, consumer: Consumer) -> None:
        """Go back to what is committed; what there is none of begins at the beginning."""
        while not self.halt.is_set():
            try:
                for each in consumer.committed(consumer.assignment(), REWIND_S):
                    consumer.seek(TopicPartition(each.topic, each.partition, max(each.offset, 0)))
                return
            except KafkaException as error:
                if not error.args[0].retriable() and error.args[0].code() not in AGAIN:
                    raise

    def _producer(self) -> Producer:
        made = Producer(self._common | {"transactional.id": f"copier-{self._number}", "linger.ms": 1})
        while True:
            try:
                made.init_transactions(SECONDS)
                return made
            except KafkaException as error:
                if not error.args[0].retriable() and not self.halt.is_set():
                    raise
                if self.halt.is_set():
                    return made


def wait_for_more(copiers: list[Copier], transactions: int) -> None:
    """Return once they have committed so many more; fail if one of them has died."""
    wanted = sum(each.committed for each in copiers) + transactions
    while sum(each.committed for each in copiers) < wanted:
        assert dead(copiers) == []
        time.sleep(0.02)


def end(copiers: list[Copier]) -> None:
    """Have all of them end; fail if one did so by itself."""
    for each in copiers:
        each.halt.set()
    for each in copiers:
        each.join()
    assert dead(copiers) == []


def dead(copiers: list[Copier]) -> list[BaseException]:
    return [each.died for each in copiers if each.died is not None]


def read_until(
    address: str, topic: str, partitions: int, wanted: int, copiers: list[Copier]
) -> list[list[bytes]]:
    """Return what is committed in each partition as soon as there is so much of it; who hangs is replaced."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "reads-copy", "isolation.level": COMMITTED, "log_level": 0}
    )
    consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
    found: list[list[bytes]] = [[] for _ in range(partitions)]
    deadline = time.monotonic() + 3 * SECONDS
    while sum(map(len, found)) < wanted:
        assert time.monotonic() < deadline, (
            f"{sum(map(len, found))} of {wanted}: {[len(each) for each in found]}; "
            f"{[(each.committed, each.aborted, each.errors[-3:]) for each in copiers]}"
        )
        assert dead(copiers) == []
        for number, each in enumerate(copiers):
            if each.hangs():
                copiers[number] = each.successor()
        for message in consumer.consume(1000, 0.5):
            if message.error() is None:
                found[message.partition()].append(message.value())
    consumer.close()
    return found
