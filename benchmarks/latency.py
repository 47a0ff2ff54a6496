"""How long one record takes from the call that produces it to the call that returns it, one at a time."""

from __future__ import annotations

import statistics
import time

from benchmarks import tools
from benchmarks.peers.server import Server
from benchmarks.samples import Samples
from benchmarks.thin import ThinClient


def measure(server: Server, samples: Samples, times: int) -> None:
    """Measure with librdkafka (to a microsecond) and with Kafka's e2e-latency (to a millisecond)."""
    found = sorted(one_at_a_time(server.address, times))
    percentiles = statistics.quantiles(found, n=100)
    samples.add("latency p50, ms", server.name, percentiles[49])
    samples.add("latency p99, ms", server.name, percentiles[98])
    tool = tools.e2e_latency(server.address, "e2e", records=times, size=100)
    samples.add("latency p50 by e2e-latency, whole ms", server.name, tool.p50_ms)
    samples.add("latency p99 by e2e-latency, whole ms", server.name, tool.p99_ms)


def one_at_a_time(address: str, times: int, topic: str = "latency") -> list[float]:
    """Return the ms of ``times`` round trips of 100 B, after half as many that are not counted."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

    with ThinClient.to(address) as client:
        client.create_topics([topic], 1)
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0, "acks": "all"})
    consumer = Consumer({"bootstrap.servers": address, "group.id": "latency", "check.crcs": False})
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        found = []
        for _ in range(times + times // 2):
            began = time.perf_counter()
            producer.produce(topic, b"x" * 100)
            producer.poll(0)
            message = consumer.poll(60)
            found.append((time.perf_counter() - began) * 1000)
            if message is None or message.error():
                raise RuntimeError(f"the record did not come back: {message and message.error()}")
        return found[times // 2 :]
    finally:
        producer.flush(10)
        consumer.close()
