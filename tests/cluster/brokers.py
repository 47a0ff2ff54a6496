"""Brokers of a cluster, each a process, and what stock clients do with them."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.servers import Cluster, free_port
from tests.waiting import until

PARTITIONS = 8


class BrokerProcess:
    """``magnetar broker``, from a file in Pulsar's words."""

    def __init__(self, cluster: Cluster, directory: Path, number: int, *extra: str, conf: str = "") -> None:
        """``extra`` are settings, NAME=VALUE; ``conf`` is added to the file in Pulsar's words."""
        self.kafka, self.pulsar, self.http = free_port(), free_port(), free_port()
        self.number = number
        self.log = directory / f"broker-{number}.log"
        self.config = directory / f"broker-{number}.conf"
        self.config.write_text(
            f"metadataStoreUrl=zk:{cluster.hosts}/house\nclusterName=house\n"
            f"bookkeeperMetadataServiceUri=zk+hierarchical://{cluster.hosts}/ledgers\n"
            "managedLedgerDefaultEnsembleSize=2\nmanagedLedgerDefaultWriteQuorum=2\n"
            "managedLedgerDefaultAckQuorum=2\nmetadataStoreSessionTimeoutMillis=4000\n"
            f"messagingProtocols=kafka,pulsar\nbookkeeper.cache.bytes=16777216\n{conf}"
        )
        settings = [
            f"node.id={number}",
            f"data.dir={directory / f'data-{number}'}",
            f"listeners=PLAINTEXT://127.0.0.1:{self.kafka}",
            f"pulsar.listeners=pulsar://127.0.0.1:{self.pulsar}",
            f"http.listeners=http://127.0.0.1:{self.http}",
            "offsets.topic.num.partitions=8",
            *extra,
        ]
        magnetar = Path(sys.executable).parent / "magnetar"
        self._command = [str(magnetar), "broker", "--config", str(self.config)]
        for each in settings:
            self._command += ["--set", each]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.begin()
        while "ready " not in self.log.read_text():
            assert self._process is not None
            assert self._process.poll() is None, self.log.read_text()[-3000:]
            time.sleep(0.05)

    def begin(self) -> subprocess.Popen[bytes]:
        with self.log.open("wb") as out:
            self._process = subprocess.Popen(self._command, stdout=out, stderr=subprocess.STDOUT)
        return self._process

    def send(self, sent: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(sent)

    def end(self, sent: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(sent)
            self._process.wait()
            self._process = None


def bootstrap(brokers: list[BrokerProcess]) -> str:
    return ",".join(f"127.0.0.1:{each.kafka}" for each in brokers)


def leaders(admin: AdminClient, topic: str) -> dict[int, int]:
    found = admin.list_topics(topic, timeout=10).topics[topic].partitions
    return {each.id: each.leader for each in found.values()}


def make_topic(
    admin: AdminClient, name: str, partitions: int = PARTITIONS, config: dict[str, str] | None = None
) -> None:
    """Make a topic and wait until each partition has a leader. One that a first try of a test left is deleted."""
    if name in admin.list_topics(timeout=10).topics:  # to ask for it alone could make it
        admin.delete_topics([name])[name].result()
        until(lambda: name not in admin.list_topics(timeout=10).topics)
    admin.create_topics([NewTopic(name, partitions, config=config or {})])[name].result()
    while not (found := leaders(admin, name)) or min(found.values()) < 0:
        time.sleep(0.05)


def until_shared(admin: AdminClient, topic: str) -> None:
    """Wait until both brokers lead: who comes later is given its part."""
    while len(set(leaders(admin, topic).values()) - {-1}) < 2:
        time.sleep(0.1)


class Load:
    """An idempotent producer of numbers, each to one partition in order, in a thread of its own."""

    def __init__(self, servers: str, topic: str) -> None:
        self.acknowledged: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self.longest_silence_s = 0.0
        self.failures: list[object] = []
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "topic.metadata.refresh.interval.ms": 1000,
                "retry.backoff.ms": 50,
                "message.timeout.ms": 60_000,
            }
        )
        self._topic = topic
        self._stop = threading.Event()
        self._last = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            for partition in range(PARTITIONS):
                self._producer.produce(
                    self._topic, str(number).encode(), partition=partition, on_delivery=self._delivered
                )
            number += 1
            self._producer.poll(0.005)
        self._producer.flush(60)

    def _delivered(self, error: object, message: object) -> None:
        now = time.monotonic()
        self.longest_silence_s = max(self.longest_silence_s, now - self._last)
        self._last = now
        if error is not None:
            self.failures.append(error)
        else:
            self.acknowledged[message.partition()].append(int(message.value()))  # type: ignore[attr-defined]

    def count(self) -> int:
        return sum(map(len, self.acknowledged))

    def wait_for_more(self, more: int) -> None:
        target = self.count() + more
        while self.count() < target:
            time.sleep(0.01)

    def end(self) -> None:
        self._stop.set()
        self._thread.join()


def read_back(servers: str, topic: str, group: str, wanted: int) -> list[list[int]]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[list[int]] = [[] for _ in range(PARTITIONS)]
    try:
        while sum(map(len, found)) < wanted:
            for message in consumer.consume(1000, 0.5):
                if not message.error():
                    found[message.partition()].append(int(message.value()))
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()  # or it would have a part of what a second try reads
    return found


def check(load: Load, servers: str, topic: str) -> None:
    """Everything acknowledged is there once, in order."""
    assert load.failures == []
    found = read_back(servers, topic, f"{topic}-readers", load.count())
    assert found == load.acknowledged
