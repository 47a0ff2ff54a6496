"""A share group under load: each record is delivered at least once, and once acknowledged not again.

What was in flight may come again: what a member had when it was killed, or when its lock was over, and what it is
told of late. So an acknowledgement that a second member is told of is a violation at any time, and a delivery is one
when it comes longer after an acknowledgement than anything is in flight.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from confluent_kafka import Producer

from benchmarks.faults.book import Book
from benchmarks.faults.flows import PARTITIONS, PAUSE_S, SECONDS, WORK, Flow, common
from tests.shares.test_share_consumers import Worker

GROUP = "crew"
MEMBERS = 2
IN_FLIGHT_S = 35.0
"""A member waits 30 s for an answer to its acknowledgements before it looks at what else has come to it."""
SILENT_S = 45.0
"""After which whoever supervises members begins another."""


class Work(Flow):
    """Kafka's idempotent producer of what is to be done."""

    def __init__(self, servers: str, book: Book) -> None:
        super().__init__(book, "producer of work")
        self.count = 0
        """Numbers below it are acknowledged, or will be."""
        self._producer = Producer(
            common(servers, book, self.name)
            | {"enable.idempotence": True, "linger.ms": 5, "message.timeout.ms": 600_000}
        )

    def flow(self) -> None:
        while not self.halt.is_set():
            self._producer.produce(
                WORK, b"%d" % self.count, partition=self.count % PARTITIONS, on_delivery=self._delivered
            )
            self.count += 1
            end = time.monotonic() + PAUSE_S / 2
            while (left := end - time.monotonic()) > 0:
                self._producer.poll(left)
        self._producer.flush(2 * SECONDS)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.book.violate(f"{WORK}: {int(message.value())} failed: {error}")


class Shares:
    """What members got and what was acknowledged, by number."""

    def __init__(self, book: Book) -> None:
        self.got: set[int] = set()
        self.acknowledged: dict[int, tuple[float, str]] = {}
        """When somebody was told so, and who."""
        self.came_late = 0
        """Deliveries of what was acknowledged meanwhile: it was in flight."""
        self._book = book

    def acknowledge(self, member: str, at: float, number: int) -> bool:
        """Note an acknowledgement that a member was told of, and whether it is the first."""
        if number in self.acknowledged:
            when, who = self.acknowledged[number]
            self._book.violate(
                f"{WORK}: {number} is acknowledged to {member} {at - when:.2f} s after it was to {who}"
            )
            return False
        self.acknowledged[number] = at, member
        return True

    def deliver(self, member: str, at: float, number: int) -> None:
        """Note a delivery."""
        self.got.add(number)
        when, who = self.acknowledged.get(number, (at, member))
        if at > when + IN_FLIGHT_S:
            self._book.violate(
                f"{WORK}: {number} comes to {member} {at - when:.2f} s after it was acknowledged to {who}"
            )
        elif at > when + 0.25:  # a poll takes some time to return what came before
            self.came_late += 1


class Crew(Flow):
    """The members, processes of their own, and whoever supervises them."""

    def __init__(self, servers: str, book: Book) -> None:
        super().__init__(book, "a member of the share group")
        self.shares = Shares(book)
        self._servers = servers
        self._pulse = book.consuming("share group")
        self._lock = threading.Lock()
        self._members: dict[str, Worker] = {}
        self._read: dict[str, list[int]] = {}
        self._heard: dict[str, float] = {}
        self._begun = 0

    def flow(self) -> None:
        with self._lock:
            for _ in range(MEMBERS):
                self._add()
        while not self.halt.wait(0.05):
            with self._lock:
                for name in list(self._members):
                    self._take(name)
                    self._look_after(name)
        with self._lock:
            for name in list(self._members):
                self._members[name].kill()
                self._take(name)

    def kill(self) -> None:
        """End the oldest member as a crash does; another begins."""
        with self._lock:
            self._replace(next(iter(self._members)))

    def _add(self) -> None:
        self._begun += 1
        name = f"member {self._begun}"
        self._members[name] = Worker(self._servers, GROUP, WORK)
        self._read[name] = [0, 0, 0]
        self._heard[name] = time.monotonic()

    def _replace(self, name: str) -> None:
        self._members[name].kill()
        self._take(name)
        del self._members[name]
        self._add()

    def _take(self, name: str) -> None:
        """Note what a member said since it was looked at last."""
        member, (got, acked, failures) = self._members[name], self._read[name]
        said_got, said_acked = member.got[got:], member.acked[acked:]
        said_failed = member.failures[failures:]
        for at, numbers in said_got:
            for number in numbers:
                self.shares.deliver(name, at, number)
        for at, numbers in said_acked:
            for number in numbers:
                if self.shares.acknowledge(name, at, number):
                    self._pulse.beat()
        for each in said_failed:
            self.book.tell(self.name, each)
        if said_got or said_acked or said_failed:
            self._heard[name] = time.monotonic()
        self._read[name] = [
            got + len(said_got),
            acked + len(said_acked),
            failures + len(said_failed),
        ]

    def _look_after(self, name: str) -> None:
        """Replace a member that ended, or that says nothing, as whoever supervises a process would."""
        ended = not self._members[name].is_alive
        if not ended and time.monotonic() - self._heard[name] < SILENT_S:
            return
        self.book.tell(self.name, "ended by itself" if ended else f"got nothing for {SILENT_S:.0f} s")
        self._replace(name)

    def lacks(self, count: int) -> list[str]:
        """Return what nobody was given, of the numbers below ``count``."""
        lacking = sorted(set(range(count)) - self.shares.got)
        return [f"{WORK}: {len(lacking)} of {count} came to nobody: {lacking[:5]}"] if lacking else []

    def unacknowledged(self, count: int) -> int:
        """Return how many nobody was told to be acknowledged. They may be: who is killed is told nothing."""
        return count - len(self.shares.acknowledged)
