"""The page's pictures: every measure that both have as a multiple of the other's, with its bar."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.figures import GROUPS, Figures
from benchmarks.peers.kafka import Kafka, KafkaFlushing
from benchmarks.peers.magnetar import Magnetar, MagnetarOs
from benchmarks.peers.pulsar import Pulsar
from benchmarks.samples import Bar
from benchmarks.spark_bars import SPARK_BARS

IMAGES = Path(__file__).parent.parent / "docs" / "images"
_MET, _MISSED, _BAR = "#2a9d8f", "#e9a03b", "#264653"
_OS, _ALWAYS, _WHOLE = MagnetarOs.name, Magnetar.name, "defaults, whole run, records/s"
_CHOSEN = (
    ("produce 1 KB, page cache as Kafka", f"produce 1000 B, {_WHOLE}", _OS, Kafka.name),
    ("produce 1 KB, on disk, against Kafka's page cache", f"produce 1000 B, {_WHOLE}", _ALWAYS, Kafka.name),
    ("produce 1 KB, on disk on both sides", f"produce 1000 B, {_WHOLE}", _ALWAYS, KafkaFlushing.name),
    ("produce 100 B, page cache as Kafka", f"produce 100 B, {_WHOLE}", _OS, Kafka.name),
    ("consume 1 KB, librdkafka", "consume 1000 B, librdkafka defaults, records/s", _OS, Kafka.name),
    ("consume 1 KB, Kafka's perf tool", "consume 1000 B, consumer-perf-test, fetch MB/s", _OS, Kafka.name),
    ("Pulsar's producer, 1 KB", "Pulsar, produce 1000 B, messages/s", _OS, Pulsar.name),
    ("Pulsar's consumer, 1 KB, on disk", "Pulsar, consume 1000 B, messages/s", _ALWAYS, Pulsar.name),
    ("Spark reads 100 B", "Spark, 100 B, none: to noop, rows/s", _OS, Kafka.name),
    ("Spark reads 1 KB", "Spark, 1000 B, none: to noop, rows/s", _OS, Kafka.name),
)


def draw(figures: Figures) -> None:
    """Draw both pictures: some measures of every group, and all of Spark's rates."""
    bars = {(bar.measure, bar.ours, bar.against): bar for group in GROUPS for bar in group.bars}
    chosen = [(name, bars[measure, ours, theirs]) for name, measure, ours, theirs in _CHOSEN]
    _draw(
        figures,
        chosen,
        "times the rate of Kafka, Pulsar, Spark's own Kafka connector",
        "benchmarks.png",
    )
    spark = [
        (bar.measure.removeprefix("Spark, ").removesuffix(", rows/s"), bar)
        for bar in SPARK_BARS
        if bar.against and bar.higher_is_better
    ]
    _draw(figures, spark, "times the rows/s of Spark's own Kafka connector on Kafka", "spark-benchmarks.png")


def _draw(figures: Figures, named: Sequence[tuple[str, Bar]], axis: str, file: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [(name, bar, value) for name, bar in named if (value := figures.value(bar)) is not None]
    if not shown:
        return
    picture, axes = pyplot.subplots(figsize=(9, 0.32 * len(shown) + 1.2))
    for place, (_, bar, value) in enumerate(shown):
        axes.barh(place, value, color=_MET if bar.is_met(value) else _MISSED, height=0.7)
        axes.plot([bar.limit, bar.limit], [place - 0.42, place + 0.42], color=_BAR, linewidth=2)
        axes.text(max(value, bar.limit), place, f" {value:.2f} x", va="center", fontsize=8)
    axes.set_yticks(range(len(shown)), [name for name, _, _ in shown], fontsize=8)
    axes.axvline(1, color="#bbbbbb", linewidth=0.8, zorder=0)
    axes.invert_yaxis()
    axes.set_xlabel(f"{axis}; the dark mark is our bar, orange misses it", fontsize=8, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    picture.tight_layout()
    picture.savefig(IMAGES / file, dpi=110, metadata={"Software": None})
    pyplot.close(picture)
