"""How fast a topic of four partitions can be read: with librdkafka, with confluent-kafka for Python on top of it, and
with Kafka's consumer-perf-test.
"""

from __future__ import annotations

import time

from benchmarks import librdkafka, tools
from benchmarks.peers.server import Server
from benchmarks.samples import Samples
from benchmarks.thin import ThinClient

# The same for every server. Tuned: large answers, and enough of them kept ready that the client never waits by itself.
_PROPERTIES: dict[str, dict[str, int]] = {
    "defaults": {},
    "tuned": {
        "fetch.message.max.bytes": 8 << 20,
        "fetch.max.bytes": 64 << 20,
        "queued.min.messages": 1_000_000,
        "queued.max.messages.kbytes": 512 << 10,
    },
}


def fill(server: Server, size: int, records: int) -> str:
    """Write so many records; give the name of the topic that holds them."""
    with ThinClient.to(server.address) as client:
        client.create_topics(["consume"], 4)
    properties = ("batch.size=65536", "linger.ms=5")
    tools.producer_perf(server.address, "consume", records=records, size=size, properties=properties)
    return "consume"


def measure(server: Server, samples: Samples, topic: str, size: int) -> None:
    """Read ``topic`` from its beginning, once with each client."""
    with ThinClient.to(server.address) as client:
        records = sum(client.end_offset(topic, partition) for partition in range(4))
    for name, properties in _PROPERTIES.items():
        measure_name = f"consume {size} B, librdkafka {name}"
        cpu = server.cpu_seconds()
        found = librdkafka.read(server.address, topic, 4, records, properties)
        used = (server.cpu_seconds() - cpu) * 1e6 / records
        samples.add(f"{measure_name}, records/s", server.name, found.records / found.seconds)
        samples.add(f"{measure_name}, broker us/record", server.name, used)
        samples.add(
            f"{measure_name}, client us/record", server.name, found.client_cpu_seconds * 1e6 / records
        )
    rate = confluent_kafka(server, topic, records)
    samples.add(f"consume {size} B, confluent-kafka for Python, records/s", server.name, rate)
    rate = tools.consumer_perf(server.address, topic, records=records)
    samples.add(f"consume {size} B, consumer-perf-test, fetch MB/s", server.name, rate)


def confluent_kafka(server: Server, topic: str, records: int) -> float:
    """Return the records per second from the first to the last."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": server.address, "group.id": "reader"})
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(4)])
        first = consumer.consume(1, timeout=60)
        started = time.perf_counter()
        got = len(first)
        while got < records:
            messages = consumer.consume(min(10_000, records - got), timeout=60)
            if not messages:
                raise RuntimeError(f"only {got} of {records} records came")
            got += len(messages)
        return got / (time.perf_counter() - started)
    finally:
        consumer.close()
