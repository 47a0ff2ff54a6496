"""What Pulsar's entry format costs Kafka's clients: the same topics in ``entry.format=kafka`` and ``=pulsar``."""

from __future__ import annotations

import os

from benchmarks import librdkafka, tools
from benchmarks.peers.server import Server
from benchmarks.samples import Samples
from benchmarks.thin import ThinClient

FORMATS = ("kafka", "pulsar")
_PARTITIONS = 4
_SIZE = 1000


def server_name(entry_format: str) -> str:
    """Give the name under which a format's figures stand."""
    return f"magnetar, entry.format={entry_format}"


def measure(server: Server, samples: Samples, rounds: int, records: int) -> None:
    """Fill a topic of each format in turn, then read them in turn, with Kafka's own clients."""
    for number in range(rounds):
        topics = {name: f"{name}-{number}" for name in FORMATS}
        for name, topic in topics.items():
            with ThinClient.to(server.address) as client:
                client.create_topics([topic], _PARTITIONS, {"entry.format": name})
            _produce(server, samples, name, topic, records)
        os.sync()
        for _ in range(2):
            for name, topic in topics.items():
                _consume(server, samples, name, topic)


def _produce(server: Server, samples: Samples, name: str, topic: str, records: int) -> None:
    cpu = server.cpu_seconds()
    warm_up = records // 3
    done = tools.producer_perf(server.address, topic, records=records + warm_up, size=_SIZE, warm_up=warm_up)
    used = (server.cpu_seconds() - cpu) * 1e6 / (records + warm_up)
    samples.add("Kafka produce 1000 B, records/s", server_name(name), done.records_per_s)
    samples.add("Kafka produce 1000 B, broker us/record", server_name(name), used)


def _consume(server: Server, samples: Samples, name: str, topic: str) -> None:
    with ThinClient.to(server.address) as client:
        records = sum(client.end_offset(topic, partition) for partition in range(_PARTITIONS))
    cpu = server.cpu_seconds()
    found = librdkafka.read(server.address, topic, _PARTITIONS, records, {})
    used = (server.cpu_seconds() - cpu) * 1e6 / records
    samples.add("Kafka consume 1000 B, records/s", server_name(name), found.records / found.seconds)
    samples.add("Kafka consume 1000 B, broker us/record", server_name(name), used)
