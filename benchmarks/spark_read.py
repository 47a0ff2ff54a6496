"""What Spark reads, from our ledgers or from Kafka by its own connector, and the ways it does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks import tools
from benchmarks.peers.kafka import Kafka
from benchmarks.peers.server import Server
from benchmarks.thin import ThinClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("key", "value", "partition", "offset", "timestamp")
_COMMITS = 4  # by the direct writer, where it follows a topic step by step


class Topic(NamedTuple):
    """One topic that both brokers have."""

    name: str
    size: int
    codec: str
    records: int
    partitions: int = 4


def topics(codec: str, records_100: int, records_1k: int) -> list[Topic]:
    """Return the topics of one codec that are read in every way."""
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
    """Return a file of lines that a codec can make smaller; None without a codec, for random letters."""
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


class Source(NamedTuple):
    """What a Spark session reads: our ledgers by their directory, or a broker through Kafka's connector."""

    server: str
    address: str
    ledgers: Path
    by_connector: bool
    ready: bool = False
    """Whether its rows are made beforehand: `benchmarks.spark_ready`."""

    @classmethod
    def of(cls, server: Server, *, ready: bool = False) -> Source:
        return cls(server.name, server.address, server.data / "data", isinstance(server, Kafka), ready)


class Readers:
    """Ways to read and to write; Kafka's and ours by the same names."""

    def __init__(self, spark: SparkSession, source: Source, scratch: Path) -> None:
        self._spark = spark
        self._source = source
        self._scratch = scratch
        if source.ready:
            from benchmarks.spark_ready import ReadyDataSource

            spark.dataSource.register(ReadyDataSource)

    def clear(self) -> None:
        """Take away what was written before."""
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir(parents=True)

    def source(self, topic: str, *, stream: bool = False) -> Any:
        reader = self._spark.readStream if stream else self._spark.read
        if self._source.by_connector:
            kafka = reader.format("kafka").option("kafka.bootstrap.servers", self._source.address)
            return kafka.option("subscribe", topic).option("startingOffsets", "earliest")
        ours = reader.format("magnetar-ready" if self._source.ready else "magnetar")
        ours = ours.option("subscribe", topic).option("startingOffsets", "earliest")
        return ours.option("columns", ",".join(COLUMNS)).option("path", str(self._source.ledgers))

    def frame(self, topic: str) -> DataFrame:
        return self.source(topic).load().select(*COLUMNS)

    def to_noop(self, topic: Topic) -> None:
        self.frame(topic.name).write.format("noop").mode("overwrite").save()

    def to_parquet(self, topic: Topic) -> None:
        self.frame(topic.name).write.mode("overwrite").parquet(str(self._scratch / "table"))

    def available_now(self, topic: Topic) -> None:
        writer = self.source(topic.name, stream=True).load().select(*COLUMNS).writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self._scratch / "checkpoint"))
        writer.trigger(availableNow=True).start(str(self._scratch / "stream")).awaitTermination()

    def direct(self, topic: Topic) -> None:
        self._direct(topic, None)

    def direct_flushed(self, topic: Topic) -> None:
        self._direct(topic, None, flush=True)

    def direct_available_now(self, topic: Topic) -> None:
        self._direct(topic, -(-topic.records // _COMMITS))

    def _direct(self, topic: Topic, at_once: int | None, *, flush: bool = False) -> None:
        """Spark's own writer leaves its files to the page cache; so does this one, unless told to ``flush``."""
        from pyarrow import schema

        from magnetar.pipeline import tables
        from magnetar.pipeline.tables.engine import SparkEngine
        from magnetar.records.arrow import FIELDS

        columns = schema([(name, FIELDS[name]) for name in ("topic", *COLUMNS)])
        layout = tables.Layout(flush=flush)
        table = tables.open(self._scratch / "direct", "parquet", schema=columns, layout=layout)
        report = tables.sync(
            topic.name, table, options={"path": str(self._source.ledgers)}, engine=SparkEngine(self._spark),
            max_offsets_per_commit=at_once,
        )  # fmt: skip
        assert report.rows == topic.records
