"""The stage ``spark``: topics read with Spark from our ledgers, and from Kafka through Spark's own connector."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.peers.kafka import Kafka
from benchmarks.peers.magnetar import Magnetar
from benchmarks.samples import Samples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.peers.server import Server
    from benchmarks.spark_read import Topic


class Sizes(NamedTuple):
    """How many records the topics have, and how often each is read."""

    rounds: int
    records_100: int
    records_1k: int
    records_large: int


def measure(codec: str, ours: Magnetar, theirs: Kafka, samples: Samples, scratch: Path, sizes: Sizes) -> None:
    """Fill both brokers with the same topics of one codec, and read them in every way."""
    from benchmarks import spark_measures, spark_read  # the other stages need no Spark
    from benchmarks.spark_reading import Reading

    some = spark_read.topics(codec, sizes.records_100, sizes.records_1k)
    _fill(some, (ours, theirs), scratch)
    with (
        Reading(ours, scratch, 2) as our_reading,
        Reading(theirs, scratch, 2) as their_reading,
        Reading(ours, scratch, 2, ready=True) as ready,
    ):
        for reading in (our_reading, their_reading, ready):
            reading.warm_up(some[0])
        for topic in some:
            spark_measures.measure_topic(our_reading, their_reading, ready, topic, samples, sizes.rounds)


def measure_parts(ours: Magnetar, theirs: Kafka, samples: Samples, scratch: Path, sizes: Sizes) -> None:
    """Read little of a topic, and a topic of one partition on one core and on two."""
    from benchmarks import spark_filters, spark_measures, spark_read
    from benchmarks.spark_session import session

    one = spark_read.Topic("spark-one-partition", 100, "none", sizes.records_100, partitions=1)
    large = spark_read.Topic("spark-large", 100, "none", sizes.records_large)
    _fill([one], (ours, theirs), scratch)
    spark_measures.measure_cores(ours, theirs, one, samples, scratch, sizes.rounds)
    print(f"filling {large.name}, {large.records:,} records", flush=True)
    spark_filters.fill(ours, large)
    os.sync()
    spark = session(2)
    for topic, name in ((one, "a topic"), (large, "a large topic"), (large, "a large topic at rest")):
        if name.endswith("at rest"):  # indexes leave out what came last, up to 64 MB a partition
            ours.stop()
            ours.start()
        spark_filters.measure(spark, ours, topic, name, samples, scratch, sizes.rounds)
    spark.stop()


def _fill(topics: Sequence[Topic], servers: Sequence[Server], scratch: Path) -> None:
    from benchmarks import spark_read

    scratch.mkdir(parents=True, exist_ok=True)
    for topic in topics:
        print(f"filling {topic.name}, {topic.records:,} records", flush=True)
        for server in servers:
            spark_read.fill(server, topic, scratch)
    os.sync()
