"""Brokers that are there all the time and do the same work one right after the other.

A machine's speed changes from minute to minute by more than what is looked for, so what is compared is each turn's
ratio. Each turn another begins. One process and another of the same code may differ by a tenth for as long as they run,
for where their memory lies: so there are two of each side, and what these differ by is told.
"""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Sequence
from typing import TypeVar

import pulsar

from benchmarks import librdkafka, shapes
from benchmarks.peers.magnetar import MagnetarForPulsar
from benchmarks.peers.server import Server
from benchmarks.samples import Samples
from benchmarks.thin import ThinClient

_TUNED = {"fetch.message.max.bytes": 8 << 20, "fetch.max.bytes": 64 << 20, "queued.min.messages": 1_000_000}


AGAIN = " again"
"""Behind the name of a side's second broker."""
_T = TypeVar("_T")


def rotated(servers: Sequence[_T], number: int) -> Sequence[_T]:
    """Return them with another one first each turn."""
    first = number % len(servers)
    return [*servers[first:], *servers[:first]]


def measure(servers: Sequence[Server], samples: Samples, records: int, turns: int) -> None:
    """Produce 100 B and 1 KB, all alike and not, and read the larger ones."""
    for size, name, count in (
        (100, "all alike", records),
        (100, "keys, 3 headers, varied", records),
        (1000, "all alike", records // 2),
    ):
        topic = f"t-{size}-{name.replace(', ', '-').replace(' ', '-')}"
        for server in servers:
            with ThinClient.to(server.address) as client:
                client.create_topics([topic], 4)
            # The first turns of both compile and fill caches.
            shapes.produce(server, topic, name, size, count // 4)
        for number in range(turns):
            for server in rotated(servers, number):
                os.sync()  # lest one pays for what the other wrote
                rate, used = shapes.produce(server, topic, name, size, count)
                samples.add(f"produce {size} B, {name}, us/record", server.name, used)
                samples.add(f"produce {size} B, {name}, records/s", server.name, rate)
    there = count // 4 + count * turns
    for number in range(1 + turns):
        for server in rotated(servers, number):
            used = read(server, topic, there)
            if number:
                samples.add("consume 1000 B, us/record", server.name, used)
    for server in servers:
        samples.add("memory after it, MB", server.name, server.rss_mb())


def measure_dispatch(
    servers: Sequence[MagnetarForPulsar], samples: Samples, messages: int, turns: int
) -> None:
    """Read entries of one message of 100 B each by Shared subscriptions, a new one each turn, and acknowledge each."""
    topic = "dispatched"
    for server in servers:
        with contextlib.closing(_client(server)) as client:
            producer = client.create_producer(topic, batching_enabled=False, block_if_queue_full=True)
            for _ in range(messages):
                producer.send_async(bytes(100), lambda result, _: None)
            producer.flush()
    for number in range(1 + turns):
        for server in rotated(servers, number):
            used = _dispatch(server, topic, messages, number)
            if number:
                samples.add("Shared, entries of one message, us/record", server.name, used)


def _dispatch(server: MagnetarForPulsar, topic: str, messages: int, turn: int) -> float:
    with contextlib.closing(_client(server)) as client:
        consumer = client.subscribe(
            topic,
            f"turn-{turn}",
            pulsar.ConsumerType.Shared,
            initial_position=pulsar.InitialPosition.Earliest,
            receiver_queue_size=1000,
        )
        cpu = server.cpu_seconds()
        for _ in range(messages):
            consumer.acknowledge(consumer.receive())
        used = server.cpu_seconds() - cpu
        consumer.unsubscribe()
    return used * 1e6 / messages


def _client(server: MagnetarForPulsar) -> pulsar.Client:
    return pulsar.Client(server.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def read(server: Server, topic: str, records: int) -> float:
    """Read all of a topic; give the broker's microseconds for each record."""
    cpu = server.cpu_seconds()
    librdkafka.read(server.address, topic, 4, records, _TUNED)
    return (server.cpu_seconds() - cpu) * 1e6 / records


def told(samples: Samples, first: str, second: str) -> dict[str, float]:
    """Print a table of medians and ratios; return the median of the turns' ratios by measure.

    The last column has the median of the ratios of each side's second broker to its first, where there are two.
    """
    print(
        f"\n| {'measure':<49} | {first} | {second} | ratio | half of the ratios | of the same |\n"
        "|---|---:|---:|---:|---:|---:|"
    )
    found = {}
    for name, servers in samples.values.items():
        of_first, of_second = (
            [servers[each] for each in (side, side + AGAIN) if each in servers] for side in (first, second)
        )
        before, after = (
            [statistics.mean(turn) for turn in zip(*side, strict=True)] for side in (of_first, of_second)
        )
        low, found[name], high = _quarters(after, before)
        same = " and ".join(
            f"{_quarters(side[1], side[0])[1]:.3f}" for side in (of_first, of_second) if len(side) > 1
        )
        print(
            f"| {name:<49} | {statistics.median(before):,.3f} | {statistics.median(after):,.3f} | {found[name]:.3f} | "
            f"{low:.3f} to {high:.3f} | {same} |"
        )
    return found


def _quarters(upper: Sequence[float], lower: Sequence[float]) -> list[float]:
    ratios = [a / b for a, b in zip(upper, lower, strict=True)]
    return statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
