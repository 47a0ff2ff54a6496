"""What format ``pulsar`` costs Kafka's clients and Spark: equal topics in ``entry.format=kafka`` and ``=pulsar``."""

from __future__ import annotations

import os
import time
from pathlib import Path

from benchmarks import librdkafka, tools
from benchmarks.format_bars import FORMATS, SPARK_CODECS, SPARK_SIZES, server_name, spark_measure
from benchmarks.peers.server import Server
from benchmarks.samples import Samples, in_turn
from benchmarks.thin import ThinClient

_PARTITIONS = 4
_SIZE = 1000


def measure(server: Server, samples: Samples, rounds: int, records: int) -> None:
    """Fill a topic of each format in turn, then read them in turn, with Kafka's own clients."""
    for number in range(rounds):
        topics = {name: f"{name}-{number}" for name in FORMATS}
        for name, topic in in_turn(list(topics.items()), number):
            with ThinClient.to(server.address) as client:
                client.create_topics([topic], _PARTITIONS, {"entry.format": name})
            _produce(server, samples, name, topic, records)
        os.sync()
        for again in range(2):
            for name, topic in in_turn(list(topics.items()), again):
                _consume(server, samples, name, topic)


def _produce(server: Server, samples: Samples, name: str, topic: str, records: int) -> None:
    cpu = server.cpu_seconds()
    warm_up = records // 3
    done = tools.producer_perf(server.address, topic, records=records + warm_up, size=_SIZE, warm_up=warm_up)
    used = (server.cpu_seconds() - cpu) * 1e6 / (records + warm_up)
    samples.add("Kafka produce 1000 B, records/s", server_name(name), done.records_per_s)
    samples.add("Kafka produce 1000 B, broker us/record", server_name(name), used)


def _consume(server: Server, samples: Samples, name: str, topic: str) -> None:
    with ThinClient.to(server.address) as client:
        records = sum(client.end_offset(topic, partition) for partition in range(_PARTITIONS))
    cpu = server.cpu_seconds()
    found = librdkafka.read(server.address, topic, _PARTITIONS, records, {})
    used = (server.cpu_seconds() - cpu) * 1e6 / records
    samples.add("Kafka consume 1000 B, records/s", server_name(name), found.records / found.seconds)
    samples.add("Kafka consume 1000 B, broker us/record", server_name(name), used)


def measure_spark(
    server: Server, samples: Samples, scratch: Path, rounds: int, records: dict[int, int]
) -> None:
    """Fill topics of either format, ``records`` by size, and read them with Spark in turn; a round warms up."""
    from benchmarks.spark_read import COLUMNS, payload  # the other stages need no Spark
    from benchmarks.spark_session import session

    scratch.mkdir(parents=True, exist_ok=True)
    kinds = [(size, codec, name) for size in SPARK_SIZES for codec in SPARK_CODECS for name in FORMATS]
    for size, codec, name in kinds:
        topic = f"spark-{name}-{size}-{codec}"
        with ThinClient.to(server.address) as client:
            client.create_topics([topic], _PARTITIONS, {"entry.format": name})
        tools.producer_perf(
            server.address, topic, records=records[size], size=size, payload=payload(size, codec, scratch),
            properties=("batch.size=65536", "linger.ms=5", f"compression.type={codec}"),
        )  # fmt: skip
    os.sync()
    spark = session(2)
    for number in range(rounds + 1):
        for size, codec, name in in_turn(kinds, number):
            source = spark.read.format("magnetar").option("path", str(server.data / "data"))
            source = source.option("subscribe", f"spark-{name}-{size}-{codec}")
            frame = source.option("columns", ",".join(COLUMNS)).load().select(*COLUMNS)
            began = time.perf_counter()
            frame.write.format("noop").mode("overwrite").save()
            if number:
                rate = records[size] / (time.perf_counter() - began)
                samples.add(spark_measure(size, codec), server_name(name), rate)
    spark.stop()
