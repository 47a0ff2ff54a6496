"""What flows while things break: flights in by Kafka's client, out by Pulsar's, and into a table by Spark.

Each is a thread of its own that counts what it has done; what it counts is looked at twice a second.
"""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.request import urlopen

import pulsar
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from flights import Record
from proof import MODULUS, Headers, digest

from magnetar.records.mapping import decode_headers

TOPIC = "flights"
PARTITIONS = 8
SUBSCRIPTION = "cluster-demo"
_QUIET_S = 120
"""How long nothing may come before something is wrong that waiting does not mend."""


class Flow(threading.Thread):
    """A thread whose failure is kept for whoever waits for it."""

    def __init__(self) -> None:
        super().__init__(name=type(self).__name__, daemon=True)
        self.count = 0
        """Records so far."""
        self.errors = 0
        """Attempts that failed, and were made again."""
        self.failed: BaseException | None = None

    def run(self) -> None:
        try:
            self.flow()
        except BaseException as error:
            self.failed = error

    def flow(self) -> None:
        raise NotImplementedError

    def seen_errors(self) -> int:
        """Return how many attempts have failed so far, and were made again."""
        return self.errors


class Sent(Flow):
    """A stock Kafka producer, idempotent, that sends so many flights a second."""

    def __init__(self, address: str, metrics: str, records: Sequence[Record], rate: int) -> None:
        super().__init__()
        self.digest = 0
        self.per_partition = [0] * PARTITIONS
        self._metrics = metrics
        self._records, self._rate = records, rate
        self._refused: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 20,
                "compression.type": "lz4",
                "message.timeout.ms": 1000 * _QUIET_S,
                "log_level": 0,
            }
        )

    def flow(self) -> None:
        began = time.monotonic()
        for number, record in enumerate(self._records):
            while True:
                try:
                    self._producer.produce(
                        TOPIC, record.value, record.key, headers=record.headers, timestamp=record.timestamp,
                        partition=number % PARTITIONS, on_delivery=self._delivered,
                    )  # fmt: skip
                    break
                except BufferError:  # the client holds as much as it may: let some be delivered
                    self._producer.poll(0.1)
            self.digest = (self.digest + canonical(record.key, record.value, record.headers)) % MODULUS
            if number % 200 == 0:
                while (ahead_s := number / self._rate - (time.monotonic() - began)) > 0:
                    self._producer.poll(ahead_s)  # which returns as soon as it had something to tell
                self._producer.poll(0)
        self._producer.flush()
        if self._refused:
            raise RuntimeError(f"{len(self._refused)} records were not delivered: {self._refused[0]}")

    def seen_errors(self) -> int:
        """Return what came between: librdkafka keeps that to itself, so the proxy is asked."""
        with urlopen(self._metrics, timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        figures = ("magnetar_proxy_kafka_moved_total ", "magnetar_proxy_kafka_broken_total ")
        return sum(int(line.split()[1]) for line in lines if line.startswith(figures))

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._refused.append(error)
            return
        self.count += 1
        self.per_partition[message.partition()] += 1


class Received(Flow):
    """A stock Pulsar consumer. After a failure it is given again what it had not acknowledged; that counts once."""

    def __init__(self, address: str, wanted: int, data: Path) -> None:
        super().__init__()
        self.digest = 0
        self.again = 0
        self.per_partition = [0] * PARTITIONS
        self._address, self._wanted, self._data = address, wanted, data
        self._seen: set[tuple[int, int, int, int]] = set()

    def flow(self) -> None:
        quiet = pulsar.FileLogger(pulsar.LoggerLevel.Info, str(self._data / "pulsar-client.log"))
        client = pulsar.Client(f"pulsar://{self._address}", logger=quiet, operation_timeout_seconds=60)
        consumer = client.subscribe(
            TOPIC,
            SUBSCRIPTION,
            pulsar.ConsumerType.Failover,
            initial_position=pulsar.InitialPosition.Earliest,
        )
        last = time.monotonic()
        while self.count < self._wanted:
            try:
                message = consumer.receive(1000)
            except pulsar.Timeout:
                if time.monotonic() - last > _QUIET_S:
                    raise
                continue
            last = time.monotonic()
            self._take(message)
            self._acknowledge(consumer, message)
        client.close()

    def seen_errors(self) -> int:
        return self.errors + (self._data / "pulsar-client.log").read_text().count("Schedule reconnection")

    def _take(self, message: pulsar.Message) -> None:
        place = message.message_id()
        partition = place.partition()
        key = (partition, place.ledger_id(), place.entry_id(), place.batch_index())
        if key in self._seen:
            self.again += 1
            return
        self._seen.add(key)
        found = canonical(message.partition_key().encode(), message.data(), headers_of(message.properties()))
        self.digest = (self.digest + found) % MODULUS
        self.per_partition[partition] += 1
        self.count += 1

    def _acknowledge(self, consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        if self.count % 100:
            return
        try:
            consumer.acknowledge_cumulative(message)
        except pulsar.PulsarException:  # it is connecting again, and will be given these once more
            self.errors += 1


class Tabled(Flow):
    """Spark, which adds what its table lacks until all is there; offsets and rows go in by one commit."""

    def __init__(self, address: str, wanted: int, data: Path) -> None:
        super().__init__()
        self.commits = 0
        self.files: list[str] = []
        self._address, self._wanted, self._data = address, wanted, data

    def flow(self) -> None:
        import job  # Spark takes a moment to import
        import pyarrow.parquet as pq

        self.spark = job.session(self._data / "spark.log")
        place = {"kafka.bootstrap.servers": self._address}
        counted: dict[str, int] = {}
        last = time.monotonic()
        while self.count < self._wanted:
            try:
                self.files = job.write(self.spark, place, TOPIC, self._data / TOPIC).urls()
            except (
                Exception
            ):  # a broker died under a task: the commit was not made, and the next run takes the same
                self.errors += 1
                if time.monotonic() - last > _QUIET_S:
                    raise
                time.sleep(0.5)
                continue
            for file in set(self.files) - set(counted):
                counted[file] = pq.ParquetFile(file).metadata.num_rows
                last = time.monotonic()
            if sum(counted.values()) == self.count:
                if time.monotonic() - last > _QUIET_S:
                    raise RuntimeError(f"Spark finds {self.count:,} records and no more")
                time.sleep(0.2)
            else:
                self.commits += 1
            self.count = sum(counted.values())


def canonical(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return a record's digest, its headers by name: Pulsar's Python client does not keep their order."""
    return digest(key, value, sorted(headers))


def headers_of(properties: dict[str, str]) -> list[tuple[str, bytes | None]]:
    """Return what were Kafka's headers; such as properties cannot hold, as nulls, lie in one more of them."""
    packed = properties.get("__kafka.headers")
    if packed is None:
        return [(name, value.encode()) for name, value in properties.items()]
    return [(name.decode(), value) for name, value in decode_headers(base64.b64decode(packed))]


def make_topic(address: str) -> None:
    """Make the topic, and wait until each partition has a leader."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    # The records are of 2013, and would be past any retention by time.
    new = NewTopic(TOPIC, PARTITIONS, 1, config={"retention.ms": "-1"})
    end = time.monotonic() + _QUIET_S
    while time.monotonic() < end:
        try:
            admin.create_topics([new])[TOPIC].result(30)
            break
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                break
            time.sleep(0.2)  # brokers have just begun, and nobody may have the namespace yet
    while -1 in leaders(admin):
        time.sleep(0.1)


def leaders(admin: AdminClient) -> list[int]:
    """Return the broker that leads each partition, -1 for those that nobody does."""
    found = admin.list_topics(TOPIC, timeout=2).topics[TOPIC].partitions
    return [found[each].leader if each in found else -1 for each in range(PARTITIONS)]
