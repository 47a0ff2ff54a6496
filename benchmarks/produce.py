"""How many records a second are acknowledged: Kafka's producer-perf-test, acks=all, four partitions."""

from __future__ import annotations

from benchmarks import tools
from benchmarks.peers.server import Server
from benchmarks.samples import Samples
from benchmarks.thin import ThinClient

PROPERTIES: dict[str, tuple[str, ...]] = {
    "defaults": (),
    "tuned": ("batch.size=65536", "linger.ms=5"),
}


def measure(server: Server, samples: Samples, size: int, properties: str, records: int) -> str:
    """Produce ``records`` after a third as many to warm up; give the name of the topic that holds them."""
    topic = f"produce-{size}-{properties}"
    with ThinClient.to(server.address) as client:
        client.create_topics([topic], 4)
    cpu = server.cpu_seconds()
    warm_up = records // 3
    produced = tools.producer_perf(
        server.address,
        topic,
        records=records + warm_up,
        size=size,
        warm_up=warm_up,
        properties=PROPERTIES[properties],
    )
    used = (server.cpu_seconds() - cpu) * 1e6 / (records + warm_up)
    samples.add(f"produce {size} B, {properties}, records/s", server.name, produced.records_per_s)
    whole = f"produce {size} B, {properties}, whole run, records/s"
    samples.add(whole, server.name, produced.whole_records_per_s)
    samples.add(f"produce {size} B, {properties}, broker us/record", server.name, used)
    return topic
