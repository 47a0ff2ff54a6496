"""What reading topics with Spark is held against: Spark's own Kafka connector on Kafka, each in a JVM of its own."""

from __future__ import annotations

from benchmarks.peers.kafka import Kafka
from benchmarks.peers.magnetar import MagnetarOs
from benchmarks.samples import Bar

_OS, _KAFKA = MagnetarOs.name, Kafka.name
READY = "ready-made Arrow batches"
"""What figures are called of rows that lay there ready-made (`benchmarks.spark_ready`): what can be reached at all."""

# By size of the values in bytes; the same bars hold for both codecs.
_AT_LEAST = {
    "to noop": {100: 4.0, 1000: 3.0},
    "to Parquet": {100: 1.9, 1000: 1.7},
    "to Parquet by the direct writer": {100: 6.0, 1000: 6.0},
    "AvailableNow to Parquet": {100: 1.4, 1000: 1.2},
    "AvailableNow by the direct writer": {100: 4.0, 1000: 4.0},
}


def measure(what: str, size: int, codec: str, unit: str = "rows/s") -> str:
    """Return a measure's name."""
    return f"Spark, {size} B, {codec}: {what}, {unit}"


def cores_measure(kind: str) -> str:
    """Return the name of how much faster two cores are than one."""
    return f"Spark, one partition: 2 cores against {kind}, times"


SPARK_BARS = (
    *(
        Bar(measure(what, size, codec), _OS, _KAFKA, limit, higher_is_better=True)
        for size in (100, 1000)
        for codec in ("none", "lz4")
        for what, limits in _AT_LEAST.items()
        for limit in (limits[size],)
    ),
    *(Bar(measure("to noop", size, "none", "CPU s per GB"), _OS, _KAFKA, 0.5) for size in (100, 1000)),
    *(Bar(measure("to Parquet", size, "none", "CPU s per GB"), _OS, _KAFKA, 0.5) for size in (100, 1000)),
    *(
        Bar(cores_measure(kind), _OS, None, 1.8, higher_is_better=True)
        for kind in ("1 of the machine's", "1 of Spark's")
    ),
    *(
        Bar(
            f"Spark, 1 % of the {part} of {name}: times faster than all", _OS, None, 20, higher_is_better=True
        )
        for name in ("a topic", "a large topic", "a large topic at rest")
        for part in ("offsets", "time")
    ),
    *(Bar(measure("memory of a Python worker", size, "none", "MB"), _OS, None, 300) for size in (100, 1000)),
)
