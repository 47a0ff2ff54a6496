"""Pulsar's transactions whose coordinators, topics and subscriptions are different workers', while some are killed."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.transactions.clients import COMMITTED, UNCOMMITTED, ends, make_topic, values
from tests.transactions.pulsar_client import ASSIGN, Refused, Txn
from tests.workers.house import House
from tests.workers.pulsar_routed import Routed

pytestmark = [pytest.mark.slow]
MESSAGES, OF_EACH, PARTITIONS, MOVERS, COORDINATORS = 20_000, 100, 4, 2, 8
SECONDS = 240
T = TypeVar("T")
GONE = OSError, EOFError, AssertionError, Refused


class Mover(threading.Thread):
    """Moves messages of all partitions from one topic to another, so many in a transaction; aborts every fifth."""

    def __init__(self, house: House, dice: random.Random) -> None:
        super().__init__(daemon=True)
        self.committed = self.aborted = 0
        self.lost: list[str] = []
        self.halt = threading.Event()
        self._house = house
        self._dice = dice
        self._open: Txn | None = None

    def run(self) -> None:
        while not self.halt.is_set():
            try:
                with Routed(self._house) as client:
                    self._work(client)
            except GONE as error:
                self.lost.append(repr(error))
                time.sleep(0.1)

    def _work(self, client: Routed) -> None:
        if self._open is not None:
            try:
                client.end(self._open, commit=False)  # it may have been committed: nobody knows
            except Refused:
                pass
            self._open = None
        consumers = [client.subscribe(f"in-partition-{each}", "moves") for each in range(PARTITIONS)]
        while not self.halt.is_set():
            partition = self._dice.randrange(PARTITIONS)
            first = consumers[partition].receive(0.5)
            if first is None:
                continue
            got = [first]
            while len(got) < OF_EACH and (more := consumers[partition].receive(0.05)) is not None:
                got.append(more)
            txn = self._open = client.begin(self._dice.randrange(COORDINATORS), timeout_ms=60_000)
            client.add_subscription(txn, f"in-partition-{partition}", "moves")
            targets: dict[int, list[bytes]] = {}
            for each in got:
                targets.setdefault(int(each.value) % PARTITIONS, []).append(b"moved:" + each.value)
            client.add_topic(txn, *(f"out-partition-{each}" for each in targets))
            for each, moved in targets.items():
                if self._dice.random() < 0.5:
                    client.produce_batch(f"out-partition-{each}", moved, txn)
                else:
                    client.produce(f"out-partition-{each}", moved, txn)
            consumers[partition].acknowledge(*(each.place for each in got), txn=txn)
            commits = (self.committed + self.aborted) % 5 != 4
            client.end(txn, commit=commits)
            self._open = None
            self.committed += commits
            self.aborted += not commits


def test_each_message_is_moved_once_across_workers_whichever_is_killed(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    with House(tmp_path / "data", 3, "--set", "transactionCoordinatorEnabled=true") as house:
        make_topic(house.address, "in", PARTITIONS)
        make_topic(house.address, "out", PARTITIONS)
        house.until_shared("in")
        with Routed(house) as client:
            places = [f"{name}-partition-{each}" for name in ("in", "out") for each in range(PARTITIONS)]
            coordinators = [f"{ASSIGN}-partition-{each}" for each in range(COORDINATORS)]
            assert len({client.address_of(each) for each in places + coordinators}) > 1
        _patiently(house, _subscribe_all)
        producer = Producer(
            {"bootstrap.servers": house.address, "batch.num.messages": 1}
        )  # an entry for each
        for number in range(MESSAGES):
            producer.produce("in", b"%d" % number, partition=number % PARTITIONS)
            producer.poll(0)
        assert producer.flush(SECONDS) == 0
        movers = [Mover(house, random.Random(seed + number)) for number in range(MOVERS)]
        for each in movers:
            each.start()

        def moved() -> int:
            return sum(each.committed for each in movers) * OF_EACH

        for worker in (1, 2):
            before = moved()
            _until(lambda before=before: moved() > before + MESSAGES // 8, movers, seed)
            house.until_again(worker, house.send(worker, signal.SIGKILL))
        assert moved() < MESSAGES, "there was nothing left to do"
        _until(
            lambda: len(values(house.address, "out", COMMITTED, PARTITIONS)) >= MESSAGES,
            movers,
            seed,
            pause_s=2,
        )
        for each in movers:
            each.halt.set()
        for each in movers:
            each.join(SECONDS)
            assert not each.is_alive(), f"seed {seed}: one hangs"
        _until(lambda: all(_is_decided(house.address, each) for each in range(PARTITIONS)), movers, seed)
        found = values(house.address, "out", COMMITTED, PARTITIONS)
        wanted = sorted(b"moved:%d" % number for number in range(MESSAGES))
        assert sorted(found) == wanted, (
            f"seed {seed}: {len(found)} values, {len(set(found))} of them different"
        )
        seen = _patiently(house, _read_all)
        assert sorted(seen) == wanted, f"seed {seed}: {len(seen)} values for Pulsar"
        assert sum(each.aborted for each in movers) > 0
        assert sum(len(each.lost) for each in movers) > 0
        assert house.end() == 0
    assert "Traceback" not in house.log.read_text()


def test_transactions_outlive_the_workers_that_have_their_topics_and_coordinators(tmp_path: Path) -> None:
    with House(tmp_path / "data", 3, "--set", "transactionCoordinatorEnabled=true") as house:
        for name in ("in", "out"):
            make_topic(house.address, name, 8)
        _patiently(
            house, lambda client: client.end(client.begin(0))
        )  # from then on coordinators keep something
        number, index, into = _apart(house)
        source = f"in-partition-{index}"
        with Routed(house) as client:
            client.subscribe(source, "s").close()
            client.produce(source, [b"0", b"1", b"2", b"3"])
            (committed,) = _acknowledged(client, number, source, into, 1)
            client.end(committed)
        _kill(house, "in", index)  # before what was acknowledged is in its cursors
        number, _, into = _apart(house, index)
        with Routed(house) as client:
            opened = _acknowledged(client, number, source, into, 2)
        _kill(house, "in", index)
        with Routed(house) as client:
            again = client.subscribe(source, "s").receive(60)
            assert again is not None
            assert again.value == b"3", "what transactions have acknowledged comes again"
            for txn in opened:  # also where the topic is another worker's by now, it takes what they write
                client.produce(into, [b"of %d behind" % txn[1]], txn)
        _kill(house, "__transaction_state", number)
        with Routed(house) as client:
            client.end(opened[0])
            client.end(opened[1], commit=False)
            consumer = client.subscribe(source, "s")
            left = [consumer.receive(60), consumer.receive(60)]
            assert sorted(each.value for each in left if each is not None) == [b"2", b"3"]
            assert consumer.receive(0.5) is None
        _until(lambda: all(_is_decided(house.address, each) for each in range(8)), [], 0)
        found = values(house.address, "out", COMMITTED, 8)
        assert sorted(found) == sorted(
            b"of %d %s" % (txn[1], when)
            for txn, when in ((committed, b"before"), (opened[0], b"before"), (opened[0], b"behind"))
        )
        assert house.end() == 0
    assert "Traceback" not in house.log.read_text()


def test_a_reader_behind_a_transaction_of_pulsars_is_not_told_that_records_were_lost(tmp_path: Path) -> None:
    """It tells the new leader the epoch of the last batch that it got, and that is the transaction's marker."""
    with House(tmp_path / "data", 2, "--set", "transactionCoordinatorEnabled=true") as house:
        make_topic(house.address, "in", 1)
        with Routed(house) as client:
            client.produce("in-partition-0", [b"before"])
            for commits in (True, False):
                txn = client.begin(0)
                client.add_topic(txn, "in-partition-0")
                client.produce("in-partition-0", [b"%d" % commits], txn)
                client.end(txn, commit=commits)
        _until(lambda: _is_decided(house.address, 0, "in"), [], 0)
        reader = Consumer(
            {
                "bootstrap.servers": house.address,
                "group.id": "reads",
                "isolation.level": COMMITTED,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "topic.metadata.refresh.interval.ms": 500,
            }
        )
        reader.assign([TopicPartition("in", 0, 0)])
        assert _read(reader) == [b"before", b"1"]  # and has come to the end, behind the second marker
        worker = house.leaders("in")[0] + 1
        house.until_again(worker, house.send(worker, signal.SIGKILL))
        _until(lambda: house.leaders("in")[0] >= 0, [], 0)
        producer = Producer({"bootstrap.servers": house.address})
        producer.produce("in", b"behind")
        assert producer.flush(SECONDS) == 0
        assert _read(reader) == [b"behind"]
        reader.close()


def _read(reader: Consumer) -> list[bytes]:
    """Return what comes until there is something, and then the end; an error is none of those."""
    found: list[bytes] = []
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        for message in reader.consume(100, 0.2):
            error = message.error()
            if error is None:
                found.append(message.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                if found:
                    return found
            else:
                assert error.code() != KafkaError._AUTO_OFFSET_RESET, error
    raise AssertionError(f"only {found} came")


def _settled(house: House) -> dict[str, dict[int, int]]:
    """Return who leads what once all workers have had their part for a while: one that comes takes some from others."""
    topics = ("in", "out", "__transaction_state")
    until_s = time.monotonic() + SECONDS
    found: list[dict[str, dict[int, int]]] = []
    # Also once more than one leads: those that came later have yet to be given theirs before.
    while len(found) < 20 or any(
        min(leaders.values(), default=-1) < 0 or len(set(leaders.values())) < 2
        for leaders in found[0].values()
    ):
        assert time.monotonic() < until_s, found[-1:]
        time.sleep(0.1)
        house.until_all_serve()
        now = {topic: house.leaders(topic) for topic in topics}
        found = [*found, now] if found[:1] == [now] else [now]
    return found[0]


def _apart(house: House, of: int | None = None) -> tuple[int, int, str]:
    """Return a coordinator, a partition to read (``of``, if it is given) and one to write to on other workers."""
    leaders = _settled(house)
    for number, keeps in leaders["__transaction_state"].items():
        read = [index for index, leader in leaders["in"].items() if leader != keeps and of in (None, index)]
        write = [index for index, leader in leaders["out"].items() if leader != keeps]
        if read and write:
            return number, read[0], f"out-partition-{write[0]}"
    raise AssertionError(f"all is one worker's: {leaders}")


def _acknowledged(client: Routed, number: int, source: str, into: str, count: int) -> list[Txn]:
    """Begin transactions of which each has acknowledged a message and written one."""
    txns = [client.begin(number) for _ in range(count)]
    consumer = client.subscribe(source, "s")
    for txn in txns:
        client.add_subscription(txn, source, "s")
        client.add_topic(txn, into)
        client.produce(into, [b"of %d before" % txn[1]], txn)
        got = consumer.receive(60)
        assert got is not None
        consumer.acknowledge(got.place, txn=txn)
    return txns


def _kill(house: House, topic: str, partition: int) -> None:
    """Kill the worker that has a partition, and wait until it is there again, and has its part."""
    worker = house.leaders(topic)[partition] + 1
    house.until_again(worker, house.send(worker, signal.SIGKILL))
    _settled(house)


def _patiently(house: House, do: Callable[[Routed], T]) -> T:
    """Return what a client gets, a new one each time a partition goes to another worker."""
    until = time.monotonic() + SECONDS
    while True:
        try:
            with Routed(house) as client:
                return do(client)
        except (OSError, EOFError, Refused):
            assert time.monotonic() < until
            time.sleep(0.1)


def _subscribe_all(client: Routed) -> None:
    for each in range(PARTITIONS):
        client.subscribe(f"in-partition-{each}", "moves").close()


def _read_all(client: Routed) -> list[bytes]:
    """Read all that was moved, and check that nothing is left to move."""
    name = f"reads {time.monotonic_ns()}"
    seen = []
    for each in range(PARTITIONS):
        consumer = client.subscribe(f"out-partition-{each}", name)
        while (message := consumer.receive(2 if len(seen) < MESSAGES else 0.2)) is not None:
            seen.append(message.value)
        assert client.subscribe(f"in-partition-{each}", "moves").receive(0.5) is None, "something is left"
    return seen


def _is_decided(address: str, partition: int, topic: str = "out") -> bool:
    return ends(address, topic, COMMITTED, partition) == ends(address, topic, UNCOMMITTED, partition)


def _until(done: object, movers: list[Mover], seed: int, pause_s: float = 0.1) -> None:
    until = time.monotonic() + SECONDS
    while not done():  # type: ignore[operator]
        assert time.monotonic() < until, (
            seed,
            [(each.committed, each.aborted, each.lost[-3:]) for each in movers],
        )
        time.sleep(pause_s)
