"""Stock clients of both protocols under way while bundles move, and what each of them was told.

Every producer numbers its messages, a count for each partition, and notes what was acknowledged. Every reader
notes what it got. What must hold is asked when all is over.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka as ck
import pulsar
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS = 3
PAUSE_S = 0.004
"""Between two messages of one producer: the broker is to have load, and its test's own threads the processor, too."""
PATIENCE_S = 60.0


class Told:
    """Numbers by partition, in the order in which they came."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.by_partition: dict[int, list[int]] = defaultdict(list)

    def note(self, partition: int, number: int) -> None:
        with self._lock:
            self.by_partition[partition].append(number)

    def firsts(self, partition: int) -> list[int]:
        """Return the numbers as each came for the first time."""
        return list(dict.fromkeys(self.by_partition[partition]))

    def lasts(self, partition: int) -> list[int]:
        """Return the numbers as each came for the last time."""
        return list(dict.fromkeys(reversed(self.by_partition[partition])))[::-1]

    def __len__(self) -> int:
        return sum(map(len, self.by_partition.values()))


class Work:
    """Something that a thread does again and again until it is ended; what it raises is raised at the end."""

    def __init__(self, step: Callable[[], None], pause_s: float = 0.0) -> None:
        self._step = step
        self._pause_s = pause_s
        self._ends = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._ends.is_set():
                self._step()
                if self._pause_s:
                    time.sleep(self._pause_s)
        except BaseException as error:
            self._error = error

    def end(self) -> None:
        self._ends.set()
        self._thread.join()
        if self._error is not None:
            raise self._error


def make_topics(address: str, *names: str) -> None:
    """Make topics, in spite of moves."""
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.create_topics([NewTopic(name, PARTITIONS) for name in names]).values():
        future.result(PATIENCE_S)


class KafkaProducer:
    """Sends to each partition in turn."""

    def __init__(self, address: str, topic: str, **config: object) -> None:
        self.topic = topic
        self.acknowledged = Told()
        self.failed: list[str] = []
        self.sent = [0] * PARTITIONS
        self._next = 0
        self._client = ck.Producer(
            {
                "bootstrap.servers": address,
                "linger.ms": 2,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "message.timeout.ms": int(PATIENCE_S * 1000),
                **config,
            }
        )

    def step(self) -> None:
        partition = self._next = (self._next + 1) % PARTITIONS
        number = self.sent[partition]
        self.sent[partition] += 1

        def done(error: ck.KafkaError | None, _: ck.Message) -> None:
            if error is None:
                self.acknowledged.note(partition, number)
            else:
                self.failed.append(str(error))

        self._client.produce(self.topic, b"%d" % number, partition=partition, on_delivery=done)
        self._client.poll(0)

    def flush(self) -> None:
        assert self._client.flush(PATIENCE_S) == 0, "messages that nobody answered for"


class KafkaReader:
    """One member of a group; commits what it has noted."""

    def __init__(self, address: str, topic: str, group: str) -> None:
        self.got = Told()
        self.commits = 0
        self._client = ck.Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 10_000,
                "topic.metadata.refresh.interval.ms": 1000,
            }
        )
        self._client.subscribe([topic])
        self._since_commit = 0

    def step(self) -> None:
        for message in self._client.consume(100, 0.05):
            if message.error() is None:
                self.got.note(message.partition(), int(message.value()))
                self._since_commit += 1
        if self._since_commit >= 50:
            self._since_commit = 0
            try:
                self._client.commit(asynchronous=False)
                self.commits += 1
            except ck.KafkaException:
                pass  # a rebalance, or the coordinator has moved: what was not committed comes again

    def close(self) -> None:
        self._client.close()


class Committer:
    """Commits ever larger offsets, and looks whether what it was told is kept stays kept."""

    def __init__(self, address: str, topic: str, group: str) -> None:
        self.kept = 0
        self._number = 0
        self._topic = topic
        self._client = ck.Consumer({"bootstrap.servers": address, "group.id": group})
        self._client.assign([ck.TopicPartition(topic, 0)])

    def step(self) -> None:
        self._number += 1
        offset = ck.TopicPartition(self._topic, 0, self._number)
        try:
            self._client.commit(offsets=[offset], asynchronous=False)
        except ck.KafkaException:
            return
        self.kept = self._number
        assert self.committed() == self.kept

    def committed(self) -> int:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                (found,) = self._client.committed([ck.TopicPartition(self._topic, 0)], timeout=5)
                return int(found.offset)
            except ck.KafkaException:
                assert time.monotonic() < deadline

    def close(self) -> None:
        self._client.close()


def stored(address: str, topic: str) -> tuple[Told, dict[int, list[int]]]:
    """Read a whole topic by Kafka's protocol: numbers, and the leader epochs that they were stored under."""
    client = ck.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "all",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    found, epochs = Told(), defaultdict(list)
    places = [ck.TopicPartition(topic, partition, ck.OFFSET_BEGINNING) for partition in range(PARTITIONS)]
    ends = {each.partition: client.get_watermark_offsets(each, PATIENCE_S)[1] for each in places}
    client.assign(places)
    deadline = time.monotonic() + PATIENCE_S
    while any(ends.values()):
        assert time.monotonic() < deadline, f"not read to the end: {ends}"
        for message in client.consume(1000, 0.2):
            assert message.error() is None
            found.note(message.partition(), int(message.value()))
            epochs[message.partition()].append(message.leader_epoch())
            if message.offset() + 1 >= ends[message.partition()]:
                ends[message.partition()] = 0
    client.close()
    return found, epochs


class PulsarProducer:
    """One producer with a name for each partition."""

    def __init__(self, client: pulsar.Client, topic: str, name: str) -> None:
        self.topic = topic
        self.acknowledged = Told()
        self.failed: list[str] = []
        self.sent = [0] * PARTITIONS
        self._next = 0
        self._producers = [
            client.create_producer(
                f"{topic}-partition-{index}",
                producer_name=name,
                send_timeout_millis=0,
                max_pending_messages=2000,
                block_if_queue_full=True,
            )
            for index in range(PARTITIONS)
        ]

    def step(self) -> None:
        partition = self._next = (self._next + 1) % PARTITIONS
        number = self.sent[partition]
        self.sent[partition] += 1

        def done(result: pulsar.Result, _: Any) -> None:
            if result == pulsar.Result.Ok:
                self.acknowledged.note(partition, number)
            else:
                self.failed.append(str(result))

        self._producers[partition].send_async(b"%d" % number, done)

    def begin(self) -> None:
        """Have a first message acknowledged of each partition.

        Pulsar's C++ client begins its sequence ids anew each time it connects until then, also with messages in
        flight; deduplication then takes new messages for those.
        """
        for _ in self._producers:
            self.step()
        self.flush()

    def flush(self) -> None:
        for each in self._producers:
            each.flush()


class PulsarReader:
    """One consumer of one partition; acknowledges what it has noted."""

    def __init__(
        self, client: pulsar.Client, topic: str, partition: int, name: str, kind: pulsar.ConsumerType
    ) -> None:
        self.got = Told()
        self._partition = partition
        self._consumer = client.subscribe(
            f"{topic}-partition-{partition}",
            name,
            consumer_type=kind,
            initial_position=pulsar.InitialPosition.Earliest,
            receiver_queue_size=100,
        )

    def step(self) -> None:
        try:
            message = self._consumer.receive(timeout_millis=50)
        except pulsar.Timeout:
            return
        self.got.note(self._partition, int(message.data()))
        try:
            self._consumer.acknowledge(message)
        except pulsar.PulsarException:
            pass  # it has just been sent away: the message comes again


@contextmanager
def under_way(*steps: Any) -> Iterator[None]:
    """Have each of these do its steps in a thread of its own."""
    works = [
        Work(each.step, PAUSE_S if isinstance(each, KafkaProducer | PulsarProducer) else 0.0)
        for each in steps
    ]
    try:
        yield
    finally:
        errors = []
        for work in works:
            try:
                work.end()
            except BaseException as error:
                errors.append(error)
        if errors:
            raise BaseExceptionGroup("under load", errors)
