"""How long from the launch of a broker on fresh data until a first record went in and came out again."""

from __future__ import annotations

import time

from benchmarks.peers.server import Server
from benchmarks.samples import Samples
from benchmarks.thin import ThinClient


def measure(server: Server, samples: Samples) -> None:
    """Launch, connect as soon as it lets us, create a topic by asking for it, produce, fetch."""
    server.launch()
    with ThinClient(server.connect(60)) as client:
        connected = time.perf_counter()
        client.wait_for_leaders("first")
        (offset,) = client.produce("first", [0], b"first")
        assert client.fetch("first", 0, offset)
        served = time.perf_counter()
    samples.add("launch to first connection, s", server.name, connected - server.launched)
    samples.add("launch to first produce and consume, s", server.name, served - server.launched)
