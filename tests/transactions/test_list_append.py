"""Lists that transactions append to, read while they are written by consumers of both protocols, as Elle would have it.

Each partition is a list. Whoever reads it, and whenever, sees a prefix of the one list that there is in the end: no
aborted value (G1a), none twice, none lost, none out of its producer's order; and in the end each transaction is whole.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.process import BrokerProcess
from tests.transactions.clients import COMMITTED, SECONDS, make_topic, producer, values
from tests.transactions.pulsar_client import Client

PRODUCERS, PULSARS, LISTS, TRANSACTIONS = 3, 2, 3, 40
TOPIC = "lists"
Lists = dict[int, list[bytes]]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    options = "--pulsar", "127.0.0.1:0", "--set", "transactionCoordinatorEnabled=true"
    with BrokerProcess(tmp_path / "data", *options) as process:
        yield process


class Appends(threading.Thread):
    """One producer; each value names its producer, its transaction and its number."""

    def __init__(self, address: str, number: int, dice: random.Random) -> None:
        super().__init__()
        self.number = number
        self.committed: dict[int, Counter[int]] = {}
        """How many values each transaction has in each list."""
        self._dice = dice
        self._made = producer(address, f"appends-{number}")

    def run(self) -> None:
        for transaction in range(TRANSACTIONS):
            lists = self._dice.choices(range(LISTS), k=self._dice.randrange(1, 12))
            self._made.begin_transaction()
            for value, each in enumerate(lists):
                self._made.produce(TOPIC, b"%d:%d:%d" % (self.number, transaction, value), partition=each)
            if self._dice.random() < 0.3:
                self._made.flush(SECONDS)
                self._made.abort_transaction(SECONDS)
            else:
                self._made.commit_transaction(SECONDS)
                self.committed[transaction] = Counter(lists)


class PulsarAppends(threading.Thread):
    """The same by a client of Pulsar's transactions."""

    def __init__(self, broker: BrokerProcess, number: int, dice: random.Random) -> None:
        super().__init__()
        self.number = number
        self.committed: dict[int, Counter[int]] = {}
        self._dice = dice
        self._client = Client(broker)

    def run(self) -> None:
        for transaction in range(TRANSACTIONS):
            lists = self._dice.choices(range(LISTS), k=self._dice.randrange(1, 12))
            txn = self._client.begin(self._dice.randrange(16))
            self._client.add_topic(txn, *(f"{TOPIC}-partition-{each}" for each in set(lists)))
            for value, each in enumerate(lists):
                said = b"%d:%d:%d" % (self.number, transaction, value)
                self._client.produce(f"{TOPIC}-partition-{each}", [said], txn)
            commits = self._dice.random() >= 0.3
            self._client.end(txn, commit=commits)
            if commits:
                self.committed[transaction] = Counter(lists)


class Reads(threading.Thread):
    """Reads all lists until it is told that no more comes."""

    def __init__(self) -> None:
        super().__init__()
        self.lists: Lists = defaultdict(list)
        self.over = threading.Event()

    def run(self) -> None:
        while not (self.poll() == 0 and self.over.is_set()):
            pass

    def poll(self) -> int:
        raise NotImplementedError


class KafkaReads(Reads):
    def __init__(self, address: str) -> None:
        super().__init__()
        self._consumer = Consumer(
            {"bootstrap.servers": address, "group.id": "reads", "isolation.level": COMMITTED}
        )
        self._consumer.assign([TopicPartition(TOPIC, each, 0) for each in range(LISTS)])

    def poll(self) -> int:
        found = self._consumer.consume(100, timeout=1)
        for message in found:
            self.lists[message.partition()].append(message.value())
        return len(found)


class PulsarReads(Reads):
    def __init__(self, url: str) -> None:
        super().__init__()
        self._client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        self._consumers = [
            self._client.subscribe(
                f"{TOPIC}-partition-{each}", "reads", initial_position=pulsar.InitialPosition.Earliest
            )
            for each in range(LISTS)
        ]

    def poll(self) -> int:
        count = 0
        for each, consumer in enumerate(self._consumers):
            try:
                while True:
                    message = consumer.receive(300)
                    consumer.acknowledge(message)
                    self.lists[each].append(message.data())
                    count += 1
            except pulsar.Timeout:
                pass
        return count


@pytest.mark.slow
def test_whoever_reads_sees_prefixes_of_the_same_lists(broker: BrokerProcess) -> None:
    seed = random.randrange(1 << 30)
    make_topic(broker.address, TOPIC, LISTS)
    readers = [KafkaReads(broker.address), KafkaReads(broker.address), PulsarReads(broker.pulsar_url)]
    writers: list[Appends | PulsarAppends] = [
        Appends(broker.address, each, random.Random(seed + each)) for each in range(PRODUCERS)
    ]
    for number in range(PRODUCERS, PRODUCERS + PULSARS):
        writers.append(PulsarAppends(broker, number, random.Random(seed + number)))
    for each in (*readers, *writers):
        each.start()
    for each in writers:
        each.join(SECONDS)
        assert not each.is_alive(), f"seed {seed}"
    in_the_end = values(broker.address, TOPIC, COMMITTED, LISTS)
    time.sleep(1)
    for reader in readers:
        reader.over.set()
        reader.join(SECONDS)
    final = readers[0].lists
    assert sorted(value for each in final.values() for value in each) == sorted(in_the_end), f"seed {seed}"
    for reader in readers[1:]:
        assert reader.lists == final, f"seed {seed}: {type(reader).__name__}"
    assert len(set(in_the_end)) == len(in_the_end), f"seed {seed}: doubled"
    for writer in writers:
        found: dict[int, Counter[int]] = defaultdict(Counter)
        for each, texts in final.items():
            mine = [
                tuple(map(int, text.split(b":")[1:]))
                for text in texts
                if text.startswith(b"%d:" % writer.number)
            ]
            assert mine == sorted(mine), f"seed {seed}: out of order"
            for transaction, _ in mine:
                found[transaction][each] += 1
        assert found == writer.committed, f"seed {seed}: lost, torn or aborted"
