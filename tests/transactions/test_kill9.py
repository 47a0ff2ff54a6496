"""The broker killed amid transactions, again and again: each is there whole or not at all, as its producer was told."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from tests.crash.test_kill9 import Broker
from tests.transactions.clients import COMMITTED, UNCOMMITTED, ends, make_topic, values

KILLS = int(os.environ.get("MAGNETAR_KILLS", "12")) // 2
PRODUCERS, PARTITIONS, RECORDS = 3, 2, 20
SECONDS = 120
TOPIC = "killed"


class Load(threading.Thread):
    """One producer, which writes transactions and notes what it was told of each."""

    def __init__(self, number: int, address: str) -> None:
        super().__init__(daemon=True)
        self.number = number
        self.committed: set[int] = set()
        self.aborted: set[int] = set()
        self.unknown: set[int] = set()
        self.halt = threading.Event()
        self._address = address

    def run(self) -> None:
        made, transaction = self._producer(), 0
        while not self.halt.is_set():
            try:
                self._write(made, transaction)
            except KafkaException as error:
                told = error.args[0]
                if not told.txn_requires_abort() or not self._aborted(made, transaction):
                    self.unknown.add(transaction)
                    made = self._producer()
            transaction += 1

    def _write(self, made: Producer, transaction: int) -> None:
        made.begin_transaction()
        for record in range(RECORDS):
            made.produce(
                TOPIC, b"%d:%d:%d" % (self.number, transaction, record), partition=record % PARTITIONS
            )
        if transaction % 5 == 4:
            made.flush(SECONDS)
            made.abort_transaction(SECONDS)
            self.aborted.add(transaction)
        else:
            made.commit_transaction(SECONDS)
            self.committed.add(transaction)

    def _aborted(self, made: Producer, transaction: int) -> bool:
        try:
            made.abort_transaction(SECONDS)
        except KafkaException:
            return False
        self.aborted.add(transaction)
        return True

    def _producer(self) -> Producer:
        made = Producer(
            {
                "bootstrap.servers": self._address,
                "transactional.id": f"load-{self.number}",
                "linger.ms": 1,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "error_cb": lambda error: None,
                "log_level": 0,
            }
        )
        while True:
            try:
                made.init_transactions(SECONDS)
                return made
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise


@pytest.mark.slow
def test_transactions_are_whole_whenever_the_broker_is_killed(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    dice = random.Random(seed)
    broker = Broker(tmp_path / "data")
    broker.start()
    make_topic(broker.address, TOPIC, PARTITIONS)
    loads = [Load(number, broker.address) for number in range(PRODUCERS)]
    for load in loads:
        load.start()
    for _ in range(KILLS):
        time.sleep(dice.uniform(0.2, 1.5))
        broker.kill()
        broker.start()
    time.sleep(0.5)
    for load in loads:
        load.halt.set()
    for load in loads:
        load.join(3 * SECONDS)
        assert not load.is_alive(), f"seed {seed}: producer {load.number} hangs"
    _all_decided(broker.address)
    found = values(broker.address, TOPIC, COMMITTED, PARTITIONS)
    counts = Counter(tuple(map(int, value.split(b":")[:2])) for value in found)
    assert len(set(found)) == len(found), f"seed {seed}: doubled"
    for load in loads:
        assert load.committed
        for transaction in load.committed:
            assert counts[load.number, transaction] == RECORDS, f"seed {seed}: lost of {transaction}"
        for transaction in load.aborted:
            assert counts[load.number, transaction] == 0, f"seed {seed}: aborted {transaction}"
        for transaction in load.unknown:
            assert counts[load.number, transaction] in (0, RECORDS), f"seed {seed}: torn {transaction}"
    assert broker.stop() == 0
    # The same after a clean restart, which reads the aborted ones from what was kept beside the logs.
    broker.start()
    assert Counter(values(broker.address, TOPIC, COMMITTED, PARTITIONS)) == Counter(found)
    assert broker.stop() == 0


def _all_decided(address: str) -> None:
    """Wait until no partition has a transaction open; those of producers that are gone are aborted by the next."""
    until = time.monotonic() + SECONDS
    for partition in range(PARTITIONS):
        while ends(address, TOPIC, COMMITTED, partition) != ends(address, TOPIC, UNCOMMITTED, partition):
            assert time.monotonic() < until, f"partition {partition} has a transaction open"
            time.sleep(0.1)
