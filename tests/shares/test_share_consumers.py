"""Share groups with a stock client, by volume: members that are killed, and a broker that is."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.process import BrokerProcess, environment

RECORDS = 20_000
PARTITIONS = 4
PATIENCE_S = 60
QUICK = (
    "--set",
    "share.auto.offset.reset=earliest",
    "--set",
    "group.share.heartbeat.interval.ms=200",
    "--set",
    "group.share.assignment.interval.ms=0",
    "--set",
    "group.share.session.timeout.ms=6000",
    "--set",
    "group.share.record.lock.duration.ms=2000",
)


class Worker:
    """A member that is a process of its own; see `tests.shares.worker`."""

    def __init__(self, address: str, group: str, topic: str, kind: str = "worker") -> None:
        self.kind = kind
        self.killed: float | None = None
        self.got: list[tuple[float, list[int]]] = []
        self.acked: list[tuple[float, list[int]]] = []
        self.failures: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"tests.shares.{kind}", address, group, topic],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                said = json.loads(line)
            except ValueError:
                return  # it was killed amid a line
            if "got" in said:
                self.got.append((said["at"], said["got"]))
            elif "acked" in said:
                self.acked.append((said["at"], said["acked"]))
            else:
                self.failures.append(said["failed"])

    @property
    def done(self) -> set[int]:
        """What it was told is acknowledged."""
        return {number for _, numbers in self.acked for number in numbers}

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self.killed = time.monotonic()
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._reader.join()


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose share groups begin with the first record, and whose members hear of changes soon."""
    with BrokerProcess(tmp_path_factory.mktemp("quick") / "data", *QUICK) as process:
        yield process


def fill(
    address: str, topic: str, records: int = RECORDS, partitions: int = PARTITIONS, *, make: bool = True
) -> None:
    if make:
        create(address, topic, partitions)
    produce(address, topic, range(records), partitions)


def create(address: str, topic: str, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result()


def produce(address: str, topic: str, numbers: Iterable[int], partitions: int = PARTITIONS) -> None:
    producer = Producer({"bootstrap.servers": address, "linger.ms": 5, "batch.num.messages": 97})
    for number in numbers:
        while True:
            try:
                producer.produce(topic, value=b"%d" % number, partition=number % partitions)
                break
            except BufferError:  # its queue is full
                producer.poll(1)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0


def until(done: Callable[[], bool], what: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < end, what()
        time.sleep(0.02)


def check_none_came_again(crew: Iterable[Worker]) -> None:
    """Nothing was delivered to anybody after somebody had been told that it was acknowledged."""
    since: dict[int, float] = {}
    for worker in crew:
        for at, numbers in worker.acked:
            for number in numbers:
                since[number] = min(at, since.get(number, at))
    again = [
        number
        for worker in crew
        for at, numbers in worker.got
        for number in numbers
        if at > since.get(number, at) + 0.25  # a poll takes some time to return what came before
    ]
    assert not again, f"{len(again)} records came again after they were acknowledged: {again[:5]}"


def test_members_and_the_broker_are_killed_and_every_record_is_acknowledged(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = start_broker(tmp_path / "data", *QUICK)
    address = broker.address
    fill(address, "work")
    crew = [Worker(address, "crew", "work") for _ in range(2)]

    def done() -> set[int]:
        return set().union(*(worker.done for worker in crew))

    until(
        lambda: all(len(worker.done) > RECORDS // 20 for worker in crew), lambda: [len(w.done) for w in crew]
    )
    crew[0].kill()
    crew.append(Worker(address, "crew", "work"))
    broker.kill()
    killed = len(done())
    broker = start_broker(tmp_path / "data", *QUICK, kafka=address)
    records = RECORDS + RECORDS // 4  # however fast they were, there is something left to do
    produce(address, "work", range(RECORDS, records))
    # What the killed one had, and what was asked of the killed broker, may be acknowledged though nobody was told.
    until(lambda: lag(address, "crew", "work") == 0, lambda: (lag(address, "crew", "work"), len(done())))
    for worker in crew[1:]:
        worker.end()
    assert killed < records, "there was nothing left to do"
    told = done()
    had = {number for worker in crew for _, numbers in worker.got for number in numbers}
    assert had == set(range(records))
    assert len(told) > records * 0.8
    check_none_came_again(crew)


def lag(address: str, group: str, topic: str) -> int:
    """Return what is left for a group, as the broker tells operators."""
    from magnetar.wire.kafka.messages.describe_share_group_offsets_request import (
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsRequestGroup,
        DescribeShareGroupOffsetsRequestTopic,
    )
    from tests.hostile.client import Wire

    host, _, port = address.rpartition(":")
    asked = DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=list(range(PARTITIONS)))
    with Wire((host, int(port))) as wire:
        (found,) = wire.ask(
            DescribeShareGroupOffsetsRequest(
                groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=[asked])]
            )
        ).groups
    if found.error_code:
        return -1
    return sum(row.lag for row in found.topics[0].partitions)


def member(address: str, group: str, **options: object) -> ShareConsumer:
    return ShareConsumer({"bootstrap.servers": address, "group.id": group, **options})
