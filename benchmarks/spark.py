"""The stage ``spark``: topics read with Spark from our ledgers, and from Kafka through Spark's own connector."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers.kafka import Kafka
from benchmarks.peers.magnetar import Magnetar
from benchmarks.samples import Samples
from benchmarks.spark_bars import SPARK_BARS

if TYPE_CHECKING:
    pass

PICTURE = Path(__file__).parent.parent / "docs" / "images" / "spark-benchmarks.png"


def measure(
    ours: Magnetar,
    theirs: Kafka,
    samples: Samples,
    scratch: Path,
    rounds: int,
    records_100: int,
    records_1k: int,
) -> None:
    """Fill both brokers with the same topics, and read them in every way."""
    from benchmarks import spark_read  # the other stages need no Spark
    from benchmarks.spark_session import session

    scratch.mkdir(parents=True, exist_ok=True)
    some = spark_read.topics(records_100, records_1k)
    one = spark_read.Topic("spark-one-partition", 100, "none", records_100, partitions=1)
    for topic in (*some, one):
        print(f"filling {topic.name}, {topic.records:,} records", flush=True)
        for server in (ours, theirs):
            spark_read.fill(server, topic, scratch)
    os.sync()
    spark = session(2)
    for topic in some:
        spark_read.measure_topic(
            spark, ours, theirs, topic, samples, scratch, rounds, warm_up=topic is some[0]
        )
    spark_read.measure_filters(spark, ours, some[0], samples, scratch, rounds)
    spark_read.measure_cores(ours, theirs, one, samples, scratch, rounds)


def write_picture(samples: Samples) -> None:
    """Draw every measure that both have as a multiple of Kafka's, with its bar."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [
        bar for bar in SPARK_BARS if bar.against and bar.higher_is_better and samples.value(bar) is not None
    ]
    if not shown:
        return
    figure, axes = pyplot.subplots(figsize=(9, 0.32 * len(shown) + 1.2))
    places = range(len(shown))
    values = [samples.value(bar) or 0.0 for bar in shown]
    colours = [
        "#2a9d8f" if bar.is_met(value) else "#e9a03b" for bar, value in zip(shown, values, strict=True)
    ]
    axes.barh(places, values, color=colours, height=0.7)
    for place, bar, value in zip(places, shown, values, strict=True):
        axes.plot([bar.limit, bar.limit], [place - 0.42, place + 0.42], color="#264653", linewidth=2)
        axes.text(value, place, f" {value:.1f} x", va="center", fontsize=8)
    names = [bar.measure.removeprefix("Spark, ").removesuffix(", rows/s") for bar in shown]
    axes.set_yticks(places, names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("times the rows/s of Spark's own Kafka connector on Kafka; the mark is our bar")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(PICTURE, dpi=110)
    pyplot.close(figure)
