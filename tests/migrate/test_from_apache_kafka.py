"""Topics move from Apache Kafka while clients work: no record is lost or comes twice, and offsets are equal.

Kafka's jars come from Maven, as for the benchmarks.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from benchmarks.peers.kafka import Kafka
from magnetar.cli.app import run_app
from tests.migrate.moving import (
    PARTITIONS,
    RECORDS,
    SECONDS,
    commit,
    committed,
    create,
    produce,
    rows,
    transactions,
    watermarks,
)
from tests.process import BrokerProcess

pytestmark = pytest.mark.slow
WAITING = 10_000


class Source(Kafka):
    """One that keeps ACLs, and whose cleaner looks often."""

    extra = (
        "log.cleaner.backoff.ms=200",
        "group.initial.rebalance.delay.ms=0",
        "log.retention.check.interval.ms=1000",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:ANONYMOUS",
    )


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    missing = [tool for tool in ("mvn", "java") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"Apache Kafka cannot be brought and run: there is no {', '.join(missing)}")
    with Source(tmp_path_factory.mktemp("kafka")) as running:
        yield running


def migrate(source: str, target: str, *arguments: str) -> int:
    return run_app(["migrate", "from-kafka", "--source", source, "-b", target, *arguments])


def test_all_kinds_of_topics_are_the_same_on_the_other_side(
    kafka: Kafka, start_broker: Callable[..., BrokerProcess], capsys: pytest.CaptureFixture[str]
) -> None:
    address = kafka.address
    small = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    create(
        address,
        NewTopic("plain", PARTITIONS, 1, config={"retention.ms": "-1"}),
        NewTopic("packed", PARTITIONS, 1, config={"compression.type": "lz4", "retention.ms": "-1"}),
        NewTopic("transactions", PARTITIONS, 1, config={"retention.ms": "-1"}),
        NewTopic("compacted", PARTITIONS, 1, config={"cleanup.policy": "compact", **small}),
        NewTopic("trimmed", PARTITIONS, 1, config={"retention.ms": "-1"}),
    )
    produce(address, "plain", range(RECORDS), **{"compression.type": "snappy"})
    produce(address, "packed", range(RECORDS))
    transactions(address, "transactions", 60)
    produce(address, "trimmed", range(3000), **{"batch.num.messages": 10})
    admin = AdminClient({"bootstrap.servers": address})
    for done in admin.delete_records([TopicPartition("trimmed", index, 555) for index in range(3)]).values():
        done.result(SECONDS)
    produce(address, "compacted", range(RECORDS))
    deadline = time.monotonic() + SECONDS
    number = RECORDS
    while len(rows(address, "compacted")) > RECORDS // 2:  # the newest segment is never compacted
        assert time.monotonic() < deadline
        produce(address, "compacted", range(number, number + 30))
        number += 30
    commit(address, "readers", "plain", {0: 100, 1: 200, 2: 6000})
    entry = AclBinding(
        ResourceType.TOPIC, "plain", ResourcePatternType.LITERAL, "User:alice", "*",
        AclOperation.READ, AclPermissionType.ALLOW,
    )  # fmt: skip
    for done in admin.create_acls([entry]).values():
        done.result(SECONDS)
    here = start_broker()
    assert migrate(address, here.address, "--cut-over", "--quiet", "1", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["cut_over"]
    assert told["audit"]["different"] == 0
    for topic in ("plain", "packed", "transactions", "trimmed"):
        assert rows(here.address, topic) == rows(address, topic), topic
    theirs = rows(address, "compacted")
    kept = {(row.partition, row.offset): row for row in rows(here.address, "compacted")}
    assert [kept[row.partition, row.offset] for row in theirs] == theirs
    assert len(kept) < RECORDS  # what was compacted away there is no more brought here
    for topic in ("plain", "packed", "transactions", "compacted", "trimmed"):
        assert watermarks(here.address, topic) == watermarks(address, topic), topic
    everything = rows(here.address, "transactions", committed=False)
    assert everything == rows(address, "transactions", committed=False)
    assert len(everything) == 6000
    assert committed(here.address, "readers") == committed(address, "readers")
    configs = {each["topic"]: each["configs"] for each in told["topics"]}
    assert configs["compacted"] == {"cleanup.policy": "compact", **small}
    assert told["acls"]["entries"] == 1
    assert "no authorizer" in told["acls"]["left_out"]


class Work:
    """A producer and a consumer that work until they are told to change sides."""

    def __init__(self) -> None:
        self.acknowledged: list[bytes] = []
        self.read: list[bytes] = []
        self.number = 0

    def produce(self, address: str, stop: threading.Event) -> None:
        """Write until stopped, at least one record, all acknowledged at the end."""
        producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 2})

        def done(error: object, message: object) -> None:
            assert error is None, error
            self.acknowledged.append(message.value())  # type: ignore[attr-defined]

        while True:
            for _ in range(50):
                producer.produce("orders", value=b"%d" % self.number, key=b"k", on_delivery=done)
                self.number += 1
            producer.poll(0.002)
            while len(producer) >= WAITING and not stop.is_set():
                producer.poll(0.1)  # its queue has an end, and the other side may let it wait for long
            if stop.is_set():
                break
        assert producer.flush(SECONDS) == 0

    def consume(self, address: str, stop: threading.Event) -> None:
        """Read as a member of a group until stopped, and commit what was read."""
        consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "workers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["orders"])
        while not stop.is_set():
            found = [each.value() for each in consumer.consume(500, 0.1) if each.error() is None]
            if found:
                consumer.commit(asynchronous=False)
                self.read += found
        consumer.close()


def test_producers_and_consumers_change_sides_at_work(
    kafka: Kafka, start_broker: Callable[..., BrokerProcess], capsys: pytest.CaptureFixture[str]
) -> None:
    create(kafka.address, NewTopic("orders", PARTITIONS, 1))
    here = start_broker()
    work, no_more, no_more_reading = Work(), threading.Event(), threading.Event()
    producing = threading.Thread(target=work.produce, args=(kafka.address, no_more))
    consuming = threading.Thread(target=work.consume, args=(kafka.address, no_more_reading))
    producing.start()
    consuming.start()
    statuses: list[int] = []
    only = ("--topic", "orders", "--group", "workers", "--json")
    moving = threading.Thread(
        target=lambda: statuses.append(migrate(kafka.address, here.address, *only, "--cut-over"))
    )
    until(lambda: len(work.read) >= RECORDS)
    assert migrate(kafka.address, here.address, *only) == 0  # all is copied while everybody works
    capsys.readouterr()
    moving.start()
    until(lambda: len(work.read) >= 2 * RECORDS)
    assert moving.is_alive(), "it does not wait for the producers"
    no_more.set()
    producing.join()
    # The producer goes on here at once, and waits.
    behind = work.number
    ended = threading.Event()
    producing = threading.Thread(target=work.produce, args=(here.address, ended))
    producing.start()
    until(lambda: len(work.read) > RECORDS)
    no_more_reading.set()
    consuming.join()
    moving.join()
    assert statuses == [0]
    consuming_on = threading.Event()
    consuming = threading.Thread(target=work.consume, args=(here.address, consuming_on))
    consuming.start()
    until(lambda: work.number >= behind + RECORDS)
    ended.set()
    producing.join()
    until(lambda: len(work.read) >= len(work.acknowledged))
    consuming_on.set()
    consuming.join()
    everything = [b"%d" % number for number in range(work.number)]
    assert sorted(work.acknowledged, key=int) == everything
    assert sorted(work.read, key=int) == everything, "a record was lost or came twice"
    theirs = rows(kafka.address, "orders")
    ours = {(row.partition, row.offset): row for row in rows(here.address, "orders")}
    assert [ours[row.partition, row.offset] for row in theirs] == theirs
    assert len(ours) == work.number


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)
