"""How fast Spark reads a topic, from our ledgers and from Kafka by its own connector, in turn and in one session."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks import tools
from benchmarks.peers.kafka import Kafka
from benchmarks.peers.magnetar import Magnetar
from benchmarks.peers.server import Server
from benchmarks.samples import Samples
from benchmarks.spark_bars import measure
from benchmarks.spark_session import Usage, session
from benchmarks.thin import ThinClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("key", "value", "partition", "offset", "timestamp")
_WARM_UPS = 2
_COMMITS = 4  # by the direct writer, where it follows a topic step by step


class Topic(NamedTuple):
    """One topic that both brokers have."""

    name: str
    size: int
    codec: str
    records: int
    partitions: int = 4


def topics(codec: str, records_100: int, records_1k: int) -> list[Topic]:
    """Give the topics of one codec that are read in every way."""
    return [
        Topic(f"spark-{size}-{codec}", size, codec, records)
        for size, records in ((100, records_100), (1000, records_1k))
    ]


def fill(server: Server, topic: Topic, scratch: Path) -> None:
    """Write the topic's records: random letters, or for a codec lines that it can make smaller."""
    with ThinClient.to(server.address) as client:
        client.create_topics([topic.name], topic.partitions)
    properties = ["batch.size=65536", "linger.ms=5"]
    if topic.codec != "none":
        properties.append(f"compression.type={topic.codec}")
    tools.producer_perf(
        server.address,
        topic.name,
        records=topic.records,
        size=topic.size,
        properties=tuple(properties),
        payload=payload(topic.size, topic.codec, scratch),
    )


def payload(size: int, codec: str, scratch: Path) -> Path | None:
    """Give a file of lines that a codec can make smaller; None without a codec, for random letters."""
    if codec == "none":
        return None
    path = scratch / f"payload-{size}.txt"
    path.write_text("\n".join(_line(number, size) for number in range(10_000)) + "\n")
    return path


def _line(number: int, size: int) -> str:
    fields = {
        "id": number * 7919 % 1_000_003,
        "carrier": ["UA", "DL", "AA", "WN", "B6"][number % 5],
        "delay": number % 97,
    }
    text = json.dumps(fields)[:-1]
    while len(text) < size - 24:
        text += f', "f{len(text)}": {number * 31 % 9973}'
    return text[: size - 2].ljust(size - 2, " ") + " }"


class Readers:
    """Ways to read and to write, each giving the number of rows; Kafka's and ours by the same names."""

    def __init__(self, spark: SparkSession, ours: Magnetar, theirs: Kafka, scratch: Path) -> None:
        self._spark = spark
        self._ours = ours
        self._theirs = theirs
        self._scratch = scratch

    def source(self, server: Server, topic: str, *, stream: bool = False) -> Any:
        reader = self._spark.readStream if stream else self._spark.read
        if isinstance(server, Kafka):
            kafka = reader.format("kafka").option("kafka.bootstrap.servers", server.address)
            return kafka.option("subscribe", topic).option("startingOffsets", "earliest")
        ours = reader.format("magnetar").option("subscribe", topic).option("startingOffsets", "earliest")
        return ours.option("columns", ",".join(COLUMNS)).option("path", str(server.data / "data"))

    def frame(self, server: Server, topic: str) -> DataFrame:
        return self.source(server, topic).load().select(*COLUMNS)

    def to_noop(self, server: Server, topic: Topic) -> None:
        self.frame(server, topic.name).write.format("noop").mode("overwrite").save()

    def to_parquet(self, server: Server, topic: Topic) -> None:
        self.frame(server, topic.name).write.mode("overwrite").parquet(str(self._fresh("table")))

    def available_now(self, server: Server, topic: Topic) -> None:
        table, checkpoint = self._fresh("stream"), self._fresh("checkpoint")
        writer = (
            self.source(server, topic.name, stream=True).load().select(*COLUMNS).writeStream.format("parquet")
        )
        query = (
            writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start(str(table))
        )
        query.awaitTermination()

    def direct(self, server: Server, topic: Topic) -> None:
        self._direct(server, topic, None)

    def direct_flushed(self, server: Server, topic: Topic) -> None:
        self._direct(server, topic, None, flush=True)

    def direct_available_now(self, server: Server, topic: Topic) -> None:
        self._direct(server, topic, -(-topic.records // _COMMITS))

    def _direct(self, server: Server, topic: Topic, at_once: int | None, *, flush: bool = False) -> None:
        """Spark's own writer leaves its files to the page cache; so does this one, unless told to ``flush``."""
        from pyarrow import schema

        from magnetar.pipeline import tables
        from magnetar.pipeline.tables.engine import SparkEngine
        from magnetar.records.arrow import FIELDS

        columns = schema([(name, FIELDS[name]) for name in ("topic", *COLUMNS)])
        table = tables.open(
            self._fresh("direct"), "parquet", schema=columns, layout=tables.Layout(flush=flush)
        )
        report = tables.sync(
            topic.name, table, options={"path": str(server.data / "data")}, engine=SparkEngine(self._spark),
            max_offsets_per_commit=at_once,
        )  # fmt: skip
        assert report.rows == topic.records

    def _fresh(self, name: str) -> Path:
        path = self._scratch / name
        shutil.rmtree(path, ignore_errors=True)
        return path


def measure_topic(
    spark: SparkSession,
    ours: Magnetar,
    theirs: Kafka,
    topic: Topic,
    samples: Samples,
    scratch: Path,
    rounds: int,
    *,
    warm_up: bool,
) -> None:
    """Read one topic every way, first ours, then Kafka's, and again; a round to warm up is left out.

    ``warm_up`` says that the session is new: the JVM compiles until the third time or so that either source is read.
    """
    readers = Readers(spark, ours, theirs, scratch)
    for _ in range(_WARM_UPS if warm_up else 0):
        for server in (ours, theirs):
            readers.to_noop(server, topic)
    ways: list[tuple[str, Callable[[Server, Topic], None], Callable[[Server, Topic], None]]] = [
        ("to noop", readers.to_noop, readers.to_noop),
        ("to Parquet", readers.to_parquet, readers.to_parquet),
        ("to Parquet by the direct writer", readers.direct, readers.to_parquet),
        ("to Parquet by the direct writer, flushed to disk", readers.direct_flushed, readers.to_parquet),
        ("AvailableNow to Parquet", readers.available_now, readers.available_now),
        ("AvailableNow by the direct writer", readers.direct_available_now, readers.available_now),
    ]
    usage = Usage((ours.pid, theirs.pid))
    done: dict[str, tuple[float, float]] = {}
    for number in range(rounds + 1):
        done.clear()
        for what, our_way, their_way in ways:
            for server, way in ((ours, our_way), (theirs, their_way)):
                known = way.__name__ if server is theirs else what
                if server is ours or known not in done:
                    figures = _timed(way, server, topic, usage)
                    if server is theirs:
                        done[known] = figures
                else:
                    figures = done[known]  # Kafka has one way only, run a moment ago
                seconds, cpu = figures
                if number:
                    samples.add(measure(what, topic.size, topic.codec), server.name, topic.records / seconds)
                    gigabytes = topic.records * topic.size / 1e9
                    unit = "CPU s per GB"
                    samples.add(measure(what, topic.size, topic.codec, unit), server.name, cpu / gigabytes)
    samples.add("Spark, memory of a Python worker, MB", ours.name, usage.worker_mb())


def _timed(
    way: Callable[[Server, Topic], None], server: Server, topic: Topic, usage: Usage
) -> tuple[float, float]:
    """Give seconds, and the processor's seconds of Spark, its workers and the broker."""
    os.sync()  # what was written before is not to hold this up
    cpu = usage.cpu_seconds() + server.cpu_seconds()
    began = time.perf_counter()
    way(server, topic)
    return time.perf_counter() - began, usage.cpu_seconds() + server.cpu_seconds() - cpu


def measure_cores(
    ours: Magnetar, theirs: Kafka, topic: Topic, samples: Samples, scratch: Path, rounds: int
) -> None:
    """Read a topic of one partition on two cores and on one."""
    rates: dict[tuple[str, int], float] = {}
    for cores in (2, 1):
        readers = Readers(session(cores), ours, theirs, scratch)
        for server in (ours, theirs):
            times = []
            for _ in range(rounds + 1):
                began = time.perf_counter()
                readers.to_noop(server, topic)
                times.append(time.perf_counter() - began)
            rates[server.name, cores] = topic.records / min(times[1:])
            samples.add(
                f"Spark, one partition, {cores} cores, rows/s", server.name, rates[server.name, cores]
            )
    for server in (ours, theirs):
        times_faster = rates[server.name, 2] / rates[server.name, 1]
        samples.add("Spark, one partition: 2 cores against 1, times", server.name, times_faster)
