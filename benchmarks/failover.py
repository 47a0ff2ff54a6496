"""How long nobody can write: from a broker's kill -9, and while a bundle goes to another, by stock clients.

    python -m benchmarks.failover [--rounds 10] [--session-ms 1000]

ZooKeeper, three bookies and three brokers on loopback, with a stock producer of either protocol that sends a record
each 20 ms to a topic's only partition. What is told is the time until the first record sent after the blow is
acknowledged (kill -9 of who owns the topic), and the longest wait of a record about the time of a planned hand-over and
of an end in order (SIGTERM of the owner). The broker that ended is started again before what follows.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Self
from urllib.request import urlopen

import pulsar
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.faults.house import House, HurtBroker
from benchmarks.samples import Samples
from tests.cluster.brokers import leaders
from tests.cluster.rest import ask

KILL, HAND_OVER = "from a kill -9 to the first produce, s", "longest wait at a hand-over, s"
END = "longest wait while the owner ends in order, s"
BARS_S = {KILL: 3.0, HAND_OVER: 0.3, END: 0.3}
_EVERY_S = 0.02
_TOPIC = "kept"


class _Stream(ABC):
    """Sends on and on, from a thread; notes when each record was sent and how long it took."""

    name: str

    def __init__(self) -> None:
        self.acknowledged: list[tuple[float, float]] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._go_on)

    @abstractmethod
    def send(self, at: float) -> None:
        """Send a record; when it is acknowledged, have `note` called."""

    def note(self, at: float) -> None:
        self.acknowledged.append((at, time.perf_counter()))

    def poll(self) -> None:  # noqa: B027
        """Have what was acknowledged told."""

    def _go_on(self) -> None:
        while not self._ends.wait(_EVERY_S):
            self.send(time.perf_counter())
            self.poll()

    def first_after(self, moment: float, patience_s: float = 60) -> float:
        """Return in how many seconds the first record sent after ``moment`` was acknowledged."""
        until = time.perf_counter() + patience_s
        while time.perf_counter() < until:
            if found := [done for sent, done in list(self.acknowledged) if sent > moment]:
                return min(found) - moment
            time.sleep(_EVERY_S)
        return patience_s

    def longest_since(self, moment: float) -> float:
        return max(done - sent for sent, done in list(self.acknowledged) if sent > moment)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()


class _Kafka(_Stream):
    name = "Kafka"

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "metadata.recovery.strategy": "none", "log_level": 0}
        )

    def send(self, at: float) -> None:
        def told(error: object, _: object) -> None:
            if error is None:
                self.note(at)

        self._producer.produce(_TOPIC, b"x", on_delivery=told)

    def poll(self) -> None:
        self._producer.poll(0)


class _Pulsar(_Stream):
    name = "Pulsar"

    def __init__(self, url: str) -> None:
        super().__init__()
        self._client = pulsar.Client(url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
        self._producer = self._client.create_producer(
            f"persistent://public/default/{_TOPIC}", block_if_queue_full=True
        )

    def send(self, at: float) -> None:
        def told(result: pulsar.Result, _: object) -> None:
            if result == pulsar.Result.Ok:
                self.note(at)

        self._producer.send_async(b"x", told)


class _Topic:
    """Who of the brokers has the topic, as Kafka's metadata tell, and its bundle, as Pulsar's REST does."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._admin = AdminClient(
            {"bootstrap.servers": house.bootstrap, "metadata.recovery.strategy": "none", "log_level": 0}
        )
        self._admin.create_topics([NewTopic(_TOPIC, 1)])[_TOPIC].result(60)
        broker = house.brokers[0]
        url = f"http://127.0.0.1:{broker.http}/lookup/v2/topic/persistent/public/default/{_TOPIC}/bundle"
        with urlopen(url, timeout=60) as answer:
            self.bundle = answer.read().decode().strip('"')

    def owner(self) -> HurtBroker:
        while True:
            with contextlib.suppress(KafkaException):
                leader = leaders(self._admin, _TOPIC).get(0)
                for broker in self._house.brokers:
                    if leader == broker.number:
                        return broker
            time.sleep(0.1)


def measure(house: House, samples: Samples, rounds: int) -> None:
    """Kill the owner, hand over, and end the owner in order, in turn."""
    topic = _Topic(house)
    with _Kafka(house.bootstrap) as kafka, _Pulsar(house.pulsar) as pulsars:
        streams = (kafka, pulsars)
        for _ in range(rounds):
            for stream in streams:
                stream.first_after(time.perf_counter())  # it is well
            owner, moment = topic.owner(), time.perf_counter()
            owner.kill()
            for stream in streams:
                samples.add(KILL, stream.name, stream.first_after(moment))
            owner.start()
            time.sleep(5)  # it is known to all
            owner = topic.owner()
            target = next(each for each in house.brokers if each is not owner)
            where = (
                f"namespaces/public/default/{topic.bundle}/unload?destinationBroker=127.0.0.1:{target.http}"
            )
            moment = time.perf_counter()
            ask(owner, "PUT", where)
            time.sleep(3)
            for stream in streams:
                stream.first_after(time.perf_counter())
                samples.add(HAND_OVER, stream.name, stream.longest_since(moment - 0.5))
            owner, moment = topic.owner(), time.perf_counter()
            owner.end()
            for stream in streams:
                stream.first_after(time.perf_counter())
                samples.add(END, stream.name, stream.longest_since(moment - 0.5))
            owner.start()
            time.sleep(5)


def main() -> int:
    """Print a table; the status is 1 if a median is above its bar."""
    parser = argparse.ArgumentParser(prog="failover", description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--session-ms", type=int, default=1000)
    given = parser.parse_args()
    samples = Samples()
    with tempfile.TemporaryDirectory() as scratch, House(Path(scratch), session_ms=given.session_ms) as house:
        measure(house, samples, given.rounds)
    print("\n| | client | median | longest | bar |\n|---|---|---:|---:|---:|")
    is_met = True
    for measure_name, bar in BARS_S.items():
        for client, found in samples.values[measure_name].items():
            middle = statistics.median(found)
            is_met = is_met and middle <= bar
            print(f"| {measure_name} | {client} | {middle:.2f} | {max(found):.2f} | {bar:.1f} |")
    return int(not is_met)


if __name__ == "__main__":
    sys.exit(main())
