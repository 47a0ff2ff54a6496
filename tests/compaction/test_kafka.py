"""Topics with cleanup.policy=compact, through stock Kafka clients: what is left, where, and what is refused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pulsar
import pytest
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from magnetar.ledger.formats.info import ROOT, ManagedLedgerInfo, decode_info, is_managed_ledger
from magnetar.ledger.formats.layout import ledger_path
from magnetar.metadata import SqliteFile
from tests.process import BrokerProcess
from tests.pulsar.conftest import connect
from tests.pulsar.test_compaction import ask, compact, pairs, read

SETTINGS = ("--set", "log.cleaner.backoff.ms=100", "--set", "ledger.max.entries=10")
PULSAR = ("--pulsar", "127.0.0.1:0", "--http", "127.0.0.1:0")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("cleaner") / "data", *PULSAR, *SETTINGS) as process:
        yield process


def make(broker: BrokerProcess, **configs: str) -> str:
    name = f"c-{uuid4().hex[:12]}"
    chosen = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    chosen |= {key.replace("_", "."): value for key, value in configs.items()}
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(name, 1, 1, config=chosen)])[name].result()
    return name


def produce(broker: BrokerProcess, topic: str, *pairs: tuple[str, bytes | None], **options: object) -> None:
    """One batch for each pair."""
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 0, **options})
    for key, value in pairs:
        producer.produce(topic, value, key.encode())
        producer.flush()


def fetch(broker: BrokerProcess, topic: str, offset: int = 0, **options: object) -> list[Message]:
    config = {
        "bootstrap.servers": broker.address,
        "group.id": "none",
        "enable.partition.eof": True,
        **options,
    }
    consumer = Consumer({**config, "auto.offset.reset": "error"})
    consumer.assign([TopicPartition(topic, 0, offset)])
    found = []
    while True:
        message = consumer.poll(10)
        assert message is not None
        if message.error() is None:
            found.append(message)
        elif message.error().code() == KafkaError._PARTITION_EOF:
            consumer.close()
            return found
        else:
            raise KafkaException(message.error())


def rows(messages: list[Message]) -> list[tuple[int, str, bytes | None]]:
    return [(message.offset(), message.key().decode(), message.value()) for message in messages]


def until(broker: BrokerProcess, topic: str, most: int) -> list[tuple[int, str, bytes | None]]:
    """Return what Fetch gives, once the cleaner has left no more than ``most`` records."""
    while len(found := rows(fetch(broker, topic))) > most:
        time.sleep(0.05)
    return found


@pytest.mark.parametrize(
    ("entry_format", "codec"),
    [
        ("kafka", "none"),
        ("pulsar", "lz4"),
        pytest.param("kafka", "lz4", marks=pytest.mark.slow),
        pytest.param("mixed_kafka", "lz4", marks=pytest.mark.slow),
        pytest.param("pulsar", "none", marks=pytest.mark.slow),
    ],
)
def test_the_cleaner_leaves_the_newest_of_each_key_at_its_offset(
    broker: BrokerProcess, entry_format: str, codec: str
) -> None:
    topic = make(broker, entry_format=entry_format)
    options = {"bootstrap.servers": broker.address, "linger.ms": 50, "compression.type": codec}
    producer = Producer({**options, "batch.num.messages": 5, "enable.idempotence": True})
    for number in range(100):
        producer.produce(
            topic, b"v%d" % number, b"k%d" % (number % 7), headers={"h": b"x"}, timestamp=1000 + number
        )
        if number % 5 == 4:
            producer.flush()
    producer.flush()
    for number in range(100, 103):
        producer.produce(topic, b"head", b"k0", headers={"h": b"x"}, timestamp=1000 + number)
        producer.flush()
    found = fetch(broker, topic)
    while len(found) > 13:
        time.sleep(0.05)
        found = fetch(broker, topic)
    latest = {message.key(): (message.offset(), message.value()) for message in found}
    assert latest == {
        b"k0": (102, b"head"),
        **{b"k%d" % (number % 7): (number, b"v%d" % number) for number in range(93, 100) if number % 7},
    }
    assert all(message.timestamp()[1] == 1000 + message.offset() for message in found)
    assert all(message.headers() == [("h", b"x")] for message in found)
    admin = AdminClient({"bootstrap.servers": broker.address})
    where = TopicPartition(topic, 0)
    offsets = [
        admin.list_offsets({where: spec})[where].result().offset
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
    ]
    assert offsets == [0, 103], "the log start stays; what is gone leaves gaps"
    assert rows(fetch(broker, topic, 3)) == rows(found), (
        "an offset that was compacted away gives the next one"
    )


def test_ledgers_that_were_compacted_make_room(broker: BrokerProcess) -> None:
    topic = make(broker)
    produce(broker, topic, *[("k", b"%d" % number) for number in range(100)])
    found = until(broker, topic, 11)
    assert found[-1] == (99, "k", b"99")
    (info,) = infos_of(broker.data, topic)
    gone = [ledger_path(broker.data, each.ledger_id) for each in info.ledgers if each.compacted]
    assert len(gone) >= 9
    while any(path.exists() for path in gone):
        time.sleep(0.05)


@pytest.mark.slow
def test_tombstones_stay_for_their_time(broker: BrokerProcess) -> None:
    topic = make(broker, delete_retention_ms="3600000")
    soon = make(broker, delete_retention_ms="1")
    for each in (topic, soon):
        produce(broker, each, ("a", b"1"), ("a", None), *[("b", b"%d" % number) for number in range(18)])
        assert (1, "a", None) in until(broker, each, 12)
    for each, there in ((topic, True), (soon, False)):
        while True:
            produce(broker, each, *[("b", b"x") for _ in range(10)])
            found = until(broker, each, 12)
            if ((1, "a", None) in found) is there:
                break


def test_records_without_a_key_are_refused(broker: BrokerProcess) -> None:
    topic, errors = make(broker), []
    producer = Producer({"bootstrap.servers": broker.address})
    producer.produce(topic, b"keyless", on_delivery=lambda error, _: errors.append(error))
    producer.flush()
    assert [error.code() for error in errors] == [KafkaError.INVALID_RECORD]


def test_records_stay_for_min_compaction_lag(broker: BrokerProcess) -> None:
    topic = make(broker, min_compaction_lag_ms="3600000")
    other = make(broker)
    for each in (topic, other):
        produce(broker, each, *[("k", b"%d" % number) for number in range(30)])
    until(broker, other, 11)
    assert len(fetch(broker, topic)) == 30


def test_max_compaction_lag_seals_the_open_ledger(broker: BrokerProcess) -> None:
    topic = make(broker, max_compaction_lag_ms="100", min_cleanable_dirty_ratio="1.0")
    produce(broker, topic, *[("k", b"%d" % number) for number in range(5)])
    assert until(broker, topic, 1) == [(4, "k", b"4")]


@pytest.mark.slow
def test_compact_and_delete_do_both(broker: BrokerProcess) -> None:
    topic = make(broker, cleanup_policy="compact,delete", retention_ms="3600000")
    admin = AdminClient({"bootstrap.servers": broker.address})
    produce(broker, topic, *[("k", b"%d" % number) for number in range(31)])
    until(broker, topic, 2)
    where = TopicPartition(topic, 0, 25)
    admin.delete_records([where])[where].result()
    assert [offset for offset, _, _ in rows(fetch(broker, topic, 25))] == [29, 30]
    with pytest.raises(KafkaException):
        fetch(broker, topic, 3)


def test_pulsar_sees_what_remains_with_its_ids(broker: BrokerProcess) -> None:
    topic = make(broker)
    name = f"persistent://public/default/{topic}"
    client = connect(broker)
    client.subscribe(name, "s", initial_position=pulsar.InitialPosition.Earliest).close()
    produce(broker, topic, *[(f"k{number % 3}", b"%d" % number) for number in range(24)])
    before = {message.data(): message.message_id() for message in read(client, name, compacted=False)}
    compact(broker, name)
    want = [("k0", b"21"), ("k1", b"22"), ("k2", b"23")]
    assert until(broker, topic, 3) == [(21, "k0", b"21"), (22, "k1", b"22"), (23, "k2", b"23")]
    for compacted in (True, False):
        found = read(client, name, compacted=compacted)
        assert pairs(found) == want
        for message in found:
            one, other = before[message.data()], message.message_id()
            assert (one.ledger_id(), one.entry_id()) == (other.ledger_id(), other.entry_id())
    consumer = client.subscribe(name, "s", pulsar.ConsumerType.Shared)
    for _, value in want:
        message = consumer.receive(10_000)
        assert message.data() == value
        consumer.acknowledge(message)
    while ask(broker, "GET", name, "stats")["subscriptions"]["s"]["msgBacklog"]:
        time.sleep(0.05)
    client.close()


@pytest.mark.slow
def test_an_idempotent_producer_goes_on_over_a_restart(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", *SETTINGS) as process:
        topic = make(process)
        options = {"bootstrap.servers": process.address, "enable.idempotence": True, "linger.ms": 0}
        producer = Producer(options)
        for number in range(25):
            producer.produce(topic, b"%d" % number, b"k")
            producer.flush()
        until(process, topic, 6)
        where = process.address
        process.kill()
    with BrokerProcess(tmp_path / "data", *SETTINGS, kafka=where):
        errors: list[KafkaError | None] = []
        producer.produce(topic, b"last", b"k", on_delivery=lambda error, _: errors.append(error))
        producer.flush()
        assert errors == [None]


@pytest.mark.slow
def test_read_committed_reads_the_same(broker: BrokerProcess) -> None:
    topic = make(broker)
    produce(broker, topic, *[("k", b"%d" % number) for number in range(25)])
    found = until(broker, topic, 6)
    committed = fetch(broker, topic, **{"isolation.level": "read_committed"})
    assert rows(committed) == found


@pytest.mark.slow
def test_the_coordinators_own_topic_is_compacted_and_read_back(tmp_path: Path) -> None:
    settings = (
        *SETTINGS,
        "--set",
        "offsets.topic.num.partitions=1",
        "--set",
        "group.initial.rebalance.delay.ms=0",
    )
    with BrokerProcess(tmp_path / "data", *settings) as process:
        topic = make(process)
        where = process.address
        for group in ("g", "h"):
            consumer = Consumer({"bootstrap.servers": where, "group.id": group})
            for offset in range(40):
                consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
            consumer.close()
        while not is_compacted(tmp_path / "data", "__consumer_offsets"):
            time.sleep(0.05)
        process.kill()
    with BrokerProcess(tmp_path / "data", *settings, kafka=where):
        for group in ("g", "h"):
            consumer = Consumer({"bootstrap.servers": where, "group.id": group})
            (found,) = consumer.committed([TopicPartition(topic, 0)], 10)
            assert found.offset == 39
            consumer.close()


@pytest.mark.slow
def test_deduplication_goes_on_where_its_place_was_compacted_away(tmp_path: Path) -> None:
    settings = (*SETTINGS, *PULSAR, "--set", "brokerDeduplicationEnabled=true")
    with BrokerProcess(tmp_path / "data", *settings) as process:
        topic = make(process)
        name = f"persistent://public/default/{topic}"
        client = connect(process)
        producer = client.create_producer(name, producer_name="p", batching_enabled=False)
        for number in range(20):
            producer.send(b"%d" % number, partition_key="k", sequence_id=number)
        time.sleep(1.5)  # its place is kept now and then
        producer.send(b"", partition_key="gone", sequence_id=20)
        for number in range(21, 45):
            producer.send(b"%d" % number, partition_key="k", sequence_id=number)
        until(process, topic, 7)
        client.close()
        process.kill()
    with BrokerProcess(tmp_path / "data", *settings) as process:
        client = connect(process)
        producer = client.create_producer(name, producer_name="p", batching_enabled=False)
        assert producer.last_sequence_id() == 44
        producer.send(b"again", partition_key="k", sequence_id=44)
        producer.send(b"new", partition_key="k", sequence_id=45)
        assert [value for _, _, value in rows(fetch(process, topic))][-2:] == [b"44", b"new"]
        client.close()


def is_compacted(data: Path, topic: str) -> bool:
    return any(info.compacted is not None and info.ledgers[0].compacted for info in infos_of(data, topic))


def infos_of(data: Path, topic: str) -> list[ManagedLedgerInfo]:
    store = SqliteFile(data / "metadata.sqlite", read_only=True)
    try:
        nodes = [(path, stored) for path, stored in store.scan(ROOT + "/") if is_managed_ledger(path)]
    finally:
        store.close()
    return [decode_info(stored.value) for path, stored in nodes if topic in path]
