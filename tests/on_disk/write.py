"""Writes a data directory as this very tree's broker leaves it, and notes beside it what clients must find there.

    python -m tests.on_disk.write NUMBER

makes ``tests/on_disk/format-NUMBER.tar.xz``. It was run once for each format, by the last commit that wrote it; the
archives are never made anew, since a release must open what its forerunners left, and not what it would write itself.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from pathlib import Path

import pulsar
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from tests.process import BrokerProcess

HERE = Path(__file__).parent
OPTIONS = ("--pulsar", "127.0.0.1:0", "--http", "127.0.0.1:0")
PLAIN, DONE, OPEN, COMPACTED, PULSAR = "plain", "transactional", "open", "compacted", "of-pulsar"


def fill(broker: BrokerProcess) -> None:
    """Have clients of both protocols leave something of every kind."""
    admin = AdminClient({"bootstrap.servers": broker.address})
    topics = [
        NewTopic(PLAIN, 3, 1, config={"retention.ms": "-1", "max.message.bytes": "123456"}),
        NewTopic(DONE, 1, 1),
        NewTopic(OPEN, 1, 1),
        NewTopic(COMPACTED, 1, 1, config={"cleanup.policy": "compact"}),
    ]
    for made in admin.create_topics(topics).values():
        made.result(60)
    producer = Producer(
        {"bootstrap.servers": broker.address, "enable.idempotence": True, "compression.type": "zstd"}
    )
    for number in range(300):
        producer.produce(PLAIN, f"value {number}", f"key {number}", partition=number % 3, headers={"h": b"1"})
    for number in range(20):
        producer.produce(COMPACTED, f"value {number}", f"key {number % 5}")
    assert producer.flush(60) == 0
    _transactions(broker)
    _group(broker)
    _subscription(broker)
    entry = ConfigEntry("retention.bytes", "1000000", incremental_operation=AlterConfigOpType.SET)
    (altered,) = admin.incremental_alter_configs(
        [ConfigResource("topic", DONE, incremental_configs=[entry])]
    ).values()
    altered.result(60)


def _transactions(broker: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": "t-done"})
    producer.init_transactions(60)
    for outcome in ("committed", "aborted", "committed"):
        producer.begin_transaction()
        producer.produce(DONE, outcome)
        producer.commit_transaction(60) if outcome == "committed" else producer.abort_transaction(60)
    left = Producer(
        {"bootstrap.servers": broker.address, "transactional.id": "t-open", "transaction.timeout.ms": 900_000}
    )
    left.init_transactions(60)
    left.begin_transaction()
    left.produce(OPEN, "never committed")
    left.flush(60)
    left.purge()


def _group(broker: BrokerProcess) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([PLAIN])
    read = 0
    while read < 300:
        message = consumer.poll(1)
        read += message is not None and message.error() is None
    consumer.commit(offsets=[TopicPartition(PLAIN, each, 10 + each) for each in range(3)], asynchronous=False)
    consumer.close()


def _subscription(broker: BrokerProcess) -> None:
    client = pulsar.Client(broker.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe(PULSAR, "s", pulsar.ConsumerType.Shared, schema=pulsar.schema.StringSchema())
    producer = client.create_producer(PULSAR, schema=pulsar.schema.StringSchema(), batching_enabled=False)
    for number in range(10):
        producer.send(f"message {number}", properties={"n": str(number)})
    for _ in range(10):
        message = consumer.receive(60_000)
        if int(message.properties()["n"]) % 2:
            consumer.acknowledge(message)
    client.close()


def main() -> None:
    """Write the archive."""
    number = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory) / "data"
        with BrokerProcess(data, *OPTIONS) as broker:
            fill(broker)
            broker.end()
        (data / "lock").unlink(missing_ok=True)
        with tarfile.open(HERE / f"format-{number}.tar.xz", "w:xz", preset=9) as archive:
            archive.add(data, "data")
    print(json.dumps({"format": number, "bytes": (HERE / f"format-{number}.tar.xz").stat().st_size}))


if __name__ == "__main__":
    main()
