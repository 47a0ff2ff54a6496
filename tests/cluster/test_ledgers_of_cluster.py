"""``magnetar ledger verify`` and ``repair`` on real bookies whose disks, or whose metadata, were damaged on purpose."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.cluster.brokers import BrokerProcess, bootstrap, make_topic
from tests.cluster.servers import Cluster, Server, class_path

class_path()  # skips the module where BookKeeper cannot be run
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

from magnetar.ledger.bookkeeper.closed import metadata_path  # noqa: E402
from magnetar.ledger.formats.info import decode_info, path_of  # noqa: E402

RECORDS = 20_000
_TRIES = count(1)
_KEPT_IN = ("ledgers/**/*.log", "journal/**/*.txn")


class Told(NamedTuple):
    status: int
    value: dict[str, Any]
    error: str

    def findings(self, topic: str, gravity: str) -> list[dict[str, Any]]:
        rows = self.value["findings"] if "findings" in self.value else self.value["left"]
        return [each for each in rows if topic in each["file"] and each["gravity"] == gravity]


class House(NamedTuple):
    cluster: Cluster
    broker: BrokerProcess
    directory: Path

    def magnetar(self, *arguments: str) -> Told:
        command = [str(Path(sys.executable).parent / "magnetar"), "ledger", *arguments]
        command += ["--config", str(self.broker.config), "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        try:
            return Told(done.returncode, json.loads(done.stdout), done.stderr)
        except ValueError:
            return Told(done.returncode, {}, done.stdout + done.stderr)

    def verified(self) -> Told:
        """Return what ``verify`` tells, once it reaches all bookies: they have only just been started again."""
        end = time.monotonic() + 120
        while True:
            told = self.magnetar("verify")
            waits = any(each["do"].startswith("start the bookies") for each in told.value.get("findings", ()))
            if not waits or time.monotonic() > end:
                return told

    def written(self, name: str) -> str:
        """Return a new topic whose only partition holds the numbers, in ledgers of 200 entries, all of them closed."""
        topic = f"{name}{next(_TRIES)}"  # a second try of a test does not find what the first one did
        self.broker.end()  # that of a first try of the test
        self.broker.start()
        make_topic(AdminClient({"bootstrap.servers": bootstrap([self.broker])}), topic, 1)
        producer = Producer(
            {
                "bootstrap.servers": bootstrap([self.broker]),
                "batch.num.messages": 20,
                "linger.ms": 5,
                "enable.idempotence": True,
            }
        )
        for number in range(RECORDS):
            producer.produce(topic, value_of(topic, number))
            producer.poll(0)
            if number % 2000 == 0:
                producer.flush()
        assert producer.flush(120) == 0
        self.broker.end()
        return topic

    def read(self, topic: str, wanted: int) -> dict[int, bytes]:
        """Return what a stock consumer finds, by offset."""
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap([self.broker]),
                "group.id": topic,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: dict[int, bytes] = {}
        try:
            while len(found) < wanted:
                for each in consumer.consume(1000, 0.5):
                    if not each.error():
                        found[each.offset()] = each.value()
            return found
        finally:
            consumer.close()

    def ledgers(self, topic: str) -> list[Any]:
        from kazoo.client import KazooClient

        client = KazooClient(self.cluster.hosts)
        client.start()
        try:
            name = f"public/default/persistent/{topic}-partition-0"
            return decode_info(client.get("/house" + path_of(name))[0]).ledgers
        finally:
            client.stop()
            client.close()

    def damage(self, needle: bytes, bookies: Sequence[Server]) -> int:
        """Flip a byte behind ``needle`` on the disks of the bookies; return on how many of them it was.

        In their journals too: a bookie that starts plays its journal again, and would have the entry whole.
        """
        with self.bookies_away():
            return sum(
                any([flip(path, needle) for kind in _KEPT_IN for path in each.log.parent.glob(kind)])  # noqa: C419
                for each in bookies
            )

    def worn(self, topic: str, needle: bytes) -> Told:
        """Return what ``verify`` tells when one of the copies that count is damaged.

        A bookie that was slow once has given its place to another one, and keeps a copy that nobody asks for.
        """
        for each in self.cluster.bookies:
            self.damage(needle, [each])
            told = self.verified()
            if told.findings(topic, "wear") or told.status:
                return told
        raise AssertionError("no copy that counts was damaged")

    @contextmanager
    def bookies_away(self) -> Iterator[None]:
        """End all bookies in order, so that their entry logs have all that they have, and start them again."""
        for each in self.cluster.bookies:
            each.send(signal.SIGTERM)
        for each in self.cluster.bookies:
            assert each._process is not None
            each._process.wait()
        yield
        for each in self.cluster.bookies:
            each.start()


def prefix_of(topic: str, number: int) -> bytes:
    return f"{topic}:{number:08d}:".encode()


def value_of(topic: str, number: int) -> bytes:
    return prefix_of(topic, number) + b"v" * 40


def flip(path: Path, needle: bytes) -> bool:
    data = bytearray(path.read_bytes())
    at, found = data.find(needle), False
    while at >= 0:
        data[at + len(needle)] ^= 0x01
        found = True
        at = data.find(needle, at + 1)
    if found:
        path.write_bytes(data)
    return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # A bookie that loses its session ends, and then it is not what these tests are about.
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), session_ms=40_000)
    cluster.start()
    yield cluster
    cluster.kill()


@pytest.fixture(scope="module")
def house(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    directory = tmp_path_factory.mktemp("broker")
    broker = BrokerProcess(cluster, directory, 1, "ledger.max.entries=200", "metadata.session.ms=40000")
    yield House(cluster, broker, directory)
    broker.end()


def test_a_bookies_damaged_copy_is_told_and_written_again_from_another_ones(house: House) -> None:
    topic = house.written("worn")
    told = house.verified()
    assert (told.status, told.findings(topic, "wear"), told.findings(topic, "damage")) == (0, [], [])
    assert told.value["entries"] >= RECORDS // 20
    assert told.value["ledgers"] >= RECORDS // 20 // 200

    told = house.worn(topic, prefix_of(topic, 777))
    assert told.status == 0, told.value["findings"]  # no record is lost
    (worn,) = told.findings(topic, "wear")
    assert worn["what"].startswith("1 copies on 127.0.0.1:")
    assert "digest" in worn["what"]

    mended = house.magnetar("repair")
    assert mended.status == 0
    assert [each["what"].partition(" on ")[0] for each in mended.value["actions"]] == [
        "1 copies written again"
    ]
    # A bookie of this kind (SortedLedgerStorage) reads what it was given last only when it has flushed it.
    with house.bookies_away():
        pass
    assert house.verified().findings(topic, "wear") == []


def test_what_no_bookie_has_whole_is_refused_told_and_given_up_only_when_asked(house: House) -> None:
    topic = house.written("lost")
    assert house.damage(prefix_of(topic, 5000), house.cluster.bookies) >= 2
    told = house.verified()
    assert told.status == 1
    (hole,) = told.findings(topic, "damage")
    first, last = hole["first_offset"], hole["last_offset"]
    assert first <= 5000 <= last
    assert last - first < 200
    assert f"offsets {first} to {last}" in hole["do"]

    kept = house.magnetar("repair")
    assert kept.status == 1
    assert len(kept.findings(topic, "damage")) == 1

    house.broker.start()
    refused = house.magnetar("repair", "--drop-damaged", "--yes")
    assert refused.status != 0
    assert "brokers live" in refused.error
    assert len(house.read(topic, first)) == first  # what is before it is served, and nothing in its place
    house.broker.end()

    given_up = house.magnetar("repair", "--drop-damaged", "--yes")
    assert given_up.status == 0, given_up
    lost = [
        (each["lost_first"], each["lost_last"])
        for each in given_up.value["actions"]
        if each["lost_first"] >= 0
    ]
    assert lost == [(first, last)]
    told = house.verified()
    assert (told.status, told.findings(topic, "damage")) == (0, [])

    house.broker.start()
    found = house.read(topic, RECORDS - (last - first + 1))
    gone = range(first, last + 1)
    assert found == {n: value_of(topic, n) for n in range(RECORDS) if n not in gone}
    house.broker.end()


def test_a_ledger_that_was_deleted_behind_the_metadata_is_told_and_given_up_when_asked(house: House) -> None:
    from kazoo.client import KazooClient

    topic = house.written("gone")
    ledgers = house.ledgers(topic)
    victims = [ledgers[1], ledgers[-1]]
    client = KazooClient(house.cluster.hosts)
    client.start()
    for each in victims:
        client.delete(metadata_path("/ledgers", each.ledger_id))
    client.stop()
    client.close()

    told = house.verified()
    assert told.status == 1
    assert [
        (each["ledger"], each["first_offset"], each["last_offset"]) for each in told.findings(topic, "damage")
    ] == [(each.ledger_id, each.first_offset, each.last_offset) for each in victims]
    given_up = house.magnetar("repair", "--drop-damaged", "--yes")
    assert given_up.status == 0, given_up
    assert house.verified().findings(topic, "damage") == []

    gone = {n for each in victims for n in range(each.first_offset, each.last_offset + 1)}
    house.broker.start()
    assert house.read(topic, RECORDS - len(gone)) == {
        n: value_of(topic, n) for n in range(RECORDS) if n not in gone
    }
    # An offset that was given out is not given out again, though its ledger is the one that is gone.
    producer = Producer({"bootstrap.servers": bootstrap([house.broker])})
    offsets: list[int] = []
    producer.produce(topic, b"after", on_delivery=lambda error, message: offsets.append(message.offset()))
    assert producer.flush(60) == 0
    assert offsets == [RECORDS]
    house.broker.end()


def test_where_nothing_of_a_cluster_is_it_is_said_and_nothing_is_made(house: House) -> None:
    from kazoo.client import KazooClient

    command = [str(Path(sys.executable).parent / "magnetar"), "ledger", "verify"]
    done = subprocess.run(
        [*command, "--metadata", f"zk:{house.cluster.hosts}/nowhere"], capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "there is nothing at" in done.stderr
    client = KazooClient(house.cluster.hosts)
    client.start()
    assert client.exists("/nowhere") is None
    client.stop()
    client.close()
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert "--config FILE" in done.stderr
