"""How long many topics take to be made, written first, and served again after their broker's death, in a cluster.

    python -m benchmarks.openings [--topics 3000] [--written 3000] [--session-ms 1000]

ZooKeeper, three bookies and three brokers on loopback. Topics of one partition are made by a stock admin client, 500 in
a request; then a stock producer sends one record to each, at once. The broker that leads most of them is killed
(kill -9), and one more record goes to each of its topics at once. What is told is the time until records are
acknowledged, the brokers' processor time, and the load of the machine: on a busy one only processor time compares.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.faults.house import House, HurtBroker

_AT_ONCE = 500
_PATIENCE_S = 600
_TICKS = os.sysconf("SC_CLK_TCK")


class Phase(NamedTuple):
    """One of the things that are measured."""

    what: str
    topics: int
    all_s: float
    median_s: float
    cpu_s: float
    """Processor time of all brokers that live."""
    load: float
    """Of the machine, when it ended."""
    errors: dict[str, int]
    """What clients were told, by the error's name."""


def processor_s(brokers: Iterable[HurtBroker]) -> float:
    """Return the processor time that brokers have used, in seconds."""
    used = 0
    for each in brokers:
        fields = Path(f"/proc/{each.pid}/stat").read_text().rpartition(")")[2].split()
        used += int(fields[11]) + int(fields[12])
    return used / _TICKS


class Openings:
    """The clients, and what they measured."""

    def __init__(self, house: House) -> None:
        self.phases: list[Phase] = []
        self._house = house
        self._living = list(house.brokers)
        self._config = {
            "bootstrap.servers": house.bootstrap,
            "metadata.recovery.strategy": "none",
            "log_level": 0,
        }
        self._admin = AdminClient(self._config)

    def make(self, names: Sequence[str]) -> None:
        """Make topics; those that are refused are made again later, as an application does."""
        began, before, errors = time.perf_counter(), processor_s(self._living), Counter[str]()
        left = list(names)
        while left:
            asked = self._admin.create_topics([NewTopic(each, 1) for each in left[:_AT_ONCE]])
            left = left[_AT_ONCE:]
            for name, future in asked.items():
                try:
                    future.result(120)
                except KafkaException as error:
                    code: KafkaError = error.args[0]
                    if code.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                        errors[code.name()] += 1
                        left.append(name)
        self._add("topics made", len(names), began, before, [], errors)

    def write(self, what: str, names: Sequence[str]) -> None:
        """Send a record to each topic at once; wait for all."""
        producer = Producer(
            {**self._config, "linger.ms": 5, "message.timeout.ms": _PATIENCE_S * 1000, "retry.backoff.ms": 50}
        )
        errors: Counter[str] = Counter()
        took: list[float] = []
        began, before = time.perf_counter(), processor_s(self._living)

        def told(error: KafkaError | None, _: Message) -> None:
            if error is None:
                took.append(time.perf_counter() - began)
            else:
                errors[error.name()] += 1

        for name in names:
            producer.produce(name, b"x", partition=0, on_delivery=told)
            producer.poll(0)
        producer.flush(_PATIENCE_S)
        self._add(what, len(names), began, before, took, errors)

    def leaders(self, names: Iterable[str]) -> dict[int, list[str]]:
        """Return topics by the number of the broker that leads them."""
        wanted, found = set(names), dict[int, list[str]]()
        for name, topic in self._admin.list_topics(timeout=60).topics.items():
            if name in wanted:
                found.setdefault(topic.partitions[0].leader, []).append(name)
        return found

    def kill_one(self, names: Sequence[str]) -> None:
        """Kill the broker that leads most, and write to all that it led."""
        led = self.leaders(names)
        number = max((each.number for each in self._living), key=lambda each: len(led.get(each, ())))
        broker = next(each for each in self._living if each.number == number)
        self._living.remove(broker)
        broker.kill()
        self.write("served again after a kill -9", led[number])
        began = time.perf_counter()
        broker.start()
        wall, cpu = time.perf_counter() - began, processor_s([broker])
        self._living.append(broker)
        self._tell(Phase("a broker started until it is ready", 1, wall, wall, cpu, os.getloadavg()[0], {}))

    def _add(
        self,
        what: str,
        topics: int,
        began: float,
        before: float,
        took: list[float],
        errors: Counter[str],
    ) -> None:
        wall = time.perf_counter() - began
        median = statistics.median(took) if took else wall
        cpu = processor_s(self._living) - before
        self._tell(Phase(what, topics, wall, median, cpu, os.getloadavg()[0], dict(errors)))

    def _tell(self, phase: Phase) -> None:
        self.phases.append(phase)
        print(_row(phase), flush=True)


def _row(phase: Phase) -> str:
    told = ", ".join(f"{name} {count}" for name, count in phase.errors.items()) or "none"
    return (
        f"| {phase.what} | {phase.topics:,} | {phase.all_s:.1f} | {phase.median_s:.1f} |"
        f" {phase.cpu_s:.1f} | {phase.load:.1f} | {told} |"
    )


def main() -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="openings", description=__doc__.split("\n")[0])
    parser.add_argument("--topics", type=int, default=3000)
    parser.add_argument("--written", type=int, default=3000)
    parser.add_argument("--session-ms", type=int, default=1000)
    given = parser.parse_args()
    print("| | topics | until all, s | median, s | processor, s | load | errors |")
    print("|---|---:|---:|---:|---:|---:|---|")
    names = [f"opened-{number}" for number in range(given.topics)]
    with tempfile.TemporaryDirectory() as scratch, House(Path(scratch), session_ms=given.session_ms) as house:
        openings = Openings(house)
        openings.make(names)
        written = names[: given.written]
        openings.write("first record of each", written)
        openings.write("second record of each", written)
        openings.kill_one(written)
        lost = sum(
            log.read_text().count("is lost, and with it") for log in Path(scratch).glob("broker-*.life-*.log")
        )
        print(f"sessions lost by brokers that live: {lost}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
