"""The real broker, killed at random moments under load by several idempotent producers, again and again.

No acknowledged record may be lost, doubled or reordered, and offsets stay continuous. ``MAGNETAR_KILLS`` says how
often it is killed; a failure prints the seed of the moments.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

confluent_kafka = pytest.importorskip("confluent_kafka")

KILLS = int(os.environ.get("MAGNETAR_KILLS", "12"))
PARTITIONS = 4
PRODUCERS = 3
TOPIC = "crash"
SMALL_LEDGERS = ("segment.bytes=1048576",)


class Broker:
    """One data directory and the process that serves it."""

    def __init__(self, data: Path) -> None:
        self.data = data
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        self.process: subprocess.Popen[str]
        self.ready_after: list[float] = []

    def start(self) -> None:
        """Start it, and wait until it serves."""
        began = time.monotonic()
        command = [
            str(Path(sys.executable).with_name("magnetar")), "standalone",
            "--data", str(self.data), "--kafka", self.address,
        ]  # fmt: skip
        with (self.data.parent / "broker.log").open("a") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("ready"), (
            f"the broker did not start: {line!r}, see {self.data.parent / 'broker.log'}"
        )
        self.ready_after.append(time.monotonic() - began)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self._ended()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self._ended()

    def _ended(self) -> int:
        code = self.process.wait(30)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code


class Load(threading.Thread):
    """One idempotent producer, numbering what it sends to each partition, and noting what was acknowledged."""

    def __init__(self, number: int, address: str) -> None:
        super().__init__(daemon=True)
        self.number = number
        self.sent: dict[int, int] = defaultdict(int)
        self.acked: dict[tuple[int, int], int] = {}
        self.errors: list[str] = []
        self._halt = threading.Event()
        self._client = confluent_kafka.Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 300_000,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "error_cb": lambda error: None,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        dice = random.Random(self.number)
        while not self._halt.is_set():
            for _ in range(dice.choice((1, 10, 60))):
                self._send(dice)
            self._client.poll(dice.choice((0, 0.002, 0.02)))
            time.sleep(0.01)  # the point is when it is killed, not how much is sent
        self._client.flush(120)

    def _send(self, dice: random.Random) -> None:
        partition = dice.randrange(PARTITIONS)
        number = self.sent[partition]
        value = b"%d:%d:" % (self.number, number) + b"x" * dice.choice((10, 200, 3000))
        try:
            self._client.produce(TOPIC, value, partition=partition, on_delivery=self._delivered(number))
        except BufferError:
            self._client.poll(0.01)
        else:
            self.sent[partition] += 1

    def _delivered(self, number: int) -> Any:
        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self.errors.append(str(error))
            else:
                self.acked[message.partition(), number] = message.offset()

        return delivered

    def end(self) -> None:
        self._halt.set()
        self.join(150)
        assert not self.is_alive(), "a producer could not deliver all it had"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path / "data")
    broker.start()
    yield broker
    if broker.process.poll() is None:
        broker.stop()


def make_topic(address: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    config = dict(setting.split("=") for setting in SMALL_LEDGERS)
    admin = AdminClient({"bootstrap.servers": address})
    for made in admin.create_topics([NewTopic(TOPIC, PARTITIONS, config=config)]).values():
        made.result(20)


def read_back(address: str) -> dict[int, list[tuple[int, bytes]]]:
    """Return (offset, value up to the filling) of every record, by partition."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": "reader", "enable.partition.eof": True, "log_level": 0}
    )
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, p, 0) for p in range(PARTITIONS)])
    found: dict[int, list[tuple[int, bytes]]] = {p: [] for p in range(PARTITIONS)}
    ended: set[int] = set()
    until = time.monotonic() + 300
    while len(ended) < PARTITIONS:
        assert time.monotonic() < until, f"only {ended} could be read to their ends"
        for message in consumer.consume(5000, timeout=0.5):
            if message.error() is None:
                found[message.partition()].append((message.offset(), message.value().rpartition(b":")[0]))
            elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    consumer.close()
    return found


@pytest.mark.slow
@pytest.mark.timeout(120 + 6 * KILLS)
def test_killed_again_and_again_it_keeps_every_promise(broker: Broker) -> None:
    seed = int(os.environ.get("MAGNETAR_SEED", str(random.randrange(1 << 30))))
    dice = random.Random(seed)
    make_topic(broker.address)
    producers = [Load(number, broker.address) for number in range(PRODUCERS)]
    for producer in producers:
        producer.start()
    for _ in range(KILLS):
        time.sleep(dice.choice((0.05, 0.3, 0.7, 1.2)) * dice.random())
        broker.kill()
        broker.start()
    for producer in producers:
        producer.end()
    found = read_back(broker.address)
    assert broker.stop() == 0
    records = sum(map(len, found.values()))
    acked = sum(len(producer.acked) for producer in producers)
    slowest = max(broker.ready_after)
    print(
        f"seed {seed}: {KILLS} kills, {acked} acknowledged of {records} records, slowest start {slowest:.2f} s"
    )
    for producer in producers:
        assert not producer.errors, f"seed {seed}: {producer.errors[:3]}"
    for partition, rows in found.items():
        assert [offset for offset, _ in rows] == list(range(len(rows))), f"seed {seed}: a gap in {partition}"
        check_one(partition, rows, producers, seed)


def check_one(partition: int, rows: list[tuple[int, bytes]], producers: list[Load], seed: int) -> None:
    for producer in producers:
        own = b"%d:" % producer.number
        numbers = [int(value[len(own) :]) for _, value in rows if value.startswith(own)]
        assert numbers == list(range(len(numbers))), (
            f"seed {seed}: lost, doubled or out of order in {partition}"
        )
        offsets = {value: offset for offset, value in rows}
        for (where, number), offset in producer.acked.items():
            if where == partition:
                assert offsets.get(own + b"%d" % number) == offset, (
                    f"seed {seed}: {number} is not at {offset}"
                )
