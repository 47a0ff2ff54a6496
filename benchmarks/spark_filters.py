"""Filters that leave 1 % of a topic: how much faster they are than reading all of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers.magnetar import Magnetar
from benchmarks.samples import Samples
from benchmarks.spark_read import COLUMNS, Readers, Source, Topic
from benchmarks.thin import ThinClient
from magnetar.records.batch import HEADER_BYTES, PlainRecord, encode_batch, read_header, seal
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from magnetar.wire.kafka.messages.produce_response import ProduceResponse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BATCH = 500  # records, about what a producer with batch.size=65536 sends
_PRODUCE = 9
_MS_PER_BATCH = 10


def fill(server: Magnetar, topic: Topic) -> None:
    """Write a large topic quickly: the same records in each batch, but for their time, which goes on."""
    now = time.time_ns() // 1_000_000
    batch = encode_batch(
        [
            PlainRecord(None, bytes([65 + i % 26]) * topic.size, timestamp=now + i * _MS_PER_BATCH // _BATCH)
            for i in range(_BATCH)
        ]
    )
    header, body = read_header(batch), batch[HEADER_BYTES:]
    with ThinClient.to(server.address) as client:
        client.create_topics([topic.name], topic.partitions)
        for number in range(topic.records // topic.partitions // _BATCH):
            later = number * _MS_PER_BATCH
            sealed = seal(
                header._replace(
                    base_timestamp=header.base_timestamp + later, max_timestamp=header.max_timestamp + later
                ),
                body,
            )
            data = [PartitionProduceData(index=each, records=sealed) for each in range(topic.partitions)]
            request = ProduceRequest(
                acks=-1,
                timeout_ms=60_000,
                topic_data=[TopicProduceData(name=topic.name, partition_data=data)],
            )
            answer = client.call(request, ProduceResponse, _PRODUCE)
            assert not any(row.error_code for row in answer.responses[0].partition_responses)


def measure(
    spark: SparkSession, ours: Magnetar, topic: Topic, name: str, samples: Samples, scratch: Path, rounds: int
) -> None:
    """Read all of a topic, then 1 % by offset and by time, and nothing; a first round warms up."""
    readers = Readers(spark, Source.of(ours), scratch)

    def where(condition: str) -> DataFrame:
        # Spark remembers pushed filters with a frame, so each query has its own (decision 17).
        source = readers.source(topic.name).option("pushFilters", "true")
        return source.load().select(*COLUMNS).where(condition)

    with ThinClient.to(ours.address) as client:
        last = client.end_offset(topic.name, 0) - 1
    first_ms, last_ms = (
        int(where(f"partition = 0 and offset = {offset}").first()["timestamp"].timestamp() * 1000)
        for offset in (0, last)
    )
    offset, ms = last // 2, first_ms + (last_ms - first_ms) // 2
    later, later_ms = offset + (last + 1) // 100, ms + (last_ms - first_ms) // 100
    parts = {
        "all": "true",
        "offsets": f"offset >= {offset} and offset < {later}",
        "time": f"timestamp >= timestamp_millis({ms}) and timestamp < timestamp_millis({later_ms})",
        "nothing": "offset < 0",
    }
    for number in range(rounds + 1):
        seconds = {
            part: _seconds(lambda condition=condition: where(condition)) for part, condition in parts.items()
        }
        if not number:
            continue
        for part, took in seconds.items():
            samples.add(f"Spark, {name} of {topic.records:,}: {part}, s", ours.name, took)
        for part in ("offsets", "time"):
            samples.add(filter_measure(part, name), ours.name, seconds["all"] / seconds[part])


def filter_measure(part: str, name: str) -> str:
    """Return a measure's name."""
    return f"Spark, 1 % of the {part} of {name}: times faster than all"


def _seconds(frame: Callable[[], DataFrame]) -> float:
    """Return how long it takes to load and read a frame."""
    began = time.perf_counter()
    frame().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began
