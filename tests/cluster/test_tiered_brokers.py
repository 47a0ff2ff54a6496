"""Brokers on bookies with tiered storage, by stock clients: each reads what the other offloaded, and so does Spark."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pulsar
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from magnetar.ledger.tiers.place import TierPlace
from magnetar.ledger.tiers.tiers import TierSettings, open_store
from tests.cluster.brokers import BrokerProcess, bootstrap, leaders, make_topic
from tests.cluster.rest import ask
from tests.cluster.servers import Cluster, class_path
from tests.offload.conftest import BUCKET, KEYS, s3  # noqa: F401 - a fixture
from tests.offload.test_stores_that_fail import Moody, moody  # noqa: F401 - a fixture

class_path()  # skips the module where BookKeeper cannot be run
pytestmark = [pytest.mark.slow]

PARTITIONS = 2
RECORDS = 8000
SEGMENT = 1 << 20
WORDS = "Check the bucket's name, the keys and their rights"

Rows = list[tuple[int, int, bytes, bytes]]


@pytest.fixture
def pair(
    cluster: Cluster,
    tmp_path: Path,
    moody: Moody,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[list[BrokerProcess]]:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    settings = (
        "managed.ledger.offload.driver=aws-s3",
        f"managed.ledger.offload.bucket={BUCKET}",
        f"managed.ledger.offload.prefix={tmp_path.name}",
        f"managed.ledger.offload.service.endpoint={moody.url}",
        "managed.ledger.offload.read.buffer.size.in.bytes=65536",
        "managed.ledger.offload.deletion.lag.ms=0",
        "remote.log.manager.task.interval.ms=100",
        "bookkeeper.cache.bytes=1",
    )
    brokers = [BrokerProcess(cluster, tmp_path, number, *settings) for number in (1, 2)]
    for each in brokers:
        each.begin()
    for each in brokers:
        until(lambda each=each: "ready " in each.log.read_text(), each)  # type: ignore[misc]
    yield brokers
    for each in brokers:
        each.end(signal.SIGKILL)


def until(is_so: Callable[[], bool], broker: BrokerProcess) -> None:
    end = time.monotonic() + 180
    while not is_so():
        assert time.monotonic() < end, broker.log.read_text()[-3000:]
        time.sleep(0.1)


def produce(servers: str, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "batch.num.messages": 100})
    for number in numbers:
        value = b"%08d" % number + b"v" * 600
        producer.produce(topic, value, b"k%d" % (number % 97), partition=number % PARTITIONS)
        producer.poll(0)
        if number % 1000 == 0:
            producer.flush()
    assert producer.flush(120) == 0


def consume(servers: str, topic: str, records: int) -> Rows:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": f"g{time.time_ns()}"})
    consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
    found: Rows = []
    end = time.monotonic() + 180
    while len(found) < records:
        assert time.monotonic() < end, f"{len(found)} of {records} came"
        for each in consumer.consume(1000, 1):
            assert each.error() is None, each.error()
            found.append((each.partition(), each.offset(), each.key(), each.value()))
    consumer.close()
    return sorted(found)


def ledgers(broker: BrokerProcess, topic: str) -> list[list[dict[str, Any]]]:
    """Return the ledgers of each partition that hold something."""
    paths = (
        f"persistent/public/default/{topic}-partition-{index}/internalStats" for index in range(PARTITIONS)
    )
    return [[each for each in ask(broker, "GET", path)["ledgers"] if each["entries"]] for path in paths]


def offloaded(broker: BrokerProcess, topic: str) -> list[str]:
    """Return the uuids of what tiered storage has."""
    return [
        each["properties"]["offloadUuid"]
        for some in ledgers(broker, topic)
        for each in some
        if each["offloaded"]
    ]


def is_gone(broker: BrokerProcess, topic: str) -> bool:
    """Whether all but the last ledger of each partition lies in tiered storage alone."""
    found = ledgers(broker, topic)
    full = [each for some in found for each in some[:-1]]
    return all(len(some) > 1 for some in found) and all(
        each["properties"].get("local") == "false" for each in full
    )


def tier_keys(place: TierPlace) -> set[str]:
    return {each.key for each in open_store(place, TierSettings()).listed()}


def test_what_one_broker_offloads_all_read_and_a_kill_in_the_midst_of_it_loses_nothing(
    pair: list[BrokerProcess],
    moody: Moody,  # noqa: F811
    cluster: Cluster,
    tmp_path: Path,
) -> None:
    servers = bootstrap(pair)
    admin = AdminClient({"bootstrap.servers": servers})
    config = {"segment.bytes": str(SEGMENT), "remote.storage.enable": "true", "local.retention.ms": "1"}
    make_topic(admin, "t", PARTITIONS, config)

    # A bucket without rights: nothing leaves, everybody is served, and it is told in words.
    moody.mood = "403"
    produce(servers, "t", range(RECORDS // 2))
    until(lambda: any(WORDS in each.log.read_text() for each in pair), pair[0])
    assert not offloaded(pair[0], "t")
    assert len(consume(servers, "t", RECORDS // 2)) == RECORDS // 2

    # One that hangs, and the brokers in the midst of it are killed.
    moody.mood = "slow"
    spoiled = moody.spoiled
    until(lambda: moody.spoiled > spoiled, pair[0])
    for each in pair:
        each.end(signal.SIGKILL)
    moody.mood = "well"
    moody.let_go.set()
    for each in pair:
        each.start()
    produce(servers, "t", range(RECORDS // 2, RECORDS))
    until(lambda: is_gone(pair[0], "t"), pair[0])
    before = consume(servers, "t", RECORDS)
    assert [value[:8] for _, _, _, value in before] == [
        b"%08d" % number
        for index in range(PARTITIONS)
        for number in range(RECORDS)
        if number % PARTITIONS == index
    ]
    assert len(offloaded(pair[0], "t")) > 2

    # Each broker reads what the other one has offloaded.
    served: dict[int, set[int]] = {index: {leaders(admin, "t")[index]} for index in range(PARTITIONS)}
    for mover in (*pair, *pair):
        ask(pair[0], "PUT", f"namespaces/public/default/unload?destinationBroker=127.0.0.1:{mover.http}")
        until(lambda mover=mover: set(leaders(admin, "t").values()) == {mover.number}, mover)  # type: ignore[misc]
        for index, leader in leaders(admin, "t").items():
            served[index].add(leader)
        assert consume(servers, "t", RECORDS) == before
    assert all(owners >= {1, 2} for owners in served.values())

    client = pulsar.Client(f"pulsar://127.0.0.1:{pair[0].pulsar}")
    name = "persistent://public/default/t-partition-1"
    reader = client.create_reader(name, pulsar.MessageId.earliest)
    mine = [row for row in before if row[0] == 1]
    assert [
        (each.partition_key().encode(), each.data()) for each in (reader.read_next(60_000) for _ in mine)
    ] == [row[2:] for row in mine]
    client.close()
    first = next(iter(admin.list_offsets({TopicPartition("t", 0): OffsetSpec.for_timestamp(1)}).values()))
    assert first.result(60).offset == 0

    assert spark_rows(cluster, "t") == before
    place = TierPlace("aws-s3", BUCKET, "", moody.url, tmp_path.name)

    def is_all_known() -> bool:
        """What was broken off by the kill, or by a move, is noted; all that is there otherwise the list names.

        An attempt that a move broke off is noted when the new owner begins its own.
        """
        there = {each[:36] for each in tier_keys(place)}  # first: what comes later is known later
        return there <= {*offloaded(pair[0], "t")} | noted_uuids(cluster)

    until(is_all_known, pair[0])
    assert {*offloaded(pair[0], "t")} <= {each[:36] for each in tier_keys(place)}
    admin.delete_topics(["t"])["t"].result(60)
    # Only attempts that were not complete are left, one that the deletion came upon among them: for an hour.
    until(lambda: {each[:36] for each in tier_keys(place)} <= noted_uuids(cluster, kept=True), pair[0])


def noted_uuids(cluster: Cluster, *, kept: bool = False) -> set[str]:
    """Return what is noted to be deleted; with ``kept`` only what is not to be yet."""
    from kazoo.client import KazooClient
    from kazoo.exceptions import NoNodeError

    client = KazooClient(hosts=cluster.hosts, read_only=True)
    client.start()
    root = "/house/magnetar/offload-deletions"
    names = client.get_children(root) if client.exists(root) else []
    notes = []
    for name in names:
        with suppress(NoNodeError):  # it has been done meanwhile
            notes.append(json.loads(client.get(f"{root}/{name}")[0]))
    found = {each[2] for note in notes if not kept or "not_before" in note for each in note["objects"]}
    client.stop()
    client.close()
    return found


def spark_rows(cluster: Cluster, topic: str) -> Rows:
    """Return what Spark's tasks read past the brokers, all of the offloaded straight from the store."""
    from magnetar.pipeline.options import parse_options
    from magnetar.pipeline.plan import Plan
    from magnetar.pipeline.slices import LedgerSlice
    from magnetar.pipeline.source import read

    said = parse_options(
        {"path": f"zk://{cluster.hosts}/house", "subscribe": topic, "sliceBytes": "300000"}, streaming=False
    )
    plan = Plan(said)
    found: Rows = []
    slices = plan.slices(plan.starts(), plan.ends())
    for piece in slices:
        for batch in read(piece, said):
            columns = (batch[name].to_pylist() for name in ("partition", "offset", "key", "value"))
            found += zip(*columns, strict=True)
    plan.close()
    direct = sum(each.high - each.low for each in slices if isinstance(each, LedgerSlice))
    assert direct > len(found) // 2
    return sorted(found)
