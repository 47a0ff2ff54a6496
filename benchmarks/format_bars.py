"""What entry format ``pulsar`` may cost Kafka's clients and Spark: both are held against our own format ``kafka``."""

from __future__ import annotations

from benchmarks.samples import Bar

FORMATS = ("kafka", "pulsar")
SPARK_CODECS, SPARK_SIZES = ("none", "lz4"), (100, 1000)


def server_name(entry_format: str) -> str:
    """Return the name under which a format's figures stand."""
    return f"magnetar, entry.format={entry_format}"


def spark_measure(size: int, codec: str) -> str:
    """Return the name of a measure of Spark's."""
    return f"Spark, {size} B, {codec}: to noop, rows/s"


_KAFKA, _PULSAR = map(server_name, FORMATS)

FORMAT_BARS = (
    Bar("Kafka consume 1000 B, records/s", _PULSAR, _KAFKA, 0.5, higher_is_better=True),
    Bar("Kafka produce 1000 B, records/s", _PULSAR, _KAFKA, 0.5, higher_is_better=True),
    *(
        Bar(spark_measure(size, codec), _PULSAR, _KAFKA, 0.5, higher_is_better=True)
        for size in SPARK_SIZES
        for codec in SPARK_CODECS
    ),
)
