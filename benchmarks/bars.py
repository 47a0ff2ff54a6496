"""Every bar in one table."""

from __future__ import annotations

from benchmarks.peers.kafka import Kafka, KafkaFlushing
from benchmarks.peers.magnetar import Magnetar, MagnetarOs
from benchmarks.samples import Bar
from benchmarks.shapes import SHAPES

OS, ALWAYS, KAFKA, FLUSHING = MagnetarOs.name, Magnetar.name, Kafka.name, KafkaFlushing.name

BARS = (
    *(
        Bar(f"produce {size} B, {properties}, {part}records/s", ours, against, limit, higher_is_better=True)
        for size in (1000, 100)
        for properties in ("defaults", "tuned")
        for part in ("", "whole run, ")
        for ours, against, limit in ((OS, KAFKA, 1.3), (ALWAYS, KAFKA, 1.0), (ALWAYS, FLUSHING, 4.0))
    ),
    *(
        Bar(f"produce 100 B, {shape}, {unit}", OS, KAFKA, 1.0, higher_is_better=unit == "records/s")
        for shape in SHAPES
        for unit in ("records/s", "broker us/record")
    ),
    *(
        Bar(f"consume 1000 B, librdkafka {properties}, records/s", OS, KAFKA, 1.5, higher_is_better=True)
        for properties in ("defaults", "tuned")
    ),
    Bar("consume 1000 B, consumer-perf-test, fetch MB/s", OS, KAFKA, 1.5, higher_is_better=True),
    Bar("latency p50, ms", OS, KAFKA, 0.6),
    Bar("latency p99, ms", OS, KAFKA, 0.5),
    Bar("latency p99, ms", ALWAYS, KAFKA, 1.0),
    Bar("memory after the load, MB", OS, None, 120),
    Bar("memory after reading, MB", OS, None, 120),
    Bar("memory after the load, MB", ALWAYS, None, 120),
    Bar("memory idle, MB", ALWAYS, None, 60),
    Bar("processor idle, % of a core", ALWAYS, None, 0.5),
    Bar("launch to first produce and consume, s", ALWAYS, None, 0.6),
    Bar("10,000 partitions: restart to serving, s", ALWAYS, None, 3),
    Bar("10,000 partitions: memory, MB", ALWAYS, None, 400),
    Bar("kill -9 with much on disk: restart to serving, s", OS, None, 2),
    Bar("kill -9 with much on disk: restart to serving, s", ALWAYS, None, 2),
)
