"""The stage ``pulsar``: Pulsar's clients on our broker and on Pulsar's, under the load of Pulsar's own pulsar-perf."""

from __future__ import annotations

import os
import time

from benchmarks import pulsar_perf
from benchmarks.peers.magnetar import MagnetarForPulsar
from benchmarks.peers.pulsar import Pulsar
from benchmarks.samples import Samples

_SIZE = 1000
_PER_S = 1000
_REST_S = 5  # from serving until it is looked at as an idle one


def measure(
    server: MagnetarForPulsar | Pulsar, samples: Samples, messages: int, latency_s: int, begins: str = ""
) -> None:
    """Look at it idle, produce, read what was produced, look at its memory, and send at a fixed rate.

    ``begins`` is what names of topics begin with, where earlier ones outlive the server.
    """

    def topic(name: str) -> str:
        return f"persistent://public/default/{begins}{name}"

    url = server.service_url
    time.sleep(_REST_S)
    samples.add("Pulsar, memory idle, MB", server.name, server.rss_mb())
    pulsar_perf.produce(url, topic("warm-up"), messages=messages // 3, size=_SIZE)
    pulsar_perf.consume(url, topic("warm-up"), messages=messages // 3, subscription="reader")
    os.sync()
    cpu = server.cpu_seconds()
    rate = pulsar_perf.produce(url, topic("load"), messages=messages, size=_SIZE)
    produced = server.cpu_seconds()
    samples.add("Pulsar, produce 1000 B, messages/s", server.name, rate)
    samples.add("Pulsar, produce 1000 B, broker us/message", server.name, (produced - cpu) * 1e6 / messages)
    rate = pulsar_perf.consume(url, topic("load"), messages=messages, subscription="reader")
    used = (server.cpu_seconds() - produced) * 1e6 / messages
    samples.add("Pulsar, consume 1000 B, messages/s", server.name, rate)
    samples.add("Pulsar, consume 1000 B, broker us/message", server.name, used)
    samples.add("Pulsar, memory after the load, MB", server.name, server.rss_mb())
    found = pulsar_perf.latency(url, topic("latency"), rate=_PER_S, seconds=latency_s, size=_SIZE)
    samples.add("Pulsar, 1,000 messages/s: to receipt p50, ms", server.name, found.send.p50_ms)
    samples.add("Pulsar, 1,000 messages/s: to receipt p99, ms", server.name, found.send.p99_ms)
    samples.add("Pulsar, 1,000 messages/s: to consumer p50, ms", server.name, found.receive.p50_ms)
    samples.add("Pulsar, 1,000 messages/s: to consumer p99, ms", server.name, found.receive.p99_ms)
