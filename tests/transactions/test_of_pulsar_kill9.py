"""Consume, transform, produce with Pulsar's transactions while the broker is killed: each message is there once."""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path

import pytest

from magnetar.wire.pulsar.pulsar_pb2 import CommandSubscribe
from tests.process import BrokerProcess
from tests.transactions.clients import COMMITTED, UNCOMMITTED, ends, make_topic, values
from tests.transactions.pulsar_client import Client, Refused, Txn

KILLS = int(os.environ.get("MAGNETAR_KILLS", "12")) // 4
MESSAGES, OF_EACH, PARTITIONS, WORKERS = 20_000, 100, 4, 2
OPTIONS = "--pulsar", "127.0.0.1:0", "--set", "transactionCoordinatorEnabled=true"
SECONDS = 240
GONE = OSError, EOFError, AssertionError


class Served:
    """The broker that runs now, on its data directory."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self.process = BrokerProcess(data, *OPTIONS)

    def restart(self) -> None:
        self.process.kill()
        self.process = BrokerProcess(self._data, *OPTIONS)


class Worker(threading.Thread):
    """Moves messages of all partitions from one topic to another, so many in a transaction; aborts every fifth."""

    def __init__(self, number: int, served: Served, dice: random.Random) -> None:
        super().__init__(daemon=True)
        self.number = number
        self.committed = self.aborted = self.lost = 0
        self.halt = threading.Event()
        self._served = served
        self._dice = dice
        self._open: Txn | None = None

    def run(self) -> None:
        while not self.halt.is_set():
            try:
                with Client(self._served.process) as client:
                    self._work(client)
            except GONE:
                self.lost += 1
                time.sleep(0.1)

    def _work(self, client: Client) -> None:
        if self._open is not None:
            try:
                client.end(self._open, commit=False)  # it may have been committed: nobody knows
            except Refused:
                pass
            self._open = None
        consumers = [
            client.subscribe(f"in-partition-{each}", "moves", CommandSubscribe.Shared)
            for each in range(PARTITIONS)
        ]
        while not self.halt.is_set():
            partition = self._dice.randrange(PARTITIONS)
            first = client.receive(consumers[partition], 0.5)
            if first is None:
                continue
            got = [first]
            while len(got) < OF_EACH and (more := client.receive(consumers[partition], 0.05)) is not None:
                got.append(more)
            txn = self._open = client.begin(self._dice.randrange(16), timeout_ms=60_000)
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
            client.acknowledge(consumers[partition], *(each.place for each in got), txn=txn)
            commits = (self.committed + self.aborted) % 5 != 4
            client.end(txn, commit=commits)
            self._open = None
            self.committed += commits
            self.aborted += not commits


@pytest.mark.slow
def test_each_message_is_moved_once_whenever_the_broker_is_killed(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    dice = random.Random(seed)
    served = Served(tmp_path / "data")
    for topic in ("in", "out"):
        make_topic(served.process.address, topic, PARTITIONS)
    with Client(served.process) as client:
        for each in range(PARTITIONS):
            client.close_consumer(client.subscribe(f"in-partition-{each}", "moves", CommandSubscribe.Shared))
            sent = [b"%d" % number for number in range(each, MESSAGES, PARTITIONS)]
            for start in range(0, len(sent), 500):
                client.produce(f"in-partition-{each}", sent[start : start + 500])
    workers = [Worker(number, served, random.Random(seed + number)) for number in range(WORKERS)]
    for worker in workers:
        worker.start()
    wanted = sorted(b"moved:%d" % number for number in range(MESSAGES))
    for kill in range(KILLS):
        _until(
            lambda kill=kill: (
                sum(each.committed for each in workers) * OF_EACH > kill * MESSAGES // KILLS // 2
            )
        )
        time.sleep(dice.uniform(0, 0.3))
        served.restart()
    until = time.monotonic() + SECONDS
    while (found := values(served.process.address, "out", COMMITTED, PARTITIONS)) and len(found) < MESSAGES:
        assert time.monotonic() < until, f"seed {seed}: {len(found)} of {MESSAGES}"
        time.sleep(0.5)
    for worker in workers:
        worker.halt.set()
    for worker in workers:
        worker.join(SECONDS)
        assert not worker.is_alive(), f"seed {seed}: worker {worker.number} hangs"
    _until(lambda: all(_is_decided(served.process.address, each) for each in range(PARTITIONS)))
    found = values(served.process.address, "out", COMMITTED, PARTITIONS)
    assert sorted(found) == wanted, f"seed {seed}: {len(found)} values, {len(set(found))} of them different"
    with Client(served.process) as client:
        seen = []
        for each in range(PARTITIONS):
            consumer = client.subscribe(f"out-partition-{each}", "reads")
            while (message := client.receive(consumer, 2 if len(seen) < MESSAGES else 0.2)) is not None:
                seen.append(message.value)
            moved = client.subscribe(f"in-partition-{each}", "moves", CommandSubscribe.Shared)
            assert client.receive(moved, 0.3) is None, f"seed {seed}: something is left"
    assert sorted(seen) == wanted, f"seed {seed}: {len(seen)} values for Pulsar"
    assert sum(worker.aborted for worker in workers) > 0
    assert sum(worker.lost for worker in workers) >= KILLS
    served.process.kill()


def _is_decided(address: str, partition: int) -> bool:
    return ends(address, "out", COMMITTED, partition) == ends(address, "out", UNCOMMITTED, partition)


def _until(done: object) -> None:
    until = time.monotonic() + SECONDS
    while not done():  # type: ignore[operator]
        assert time.monotonic() < until
        time.sleep(0.05)
