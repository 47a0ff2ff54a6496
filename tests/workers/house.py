"""``magnetar standalone --workers N`` as a user starts it, and its workers by their numbers."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from tests.process import BrokerProcess

PARTITIONS = 8
_IS = re.compile(r"worker (\d+) is process (\d+)")


class House(BrokerProcess):
    """All processes of one data directory."""

    def __init__(self, data: Path, workers: int, *arguments: str) -> None:
        self.workers = workers
        super().__init__(
            data,
            "--workers",
            str(workers),
            "--pulsar",
            "127.0.0.1:0",
            "--http",
            "127.0.0.1:0",
            "--set",
            "offsets.topic.num.partitions=8",
            "--set",
            "transaction.state.log.num.partitions=8",
            *arguments,
        )
        self.admin = AdminClient({"bootstrap.servers": self.address})

    def pids(self) -> dict[int, int]:
        """Return the process of each worker, by its number."""
        found: dict[int, int] = {}
        for line in self.log_lines():
            if (told := _IS.search(line)) is not None:
                found[int(told[1])] = int(told[2])
        return found

    def send(self, worker: int, sent: signal.Signals) -> int:
        """Send a signal to a worker, and return its process."""
        pid = self.pids()[worker]
        os.kill(pid, sent)
        return pid

    def until_again(self, worker: int, before: int) -> None:
        """Wait until a worker that was process ``before`` has been begun again and is known to clients."""
        while self.pids()[worker] == before:
            time.sleep(0.02)
        self.until_all_serve()

    def until_all_serve(self) -> None:
        while len(self.admin.list_topics(timeout=10).brokers) < self.workers:
            time.sleep(0.05)

    def leaders(self, topic: str) -> dict[int, int]:
        found = self.admin.list_topics(topic, timeout=10).topics[topic].partitions
        return {each.id: each.leader for each in found.values()}

    def make_topic(self, name: str, partitions: int = PARTITIONS) -> None:
        """Make a topic and wait until each partition has a leader."""
        self.admin.create_topics([NewTopic(name, partitions)])[name].result()
        while not (found := self.leaders(name)) or min(found.values()) < 0:
            time.sleep(0.02)

    def until_shared(self, topic: str) -> None:
        """Wait until more than one worker leads: who comes later is given its part."""
        while len(set(self.leaders(topic).values()) - {-1}) < 2:
            time.sleep(0.1)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
