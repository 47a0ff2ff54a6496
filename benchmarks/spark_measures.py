"""How fast Spark reads a topic, from our ledgers and from Kafka by its own connector, in turn."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from benchmarks.peers.server import Server
from benchmarks.samples import Samples, in_turn
from benchmarks.spark_bars import cores_measure, measure
from benchmarks.spark_read import Topic
from benchmarks.spark_reading import Figures, Reading

_LEFT_OUT = 2  # rounds of each way

WAYS = (
    # ours, and Kafka's to hold it against
    ("to noop", "to_noop", "to_noop"),
    ("to Parquet", "to_parquet", "to_parquet"),
    ("to Parquet by the direct writer", "direct", "to_parquet"),
    ("to Parquet by the direct writer, flushed to disk", "direct_flushed", "to_parquet"),
    ("AvailableNow to Parquet", "available_now", "available_now"),
    ("AvailableNow by the direct writer", "direct_available_now", "available_now"),
)


_READY = frozenset(("to_noop", "to_parquet"))
"""Ways that say most of what Spark takes by itself."""


def measure_topic(
    ours: Reading, theirs: Reading, ready: Reading, topic: Topic, samples: Samples, rounds: int
) -> None:
    """Read one topic way by way, ours and Kafka's in turn.

    The first rounds of each way are left out: what the JVM compiled for another way it throws away and compiles anew.
    """
    gigabytes = topic.records * topic.size / 1e9
    known: dict[str, list[Figures]] = {}
    for what, our_way, their_way in WAYS:
        figures: dict[str, list[Figures]] = {ours.server: [], theirs.server: [], ready.server: []}
        reading = [(ours, our_way)]
        if their_way not in known:
            reading.append((theirs, their_way))
        if our_way in _READY:
            reading.append((ready, our_way))
        for number in range(_LEFT_OUT + rounds):
            for reader, way in in_turn(reading, number):
                figures[reader.server].append(reader.read(way, topic))
        # Kafka has one way where we have several: it stands against each.
        figures[theirs.server] = known.setdefault(their_way, figures[theirs.server])
        for server, found in figures.items():
            for seconds, cpu in found[_LEFT_OUT:]:
                samples.add(measure(what, topic.size, topic.codec), server, topic.records / seconds)
                unit = "CPU s per GB"
                samples.add(measure(what, topic.size, topic.codec, unit), server, cpu / gigabytes)
    memory = measure("memory of a Python worker", topic.size, topic.codec, "MB")
    samples.add(memory, ours.server, ours.worker_mb())


def measure_cores(
    ours: Server, theirs: Server, topic: Topic, samples: Samples, scratch: Path, rounds: int
) -> None:
    """Read a topic of one partition with two cores and with one: of Spark's, and of the machine's.

    With one core of Spark (``local[1]``) the JVM and its Python worker still use two of the machine.
    """
    first = {min(os.sched_getaffinity(0))}
    kinds: dict[str, tuple[int, set[int] | None]] = {
        "2": (2, None),
        "1 of Spark's": (1, None),
        "1 of the machine's": (1, first),
    }
    for server in (ours, theirs):
        best = dict.fromkeys(kinds, float("inf"))
        with ExitStack() as running:
            readings = {
                kind: running.enter_context(Reading(server, scratch, cores, processors))
                for kind, (cores, processors) in kinds.items()
            }
            for reading in readings.values():
                reading.warm_up(topic)
            for _ in range(rounds + 1):
                for kind, reading in readings.items():
                    best[kind] = min(best[kind], reading.read("to_noop", topic).seconds)
        for kind, seconds in best.items():
            samples.add(f"Spark, one partition, cores: {kind}, rows/s", server.name, topic.records / seconds)
            if kind != "2":
                samples.add(cores_measure(kind), server.name, seconds / best["2"])
