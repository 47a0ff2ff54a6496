"""A share group of eight consumers: Kafka's share-consumer-perf-test over a topic of four partitions."""

from __future__ import annotations

import os

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from benchmarks import shapes, tools
from benchmarks.peers.server import Server
from benchmarks.samples import Samples
from benchmarks.thin import ThinClient

CONSUMERS = 8
_TOPIC, _PARTITIONS = "worked-off", 4


def fill(server: Server, records: int) -> None:
    """Make the topic."""
    with ThinClient.to(server.address) as client:
        client.create_topics([_TOPIC], _PARTITIONS)
    shapes.produce(server, _TOPIC, "all alike", 100, records)
    os.sync()


def measure(server: Server, samples: Samples, turn: int, records: int) -> None:
    """Have a group that nobody knows yet work the topic off; the first turn warms up and is not told."""
    group = f"workers-{turn}"
    resource = ConfigResource(
        ResourceType.GROUP,
        group,
        incremental_configs=[
            ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    admin = AdminClient({"bootstrap.servers": server.address})
    for change in admin.incremental_alter_configs([resource]).values():
        change.result(30)
    cpu = server.cpu_seconds()
    rate = tools.share_consumer_perf(server.address, _TOPIC, group, records=records, threads=CONSUMERS)
    used = (server.cpu_seconds() - cpu) * 1e6 / records
    if turn:
        samples.add("share group, 8 consumers, records/s", server.name, rate)
        samples.add("share group, 8 consumers, broker us/record", server.name, used)
