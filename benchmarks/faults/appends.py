"""Lists that transactions of both protocols append to, and whoever reads them: Elle's anomalies are looked for.

Each partition of a topic is a list, and each value is there once. All who read, by either protocol and whenever, see a
prefix of the one list: nothing aborted (G1a), nothing twice, nothing out of its writer's order, no two orders
(incompatible order); and in the end each transaction is in all its lists whole, or in none (lost, torn).
"""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from pathlib import Path

import pulsar
from confluent_kafka import Consumer, KafkaError, TopicPartition

from benchmarks.faults.book import Book
from benchmarks.faults.flows import (
    LISTS,
    LISTS_PARTITIONS,
    PAUSE_S,
    Flow,
    Transactions,
    common,
    pulsar_client,
)
from tests.cluster.servers import die_with_parent

ABORTED = 0.3
"""The part of all transactions that their writers abort."""
MOST = 8
"""Values in one transaction."""
PULSARS_TRANSACTION_S = 20
"""After which a coordinator aborts what a killed client of Pulsar's left open."""
_COMPAT = Path(__file__).parents[2] / "compat"


def topic_of(number: int) -> str:
    """Return what Pulsar's clients call one of the lists."""
    return f"persistent://public/default/{LISTS}-partition-{number}"


class Lists:
    """The lists as those who read them found them, and what was asked of those who wrote."""

    def __init__(self, book: Book) -> None:
        self.lists: list[list[bytes]] = [[] for _ in range(LISTS_PARTITIONS)]
        """As whoever read furthest has it."""
        self._book = book
        self._lock = threading.Lock()
        self._asked: list[list[Counter[int]]] = []
        self._outcomes: list[list[str]] = []
        self._readers: dict[tuple[str, int], dict[Hashable, int]] = defaultdict(dict)
        self._last: dict[tuple[int, int], tuple[int, int]] = {}

    def writes(self, outcomes: list[str]) -> int:
        """Return the number of a new writer, whose transactions' ``outcomes`` are added to as they become known."""
        self._asked.append([])
        self._outcomes.append(outcomes)
        return len(self._outcomes) - 1

    def asks(self, writer: int, dice: random.Random) -> list[tuple[int, bytes]]:
        """Return the next transaction of a writer: lists, and a value for each."""
        lists = dice.choices(range(LISTS_PARTITIONS), k=dice.randint(1, MOST))
        transaction = len(self._asked[writer])
        self._asked[writer].append(Counter(lists))
        return [(each, b"%d:%d:%d" % (writer, transaction, value)) for value, each in enumerate(lists)]

    def receive(self, reader: str, number: int, value: bytes, place: Hashable) -> bool:
        """Note what a reader found next in a list, and whether it is new to it; it may go back."""
        with self._lock:
            seen, one = self._readers[reader, number], self.lists[number]
            at = seen.get(place)
            if at is None:
                at = seen[place] = len(seen)
                is_new = True
            else:
                is_new = False
            if at == len(one):
                one.append(value)
                self._look(number, value)
            elif one[at] != value:
                self._book.violate(
                    f"{LISTS}-{number}: {reader} finds {value!r} at {place}, where {one[at]!r} is for others"
                )
            return is_new

    def _look(self, number: int, value: bytes) -> None:
        writer, transaction, each = map(int, value.split(b":"))
        known = self._outcomes[writer]
        if transaction < len(known) and known[transaction] == "aborted":
            self._book.violate(f"{LISTS}-{number}: {value!r} was aborted and is read")
        last = self._last.get((number, writer), (-1, 0))
        if (transaction, each) <= last:
            what = "is there twice" if (transaction, each) == last else "is out of order"
            self._book.violate(f"{LISTS}-{number}: {value!r} comes after {last} and {what}")
        self._last[number, writer] = transaction, each

    def lacks(self) -> list[str]:
        """Return which transactions are lost, torn, or read though aborted."""
        found: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
        with self._lock:
            for number, one in enumerate(self.lists):
                for value in one:
                    writer, transaction, _ = map(int, value.split(b":"))
                    found[writer, transaction][number] += 1
        lacking = []
        for writer, outcomes in enumerate(self._outcomes):
            for transaction, outcome in enumerate(list(outcomes)):
                asked, there = self._asked[writer][transaction], found[writer, transaction]
                if outcome == "committed":
                    is_right = there == asked
                elif outcome == "aborted":
                    is_right = not there
                else:
                    is_right = not there or there == asked
                if not is_right:
                    lacking.append(
                        f"{LISTS}: writer {writer}'s transaction {transaction} ({outcome}) has {dict(there)} "
                        f"of {dict(asked)}"
                    )
        return lacking

    def counts(self) -> dict[str, int]:
        """Return how many values there are, and how many transactions became what."""
        every = Counter(each for outcomes in self._outcomes for each in outcomes)
        return {"values": sum(map(len, self.lists)), **every}

    def behind(self) -> list[str]:
        """Return which readers have not read all that another has."""
        with self._lock:
            return [
                f"{LISTS}-{number}: {reader} has {len(seen)} of {len(self.lists[number])}"
                for (reader, number), seen in self._readers.items()
                if len(seen) != len(self.lists[number])
            ]


class KafkaAppends(Transactions):
    """A transactional producer of Kafka's that appends."""

    def __init__(self, servers: str, lists: Lists, book: Book, dice: random.Random, number: int) -> None:
        name = f"Kafka's appender {number}"
        super().__init__(servers, book, name, f"appends-{number}", f"lists by {name}")
        self._lists, self._dice = lists, dice
        self._writer = lists.writes(self.outcomes)

    def flow(self) -> None:
        while not self.halt.is_set():
            records = self._lists.asks(self._writer, self._dice)
            wanted = "aborted" if self._dice.random() < ABORTED else "committed"
            self.transact(LISTS, records, wanted)
            self.halt.wait(6 * PAUSE_S)


class PulsarAppends(Flow):
    """Pulsar's Java client, a process that is told each transaction and says what became of it."""

    def __init__(self, address: str, lists: Lists, book: Book, dice: random.Random, log: Path) -> None:
        super().__init__(book, "Pulsar's appender")
        self.outcomes: list[str] = []
        self._address, self._log, self._dice = address, log, dice
        self._lists = lists
        self._writer = lists.writes(self.outcomes)
        self._pulse = book.producing("lists by Pulsar's appender")
        self._process: subprocess.Popen[str] | None = None

    def flow(self) -> None:
        while not self.halt.is_set():
            records = self._lists.asks(self._writer, self._dice)
            wanted = "aborted" if self._dice.random() < ABORTED else "committed"
            outcome, why = self._transact(records, wanted)
            self.outcomes.append(outcome)
            if why:
                self.book.tell(self.name, why)
            else:
                self._pulse.beat()
            self.halt.wait(4 * PAUSE_S)
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def kill(self) -> None:
        """End the process as a crash does; another begins with the next transaction."""
        if self._process is not None:
            self._process.kill()

    def _transact(self, records: Sequence[tuple[int, bytes]], wanted: str) -> tuple[str, str]:
        """Return what became of a transaction, and why, if it is not what was asked for."""
        if self._process is None or self._process.poll() is not None:
            self._process = self._launched()
        values = " ".join(f"{topic_of(number)}={value.decode()}" for number, value in records)
        asks, answers = self._process.stdin, self._process.stdout
        assert asks is not None
        assert answers is not None
        try:
            asks.write(f"{'commit' if wanted == 'committed' else 'abort'} {values}\n")
            asks.flush()
            said = answers.readline().rstrip("\n")
        except BrokenPipeError:
            said = ""
        if not said:  # it may have done anything that it was asked for
            return ("either" if wanted == "committed" else "aborted"), "killed"
        outcome, _, why = said.partition("\t")
        return outcome, why

    def _launched(self) -> subprocess.Popen[str]:
        command = [_COMPAT / "pulsar-java.sh", _COMPAT / "clients" / "PulsarAppends.java"]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [*map(str, command), self._address, str(PULSARS_TRANSACTION_S)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                preexec_fn=die_with_parent,
            )


class KafkaReads(Flow):
    """A consumer of Kafka's that reads what is committed."""

    def __init__(self, servers: str, lists: Lists, book: Book) -> None:
        super().__init__(book, "Kafka's reader of lists")
        self._servers, self._lists = servers, lists
        self._pulse = book.consuming("lists, Kafka")

    def flow(self) -> None:
        settings = {
            "group.id": "lists",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",  # who goes back by itself says nothing of why
        }
        consumer = Consumer(common(self._servers, self.book, self.name) | settings)
        following = [0] * LISTS_PARTITIONS
        consumer.assign([TopicPartition(LISTS, each, 0) for each in range(LISTS_PARTITIONS)])
        while not self.halt.is_set():
            for message in consumer.consume(500, 0.1):
                if message.error() is not None:
                    self.book.tell(self.name, f"{message.error().name()}: {message.error().str()}")
                    if message.error().code() == KafkaError._AUTO_OFFSET_RESET:
                        places = [TopicPartition(LISTS, each, at) for each, at in enumerate(following)]
                        consumer.assign(places)
                    continue
                following[message.partition()] = message.offset() + 1
                if self._lists.receive(self.name, message.partition(), message.value(), message.offset()):
                    self._pulse.beat()
        consumer.close()


class PulsarReads(Flow):
    """Readers of Pulsar's, one for each list."""

    def __init__(self, address: str, lists: Lists, book: Book, log: Path) -> None:
        super().__init__(book, "Pulsar's reader of lists")
        self._address, self._lists, self._log = address, lists, log
        self._pulse = book.consuming("lists, Pulsar")

    def flow(self) -> None:
        client = pulsar_client(self._address, self._log)
        readers = [self._made(client, number) for number in range(LISTS_PARTITIONS)]
        while not self.halt.is_set():
            for number, reader in enumerate(readers):
                while (message := _next(reader)) is not None:
                    place = message.message_id()
                    at = (place.ledger_id(), place.entry_id(), place.batch_index())
                    if self._lists.receive(self.name, number, message.data(), at):
                        self._pulse.beat()
        client.close()

    def _made(self, client: pulsar.Client, number: int) -> pulsar.Reader:
        while True:
            try:
                return client.create_reader(topic_of(number), pulsar.MessageId.earliest)
            except pulsar.PulsarException as error:
                self.book.tell(self.name, error)
                time.sleep(0.5)


def _next(reader: pulsar.Reader) -> pulsar.Message | None:
    try:
        return reader.read_next(30)
    except pulsar.Timeout:
        return None
