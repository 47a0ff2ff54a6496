"""Two brokers that are there all the time and do the same work one right after the other.

A machine's speed changes from minute to minute by more than what is looked for, so what is compared is each turn's
ratio. Every second turn goes the other way round.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence

from benchmarks import librdkafka, shapes
from benchmarks.peers.server import Server
from benchmarks.samples import Samples, in_turn
from benchmarks.thin import ThinClient

_TUNED = {"fetch.message.max.bytes": 8 << 20, "fetch.max.bytes": 64 << 20, "queued.min.messages": 1_000_000}


def measure(pair: Sequence[Server], samples: Samples, records: int, turns: int) -> None:
    """Produce 100 B and 1 KB, all alike and not, and read the larger ones."""
    for size, name, count in (
        (100, "all alike", records),
        (100, "keys, 3 headers, varied", records),
        (1000, "all alike", records // 2),
    ):
        topic = f"t-{size}-{name.replace(', ', '-').replace(' ', '-')}"
        for server in pair:
            with ThinClient.to(server.address) as client:
                client.create_topics([topic], 4)
            # The first turns of both compile and fill caches.
            shapes.produce(server, topic, name, size, count // 4)
        for number in range(turns):
            for server in in_turn(pair, number):
                os.sync()  # lest one pays for what the other wrote
                rate, used = shapes.produce(server, topic, name, size, count)
                samples.add(f"produce {size} B, {name}, us/record", server.name, used)
                samples.add(f"produce {size} B, {name}, records/s", server.name, rate)
    there = count // 4 + count * turns
    for number in range(1 + turns):
        for server in in_turn(pair, number):
            used = read(server, topic, there)
            if number:
                samples.add("consume 1000 B, us/record", server.name, used)
    for server in pair:
        samples.add("memory after it, MB", server.name, server.rss_mb())


def read(server: Server, topic: str, records: int) -> float:
    """Read all of a topic; give the broker's microseconds for each record."""
    cpu = server.cpu_seconds()
    librdkafka.read(server.address, topic, 4, records, _TUNED)
    return (server.cpu_seconds() - cpu) * 1e6 / records


def told(samples: Samples, first: str, second: str) -> dict[str, float]:
    """Print a table of medians and ratios; return the median of the turns' ratios by measure."""
    print(
        f"\n| {'measure':<49} | {first} | {second} | ratio | half of the ratios |\n|---|---:|---:|---:|---:|"
    )
    found = {}
    for name, servers in samples.values.items():
        ratios = [after / before for before, after in zip(servers[first], servers[second], strict=True)]
        low, found[name], high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        was, now = (statistics.median(servers[side]) for side in (first, second))
        print(f"| {name:<49} | {was:,.3f} | {now:,.3f} | {found[name]:.3f} | {low:.3f} to {high:.3f} |")
    return found
