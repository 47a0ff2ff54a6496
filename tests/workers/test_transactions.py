"""Transactions whose coordinator, partitions and groups are different workers', while one of these is killed."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from magnetar.wire.kafka.messages.find_coordinator_request import FindCoordinatorRequest
from tests.hostile.client import Wire
from tests.workers.house import PARTITIONS, House
from tests.workers.load import PATIENCE_S

pytestmark = [pytest.mark.slow]
PER_TRANSACTION = 10


class Sender:
    """Sends the same number to all partitions in each transaction, with the offset of a group; aborts every third."""

    def __init__(self, servers: str, topic: str, name: str) -> None:
        self.topic = topic
        self.name = name
        self.committed: list[int] = []
        self.unsure: list[int] = []
        """Of which the client was not told whether they were."""
        self._servers = servers
        self._number = 0
        self._begin()
        self._group = Consumer({"bootstrap.servers": servers, "group.id": f"{name}-group"})

    def _begin(self) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": self._servers,
                "transactional.id": self.name,
                "transaction.timeout.ms": 30_000,
                "linger.ms": 1,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                # Otherwise librdkafka 2.16 forgets all brokers once the only one that it is connected to goes, and
                # waits for good for one of them that coordinated the group.
                "metadata.recovery.strategy": "none",
            }
        )
        self._producer.init_transactions(PATIENCE_S)

    def step(self) -> None:
        self._number += 1
        number = self._number
        self._producer.begin_transaction()
        try:
            for partition in range(PARTITIONS):
                for _ in range(PER_TRANSACTION):
                    self._producer.produce(self.topic, f"{self.name} {number}".encode(), partition=partition)
            if not number % 3:
                self._producer.flush(PATIENCE_S)
                self._producer.abort_transaction(PATIENCE_S)
                return
            offsets = [TopicPartition(self.topic, 0, number)]
            group = self._group.consumer_group_metadata()
            self._producer.send_offsets_to_transaction(offsets, group, PATIENCE_S)
            self._producer.commit_transaction(PATIENCE_S)
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                self._producer.abort_transaction(PATIENCE_S)
                return
            self.unsure.append(number)
            self._begin()
        else:
            self.committed.append(number)

    def offset(self) -> int:
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                (found,) = self._group.committed([TopicPartition(self.topic, 0)], timeout=10)
                return int(found.offset)
            except KafkaException:
                assert time.monotonic() < until


def committed(servers: str, topic: str) -> list[list[str]]:
    """Read a topic with read_committed up to its ends: values by partition."""
    client = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "all",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    client.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(PARTITIONS)])
    found: list[list[str]] = [[] for _ in range(PARTITIONS)]
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        for message in client.consume(1000, 0.2):
            if message.error() is None:
                found[message.partition()].append(message.value().decode())
            else:
                ended.add(message.partition())
    client.close()
    return found


def test_transactions_across_workers_are_whole_also_when_one_is_killed(tmp_path: Path) -> None:
    with House(tmp_path / "data", 2) as house:
        house.make_topic("t")
        house.until_shared("t")
        senders = [Sender(house.address, "t", f"s{number}") for number in range(4)]
        for round_ in range(24):
            if round_ in (8, 16):
                dead = house.send(1 + round_ // 16, signal.SIGKILL)
            for each in senders:
                each.step()
        house.until_again(2, dead)
        for each in senders:
            each.step()
            each._producer.flush(PATIENCE_S)
        found = committed(house.address, "t")
        for each in senders:
            assert len(each.committed) > 8
            allowed = {f"{each.name} {number}" for number in (*each.committed, *each.unsure)}
            for numbers in found:
                mine = [value for value in numbers if value.startswith(f"{each.name} ")]
                assert set(mine) <= allowed
                assert {value: mine.count(value) for value in mine} == dict.fromkeys(mine, PER_TRANSACTION)
                assert [int(value.split()[1]) for value in mine] == sorted(
                    int(value.split()[1]) for value in mine
                )
                assert {f"{each.name} {number}" for number in each.committed} <= set(mine)
            assert each.offset() in ({each.committed[-1]} | {*each.unsure})
        assert house.end() == 0
    assert "Traceback" not in house.log.read_text()


def test_a_group_may_have_its_first_offsets_ever_by_a_transaction_of_another_worker(tmp_path: Path) -> None:
    with House(tmp_path / "data", 2) as house:
        house.make_topic("t")
        house.until_shared("t")
        name = ""
        while not name:  # the second worker is given its part of both a moment later
            of_ids = coordinators(house, 1, [f"s{number}" for number in range(16)])
            of_groups = coordinators(house, 0, [f"{each}-group" for each in of_ids])
            name = next((each for each in of_ids if of_ids[each] != of_groups[f"{each}-group"]), "")
        sender = Sender(house.address, "t", name)
        sender.step()
        assert (sender.committed, sender.unsure) == ([1], [])
        assert sender.offset() == 1
        assert house.end() == 0


def coordinators(house: House, key_type: int, keys: list[str]) -> dict[str, int]:
    """Return the nodes that coordinate groups (0) or transactions (1), once each has one; no topic is made by that."""
    host, _, port = house.address.rpartition(":")
    with Wire((host, int(port))) as wire:
        while True:
            found = wire.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)).coordinators
            if not any(each.error_code for each in found):
                return {each.key: each.node_id for each in found}
            time.sleep(0.05)
