"""A group with members goes over from the classic protocol to the consumer protocol and back, one member at a time,
while records come and the broker dies (KIP-848)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.end_to_end.test_consumer_protocol import QUICK, assigned, commit, consumer, fill, produce, until
from tests.process import BrokerProcess

RECORDS = 24_000
PARTITIONS = 12
MEMBERS = 4
SOON = (*QUICK, "--set", "group.initial.rebalance.delay.ms=100")


class Load:
    """Records that are produced in steps, each in the background while a member is exchanged."""

    def __init__(self, address: str, steps: int) -> None:
        self._address = address
        self._size = RECORDS // steps
        self._done = 0
        self._thread: threading.Thread | None = None

    def go_on(self) -> None:
        self.finish()
        numbers = range(self._done, self._done + self._size)
        self._done += self._size
        self._thread = threading.Thread(target=produce, args=(self._address, "moved", numbers, PARTITIONS))
        self._thread.start()

    def finish(self) -> int:
        if self._thread is not None:
            self._thread.join()
        return self._done


def member(address: str, protocol: str, strategy: str) -> Consumer:
    classic = {
        "heartbeat.interval.ms": 300,
        "session.timeout.ms": 6000,
        "partition.assignment.strategy": strategy,
    }
    made = consumer(
        address,
        "moved",
        **{
            "group.protocol": protocol,
            "enable.auto.commit": False,
            **(classic if protocol == "classic" else {}),
        },
    )
    made.subscribe(["moved"])
    return made


def is_even(crew: list[Consumer]) -> bool:
    return assigned(crew) == list(range(PARTITIONS)) and {len(each.assignment()) for each in crew} == {
        PARTITIONS // len(crew)
    }


def told(address: str) -> Any:
    admin = AdminClient({"bootstrap.servers": address})
    return admin.describe_consumer_groups(["moved"])["moved"].result()


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_moves_one_member_at_a_time(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, strategy: str
) -> None:
    broker = start_broker(tmp_path / "data", *SOON)
    address = broker.address
    fill(address, "moved", 0, PARTITIONS)
    seen: Counter[bytes] = Counter()
    load = Load(address, 1 + 2 * MEMBERS)
    load.go_on()
    crew = [member(address, "classic", strategy) for _ in range(MEMBERS)]
    until(lambda: is_even(crew), crew, seen)
    assert told(address).type.name == "CLASSIC"
    for protocol in ("consumer", "classic"):
        for index in range(MEMBERS):
            load.go_on()
            commit_all(crew)
            crew.pop(0).close()
            crew.append(member(address, protocol, strategy))
            if index == 1:  # in the middle, with members of both protocols
                broker.kill()
                broker = start_broker(tmp_path / "data", *SOON, kafka=address)
            until(lambda: is_even(crew) and told(address).state.name == "STABLE", crew, seen)
            group = told(address)
            all_classic = protocol == "classic" and index == MEMBERS - 1
            assert (group.type.name, len(group.members)) == (
                "CLASSIC" if all_classic else "CONSUMER",
                MEMBERS,
            )
    whole = load.finish()

    def kept() -> int:
        commit_all(crew)
        told = crew[0].committed([TopicPartition("moved", index) for index in range(PARTITIONS)], 30)
        return sum(each.offset for each in told)

    # What the owner before had seen, and not committed, is read again.
    until(lambda: len(seen) == whole and kept() == whole, crew, seen)
    for each in crew:
        each.close()
    assert set(seen) == {b"%d" % number for number in range(whole)}


def commit_all(crew: list[Consumer]) -> None:
    for each in crew:
        commit(each)
