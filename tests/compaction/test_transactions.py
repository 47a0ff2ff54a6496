"""Compaction of what transactions wrote and of chunked messages, through stock clients: deleted stays deleted."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.compaction.test_kafka import PULSAR, SETTINGS, fetch, is_compacted, make, produce, rows, until
from tests.process import BrokerProcess
from tests.pulsar.conftest import connect
from tests.pulsar.test_compaction import compact, pairs, read

COMMITTED = {"isolation.level": "read_committed"}
ALL = {"isolation.level": "read_uncommitted"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("cleaner") / "data", *PULSAR, *SETTINGS) as process:
        yield process


def transactional(broker: BrokerProcess) -> Producer:
    made = Producer({"bootstrap.servers": broker.address, "transactional.id": uuid4().hex, "linger.ms": 0})
    made.init_transactions(30)
    return made


def in_transaction(
    producer: Producer, topic: str, *some: tuple[str, bytes | None], committed: bool = True
) -> None:
    producer.begin_transaction()
    for key, value in some:
        producer.produce(topic, value, key.encode())
    producer.flush()
    if committed:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def settle(broker: BrokerProcess, topic: str, most: int) -> dict[str, bytes | None]:
    """Write until the cleaner has left no more than ``most`` other records; return their newest values."""
    while True:
        produce(broker, topic, *[("roll", b"")] * 5)
        found = [row for row in rows(fetch(broker, topic, **ALL)) if row[1] != "roll"]
        if len(found) <= most:
            committed = rows(fetch(broker, topic, **COMMITTED))
            return {key: value for _, key, value in committed if key != "roll"}
        time.sleep(0.05)


@pytest.mark.slow
def test_transactions_leave_the_newest_of_each_key(broker: BrokerProcess) -> None:
    topic = make(broker, delete_retention_ms="0")
    producer = transactional(broker)
    for number in range(30):
        some = [(f"k{number % 3}", b"%d" % number), ("\0\0\0\1", b"%d" % number)]
        in_transaction(producer, topic, *some, committed=number % 5 != 4)
    assert settle(broker, topic, 4) == {"k0": b"27", "k1": b"28", "k2": b"26", "\0\0\0\1": b"28"}


def test_what_a_transaction_wrote_and_another_deleted_stays_deleted(broker: BrokerProcess) -> None:
    topic = make(broker, delete_retention_ms="0")
    producer = transactional(broker)
    produce(broker, topic, ("aborted over plain", b"1"))
    in_transaction(producer, topic, ("aborted over plain", b"2"), committed=False)
    in_transaction(producer, topic, ("deleted by plain", b"1"))
    produce(broker, topic, ("deleted by plain", None), ("deleted by another", b"1"))
    in_transaction(producer, topic, ("deleted by another", None), ("deletion aborted", b"1"))
    in_transaction(producer, topic, ("deletion aborted", None), committed=False)
    assert settle(broker, topic, 2) == {"aborted over plain": b"1", "deletion aborted": b"1"}


def test_an_open_transaction_holds_what_comes_behind_it(broker: BrokerProcess) -> None:
    topic = make(broker, delete_retention_ms="0")
    producer, other = transactional(broker), transactional(broker)
    produce(broker, topic, *[("before", b"%d" % number) for number in range(11)])
    producer.begin_transaction()
    producer.produce(topic, b"open", b"k")
    producer.flush()
    for number in range(8):
        in_transaction(other, topic, ("behind", b"%d" % number))
    until(broker, topic, 1)
    time.sleep(1)  # ten rounds of the cleaner
    found = rows(fetch(broker, topic, **ALL))
    assert [key for _, key, _ in found] == ["before", "k", *["behind"] * 8]
    producer.commit_transaction(30)
    assert settle(broker, topic, 3) == {"before": b"10", "k": b"open", "behind": b"7"}


@pytest.mark.slow
def test_idempotence_and_transactions_go_on_where_all_was_compacted_away(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", *SETTINGS) as process:
        topic, where = make(process, delete_retention_ms="0"), process.address
        producer = transactional(process)
        for number in range(12):
            in_transaction(producer, topic, ("k", b"%d" % number), committed=number % 2 == 0)
        settle(process, topic, 1)
        produce(process, topic, ("k", None))
        settle(process, topic, 0)
        process.kill()
    with BrokerProcess(tmp_path / "data", *SETTINGS, kafka=where) as process:
        in_transaction(producer, topic, ("k", b"aborted"), committed=False)
        in_transaction(producer, topic, ("k", b"last"))
        found = [row for row in rows(fetch(process, topic, **COMMITTED)) if row[1] != "roll"]
        assert [value for _, _, value in found] == [b"last"]


@pytest.mark.slow
def test_deleted_groups_and_offsets_stay_deleted_after_a_restart(tmp_path: Path) -> None:
    settings = (*SETTINGS, "--set", "offsets.topic.num.partitions=1")
    with BrokerProcess(tmp_path / "data", *settings) as process:
        topic, where = make(process), process.address
        admin, producer = AdminClient({"bootstrap.servers": where}), transactional(process)

        def commit(group: str, offset: int) -> None:
            consumer = Consumer({"bootstrap.servers": where, "group.id": group})
            producer.begin_transaction()
            producer.send_offsets_to_transaction(
                [TopicPartition(topic, 0, offset)], consumer.consumer_group_metadata(), 30
            )
            producer.commit_transaction(30)
            consumer.close()

        for number in range(15):
            commit("kept", number)
        commit("deleted", 7)
        admin.delete_consumer_groups(["deleted"])["deleted"].result()
        alter(admin, "__consumer_offsets", delete_retention_ms="0", min_cleanable_dirty_ratio="0.01")
        offsets = "__consumer_offsets"
        number = 0
        while any(b"deleted" in (each.key() or b"") for each in fetch(process, offsets)) or not is_compacted(
            tmp_path / "data", offsets
        ):
            number += 1
            plain = Consumer({"bootstrap.servers": where, "group.id": "other"})
            plain.commit(offsets=[TopicPartition(topic, 0, number)], asynchronous=False)
            plain.close()
        process.kill()
    with BrokerProcess(tmp_path / "data", *settings, kafka=where) as process:
        admin = AdminClient({"bootstrap.servers": where})
        for group, offset in (("kept", 14), ("deleted", -1001)):
            asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
            found = admin.list_consumer_group_offsets([asked])[group].result()
            assert [each.offset for each in found.topic_partitions] == [offset]


def alter(admin: AdminClient, topic: str, **configs: str) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in configs.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result()


def test_the_key_of_a_chunked_message_stays_deleted(broker: BrokerProcess) -> None:
    topic = f"persistent://public/default/chunks-{uuid4().hex[:12]}"
    client = connect(broker)
    producer = client.create_producer(topic, batching_enabled=False, chunking_enabled=True)
    large = os.urandom(6 << 20)
    producer.send(large, partition_key="deleted")
    producer.send(b"plain", partition_key="replaced")
    producer.send(large, partition_key="replaced")
    producer.send(b"", partition_key="deleted")
    compact(broker, topic)
    assert pairs(read(client, topic)) == [("replaced", large)]
    producer.send(b"small", partition_key="replaced")
    compact(broker, topic)
    assert pairs(read(client, topic)) == [("replaced", b"small")]
    client.close()


def test_a_compacted_reader_comes_to_the_end_where_markers_are_last(broker: BrokerProcess) -> None:
    topic = make(broker, cleanup_policy="delete")
    name, client, producer = f"persistent://public/default/{topic}", connect(broker), transactional(broker)
    in_transaction(producer, topic, ("k", b"1"), ("other", b"1"))
    in_transaction(producer, topic, ("k", b"2"), committed=False)
    want = [("k", b"1"), ("other", b"1")]
    while pairs(read(client, name)) != want:  # a commit is answered before its marker is written
        time.sleep(0.05)
    compact(broker, name)
    assert pairs(read(client, name)) == want
    in_transaction(producer, topic, ("k", b"3"))
    while pairs(read(client, name)) != [*want, ("k", b"3")]:
        time.sleep(0.05)
    client.close()


def test_of_two_transactions_that_commit_one_groups_offset_the_later_written_counts_for_good(
    tmp_path: Path,
) -> None:
    """In whichever order they end (KAFKA-5259): so it is before a restart, after it, and once all was compacted."""
    settings = (*SETTINGS, "--set", "offsets.topic.num.partitions=1")
    offsets = "__consumer_offsets"

    def committed(process: BrokerProcess) -> int:
        asked = ConsumerGroupTopicPartitions("g", [TopicPartition(topic, 0)])
        admin = AdminClient({"bootstrap.servers": process.address})
        found = admin.list_consumer_group_offsets([asked])["g"].result()
        return int(found.topic_partitions[0].offset)

    with BrokerProcess(tmp_path / "data", *settings) as process:
        topic, where = make(process), process.address
        first, second = transactional(process), transactional(process)
        consumer = Consumer({"bootstrap.servers": where, "group.id": "g"})
        for producer, offset in ((first, 5), (second, 7)):
            producer.begin_transaction()
            producer.send_offsets_to_transaction(
                [TopicPartition(topic, 0, offset)], consumer.consumer_group_metadata(), 30
            )
        second.commit_transaction(30)
        first.commit_transaction(30)
        consumer.close()
        seen = [committed(process)]
        process.kill()
    with BrokerProcess(tmp_path / "data", *settings, kafka=where) as process:
        seen.append(committed(process))
        admin = AdminClient({"bootstrap.servers": where})
        alter(admin, offsets, delete_retention_ms="0", min_cleanable_dirty_ratio="0.01")
        number = 0
        while not is_compacted(tmp_path / "data", offsets):
            number += 1
            plain = Consumer({"bootstrap.servers": where, "group.id": "other"})
            plain.commit(offsets=[TopicPartition(topic, 0, number)], asynchronous=False)
            plain.close()
        process.kill()
    with BrokerProcess(tmp_path / "data", *settings, kafka=where) as process:
        seen.append(committed(process))
    assert seen == [7, 7, 7]
