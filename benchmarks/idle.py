"""What a broker costs that nobody uses: resident memory and processor time."""

from __future__ import annotations

import time

from benchmarks.peers.server import Server
from benchmarks.samples import Samples
from benchmarks.thin import ThinClient


def measure(server: Server, samples: Samples, seconds: float) -> None:
    """Use a fresh broker once, let it come to rest, then watch it for so many seconds."""
    with ThinClient.to(server.address) as client:
        client.create_topics(["idle"], 4)
        client.produce("idle", [0, 1, 2, 3], b"x" * 100)
    time.sleep(5)
    cpu, began = server.cpu_seconds(), time.perf_counter()
    time.sleep(seconds)
    share = (server.cpu_seconds() - cpu) / (time.perf_counter() - began)
    samples.add("processor idle, % of a core", server.name, share * 100)
    samples.add("memory idle, MB", server.name, server.rss_mb())
