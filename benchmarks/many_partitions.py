"""Ten thousand partitions with a record in each: memory, and how soon a restarted broker serves them."""

from __future__ import annotations

import time

from benchmarks.peers.server import Server
from benchmarks.samples import Samples
from benchmarks.thin import ThinClient

TOPICS = [f"many-{number}" for number in range(100)]
PARTITIONS = 100


def measure(server: Server, samples: Samples, restarts: int) -> None:
    """Fill a fresh broker, then restart it, once cleanly and then killed, and use it at once."""
    server.start()
    began = time.perf_counter()
    with ThinClient.to(server.address) as client:
        for topic in TOPICS:
            client.create_topics([topic], PARTITIONS)
            client.produce(topic, list(range(PARTITIONS)), b"x" * 100)
        samples.add("10,000 partitions: created and written, s", server.name, time.perf_counter() - began)
        samples.add("10,000 partitions: memory, MB", server.name, server.rss_mb())
    for end in [server.stop, server.kill] * restarts:
        end()
        server.launch()
        with ThinClient(server.connect(120)) as client:
            topic = TOPICS[-1]
            client.wait_for_leaders(topic)
            (offset,) = client.produce(topic, [PARTITIONS - 1], b"again")
            assert client.fetch(topic, PARTITIONS - 1, offset)
            taken = time.perf_counter() - server.launched
            samples.add("10,000 partitions: restart to serving, s", server.name, taken)
            for topic in TOPICS:
                client.produce(topic, list(range(PARTITIONS)), b"y" * 100)
            samples.add("10,000 partitions: memory, MB", server.name, server.rss_mb())
