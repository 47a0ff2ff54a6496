"""Stock clients of both protocols, each with a load that is small and goes on whatever happens."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pulsar
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.faults.book import Book, Line
from benchmarks.faults.subscriptions import Acknowledgements

NUMBERS, MONEY, COPIED, LISTS, WORK = "numbers", "money", "copied", "lists", "work"
NEWCOMERS = "newcomers"
PARTITIONS = 4
MONEY_PARTITIONS = 2
LISTS_PARTITIONS = 3
PER_TRANSACTION = 3
"""Records of a transaction in each partition."""
_PADDING = b" " * 100
PAUSE_S = 0.1
SECONDS = 60


def common(servers: str, book: Book, flow: str) -> dict[str, Any]:
    """Return what all of Kafka's clients here are given."""
    return {
        "bootstrap.servers": servers,
        "topic.metadata.refresh.interval.ms": 1000,
        "retry.backoff.ms": 50,
        "reconnect.backoff.max.ms": 500,
        "socket.timeout.ms": 10_000,
        # Otherwise librdkafka 2.16 waits for good for a coordinator that went from the list of brokers.
        "metadata.recovery.strategy": "none",
        "error_cb": lambda error: book.tell(flow, error.name()),
        "log_level": 0,
    }


class Flow(threading.Thread):
    """A thread of load. What ends it before its time is a violation."""

    def __init__(self, book: Book, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.book = book
        self.halt = threading.Event()

    def run(self) -> None:
        try:
            self.flow()
        except BaseException as error:
            self.book.violate(f"{self.name} ended: {error!r}")
            raise

    def flow(self) -> None:
        raise NotImplementedError


class Numbers(Flow):
    """Kafka's idempotent producer: numbers in order to each partition."""

    def __init__(self, servers: str, book: Book) -> None:
        super().__init__(book, "idempotent producer")
        self.lines = [Line(f"{NUMBERS}-{each}", book, late=True) for each in range(PARTITIONS)]
        self._pulses = [book.producing(line.name) for line in self.lines]
        settings = common(servers, book, self.name)
        self._producer = Producer(
            settings | {"enable.idempotence": True, "linger.ms": 5, "message.timeout.ms": 600_000}
        )

    def flow(self) -> None:
        number = 0
        while not self.halt.is_set():
            for partition in range(PARTITIONS):
                self._producer.produce(
                    NUMBERS, b"%d" % number + _PADDING, partition=partition, on_delivery=self._delivered
                )
            number += 1
            end = time.monotonic() + PAUSE_S
            while (left := end - time.monotonic()) > 0:
                self._producer.poll(left)
        self._producer.flush(SECONDS)

    def _delivered(self, error: Any, message: Any) -> None:
        partition = message.partition()
        if error is not None:
            self.book.violate(f"{NUMBERS}-{partition}: {int(message.value())} failed: {error}")
            return
        number = int(message.value())
        self._pulses[partition].beat()
        self.lines[partition].acknowledge(number, message.offset())
        if message.offset() is None:
            # Its answer was lost or was a refusal, and a batch behind it was taken: librdkafka tells that it is stored,
            # and not where (rd_kafka_dr_implicit_ack). That it is at its place is seen at the end.
            self.book.tell("numbers", "acknowledged by what came after")
        elif message.offset() != number:
            self.book.violate(f"{NUMBERS}-{partition}: number {number} got offset {message.offset()}")


class Transactions(Flow):
    """A transactional producer of Kafka's, and what became of each of its transactions."""

    def __init__(self, servers: str, book: Book, name: str, transactional_id: str, pulse: str) -> None:
        super().__init__(book, name)
        self.outcomes: list[str] = []
        """By number: committed, aborted, or either, when nobody told."""
        self._servers, self._id = servers, transactional_id
        self._pulse = book.producing(pulse)
        self._producer: Producer | None = None

    def transact(self, topic: str, records: Iterable[tuple[int, bytes]], wanted: str) -> None:
        """Send values to partitions in one transaction, ``wanted`` to be committed or aborted; note what it became."""
        if self._producer is None:
            self._producer = self._made()
        producer = self._producer
        outcome = "aborted"
        try:
            producer.begin_transaction()
            for partition, value in records:
                producer.produce(topic, value, partition=partition)
            producer.flush(SECONDS)
            if wanted == "committed":
                outcome = "either"
                self._again(producer.commit_transaction)
            else:
                self._again(producer.abort_transaction)
            outcome = wanted
            self._pulse.beat()
        except KafkaException as error:
            self.book.tell(self.name, error.args[0].name())
            aborts = error.args[0].txn_requires_abort()
            if aborts:
                try:
                    self._again(producer.abort_transaction)
                    outcome = "aborted"
                except KafkaException as failed:
                    self.book.tell(self.name, f"abort: {failed.args[0].name()}")
                    aborts = False
            if not aborts:
                self._producer = self._made()
        self.outcomes.append(outcome)

    def _again(self, what: Callable[[float], Any]) -> None:
        """Do what can be tried again until it is done."""
        while True:
            try:
                what(SECONDS)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                self.book.tell(self.name, f"again: {error.args[0].name()}")

    def _made(self) -> Producer:
        settings = common(self._servers, self.book, self.name)
        made = Producer(
            settings | {"transactional.id": self._id, "linger.ms": 1, "transaction.timeout.ms": 60_000}
        )
        self._again(made.init_transactions)
        return made


class Money(Transactions):
    """Kafka's transactional producer; of four transactions it aborts one."""

    def __init__(self, servers: str, book: Book, seed: int) -> None:
        super().__init__(servers, book, "transactional producer", "money", "transactions")
        self._random = random.Random(seed)

    def flow(self) -> None:
        while not self.halt.is_set():
            number = len(self.outcomes)
            wanted = "aborted" if self._random.random() < 0.25 else "committed"
            records = [
                (partition, b"%d.%d" % (number, each))
                for each in range(PER_TRANSACTION)
                for partition in range(MONEY_PARTITIONS)
            ]
            self.transact(MONEY, records, wanted)
            self.halt.wait(4 * PAUSE_S)


class Sums:
    """What readers of committed transactions got."""

    def __init__(self, money: Money, book: Book) -> None:
        self._money, self._book = money, book
        self._seen: list[dict[tuple[int, int], int]] = [{} for _ in range(MONEY_PARTITIONS)]
        self._last: list[tuple[int, int]] = [(-1, 0)] * MONEY_PARTITIONS
        self._lock = threading.Lock()

    def receive(self, partition: int, value: bytes, offset: int) -> bool:
        number, each = map(int, value.split(b"."))
        outcomes = self._money.outcomes
        if number < len(outcomes) and outcomes[number] == "aborted":
            self._book.violate(f"{MONEY}-{partition}: {number}.{each} at {offset} was aborted and is read")
        with self._lock:
            seen = self._seen[partition]
            if (known := seen.get((number, each))) is not None:
                if known != offset:
                    self._book.violate(f"{MONEY}-{partition}: {number}.{each} is at {known} and at {offset}")
                return False
            seen[number, each] = offset
            if (number, each) < self._last[partition]:
                self._book.violate(
                    f"{MONEY}-{partition}: {number}.{each} comes after {self._last[partition]}"
                )
            self._last[partition] = (number, each)
            return True

    def lacks(self) -> list[str]:
        """Return what was committed and has not come, or came and was aborted, or came in part."""
        found = []
        for number, outcome in enumerate(list(self._money.outcomes)):
            whole = {(number, each) in seen for seen in self._seen for each in range(PER_TRANSACTION)}
            if len(whole) > 1:
                found.append(f"transaction {number} ({outcome}) is there in part")
            elif outcome != "either" and whole != {outcome == "committed"}:
                found.append(
                    f"transaction {number} ({outcome}) {'is' if whole == {True} else 'is not'} there"
                )
        return found


class Member(Flow):
    """A member of a group of Kafka's that reads both topics, committed records only."""

    def __init__(
        self, servers: str, numbers: Numbers, sums: Sums, pulses: dict[str, Any], number: int
    ) -> None:
        super().__init__(numbers.book, f"group's member {number}")
        self._servers, self._numbers, self._sums, self._pulses = servers, numbers, sums, pulses

    def flow(self) -> None:
        consumer = Consumer(
            common(self._servers, self.book, self.name)
            | {
                "group.id": "readers",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6000,
            }
        )
        consumer.subscribe([NUMBERS, MONEY])
        committed = time.monotonic()
        while not self.halt.is_set():
            for message in consumer.consume(500, 0.1):
                if message.error() is not None:
                    self.book.tell(self.name, message.error().name())
                    continue
                self._take(message)
            if time.monotonic() - committed > 1:
                committed = time.monotonic()
                try:
                    consumer.commit(asynchronous=True)
                except KafkaException as error:  # nothing new, or it has just lost what it had
                    if error.args[0].name() != "_NO_OFFSET":
                        self.book.tell(self.name, f"commit: {error.args[0].name()}")
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            self.book.tell(self.name, f"commit: {error.args[0].name()}")
        consumer.close()

    def _take(self, message: Any) -> None:
        partition, offset = message.partition(), message.offset()
        if message.topic() == MONEY:
            if self._sums.receive(partition, message.value(), offset):
                self._pulses["transactions"].beat()
        elif self._numbers.lines[partition].receive("group", int(message.value()), offset):
            self._pulses[f"{NUMBERS}-{partition}"].beat()


class Newcomers(Flow):
    """Groups of one member, one after the other: each begins whenever the one before has read something, and reads."""

    def __init__(self, servers: str, book: Book) -> None:
        super().__init__(book, "newcomers")
        self._servers = servers
        self._pulse = book.consuming(NEWCOMERS)

    def flow(self) -> None:
        number = 0
        while not self.halt.is_set():
            number += 1
            consumer = Consumer(
                common(self._servers, self.book, self.name)
                | {
                    "group.id": f"newcomer-{number}",
                    "group.protocol": ("classic", "consumer")[number % 2],
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                }
            )
            consumer.subscribe([NUMBERS])
            if self._reads(consumer):
                self._pulse.beat()
            consumer.close()
            self.halt.wait(6 * PAUSE_S)

    def _reads(self, consumer: Consumer) -> bool:
        while not self.halt.is_set():
            for message in consumer.consume(100, 0.1):
                if message.error() is None:
                    return True
                self.book.tell(self.name, message.error().name())
        return False


class Sequence(Flow):
    """Pulsar's producer with sequence ids, on a topic where what comes twice is dropped."""

    def __init__(self, address: str, book: Book, number: int, log: Path, *, batches: bool) -> None:
        super().__init__(book, f"Pulsar's producer {number}")
        self.topic = f"persistent://public/default/sequence-{number}"
        self.line = Line(f"sequence-{number}", book)
        self._pulse = book.producing(self.line.name)
        self._address, self._log, self._batches = address, log, batches

    def flow(self) -> None:
        client = pulsar_client(self._address, self._log)
        while True:
            try:
                producer = client.create_producer(
                    self.topic,
                    producer_name=f"producer-of-{self.line.name}",
                    send_timeout_millis=0,
                    block_if_queue_full=True,
                    batching_enabled=self._batches,
                    batching_max_publish_delay_ms=10,
                )
                break
            except pulsar.PulsarException as error:
                self.book.tell(self.name, error)
                self.halt.wait(0.5)
        number = 0
        while not self.halt.is_set():
            producer.send_async(b"%d" % number + _PADDING, self._acknowledged(number), sequence_id=number)
            number += 1
            self.halt.wait(PAUSE_S)
        while len(self.line.acknowledged) < number:
            time.sleep(0.05)
        client.close()

    def _acknowledged(self, number: int) -> Callable[[Any, Any], None]:
        def done(result: Any, place: Any) -> None:
            if result != pulsar.Result.Ok:
                self.book.violate(f"{self.line.name}: {number} failed: {result}")
                return
            self._pulse.beat()
            told = place.ledger_id(), place.entry_id(), place.batch_index()
            # What came a second time is acknowledged without a place.
            self.line.acknowledge(number, told if told[0] >= 0 else None)

        return done


class Subscriber(Flow):
    """One of a subscription's consumers."""

    def __init__(
        self,
        address: str,
        sequence: Sequence,
        pulse: Any,
        kind: Any,
        number: int,
        log: Path,
        seen: dict[int, Any],
        acknowledgements: Acknowledgements,
    ) -> None:
        super().__init__(sequence.book, f"{kind} consumer {number} of {sequence.line.name}")
        self._sequence, self._pulse, self._kind, self._seen = sequence, pulse, kind, seen
        self._address, self._log = address, log
        self._acknowledgements = acknowledgements

    def flow(self) -> None:
        client = pulsar_client(self._address, self._log)
        name = "shared" if self._kind == pulsar.ConsumerType.Shared else "failover"
        while True:
            try:
                consumer = client.subscribe(
                    self._sequence.topic,
                    name,
                    self._kind,
                    consumer_name=self.name,
                    initial_position=pulsar.InitialPosition.Earliest,
                    receiver_queue_size=100,
                )
                break
            except pulsar.PulsarException as error:
                self.book.tell(self.name, error)
                self.halt.wait(0.5)
        while not self.halt.is_set():
            try:
                message = consumer.receive(200)
            except pulsar.Timeout:
                continue
            self._take(message, name)
            number = int(message.data())
            self._acknowledgements.deliver(number)
            try:
                consumer.acknowledge(message)
                self._acknowledgements.acknowledge(number)
            except pulsar.PulsarException as error:  # it is connecting, and will be given it again
                self.book.tell(self.name, error)
        client.close()

    def _take(self, message: Any, reader: str) -> None:
        place = message.message_id()
        at = (place.ledger_id(), place.entry_id(), place.batch_index())
        number = int(message.data())
        if reader == "failover":
            if self._sequence.line.receive(reader, number, at):
                self._pulse.beat()
            return
        known = self._seen.setdefault(number, at)
        if known != at:
            self.book.violate(f"{self._sequence.line.name}: {number} is at {known} and at {at}")
        elif known is at:
            self._pulse.beat()


def pulsar_client(address: str, log: Path) -> Any:
    """Return a client that tells a file, not the terminal, how it fares."""
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Info, str(log))
    return pulsar.Client(address, logger=logger, operation_timeout_seconds=30)


def make_topics(servers: str) -> None:
    """Make Kafka's topics, and wait until all have leaders."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    wanted = {
        NUMBERS: PARTITIONS,
        MONEY: MONEY_PARTITIONS,
        COPIED: PARTITIONS,
        LISTS: LISTS_PARTITIONS,
        WORK: PARTITIONS,
    }
    for topic, partitions in wanted.items():
        while topic not in admin.list_topics(timeout=10).topics:
            try:
                admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
            except KafkaException:  # brokers have just begun, and nobody may have the namespace yet
                time.sleep(0.5)
    while any(
        each.leader < 0
        for topic in wanted
        for each in admin.list_topics(topic, timeout=10).topics[topic].partitions.values()
    ):
        time.sleep(0.1)


def read_all(servers: str, topic: str, partitions: int, isolation: str) -> list[list[tuple[int, bytes]]]:
    """Return offset and value of all records of each partition, read anew from its beginning."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "checks",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
    found: list[list[tuple[int, bytes]]] = [[] for _ in range(partitions)]
    ended: set[int] = set()
    end = time.monotonic() + 300
    while len(ended) < partitions:
        if time.monotonic() > end:
            raise TimeoutError(
                f"{topic}: {[len(each) for each in found]} read in 300 s, ends of {ended} reached"
            )
        for message in consumer.consume(1000, 0.5):
            if message.error() is None:
                found[message.partition()].append((message.offset(), message.value()))
                ended.discard(message.partition())
            elif message.error().name() == "_PARTITION_EOF":
                ended.add(message.partition())
    consumer.close()
    return found
