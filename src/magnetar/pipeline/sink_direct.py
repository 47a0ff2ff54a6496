"""At least once: a task sends its rows itself, as Spark's Kafka sink does.

Each task is an idempotent producer, so a broken connection doubles nothing; a task that Spark runs again does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from magnetar.client.cluster import Cluster
from magnetar.client.produce import Batch, new_producer, send
from magnetar.pipeline.sink_rows import OutgoingBatch, outgoing
from magnetar.records.encoder import stamped

if TYPE_CHECKING:
    import pyarrow as pa

    from magnetar.pipeline.sink_options import SinkOptions

_SENT_AT_ONCE = 16


def send_rows(iterator: Iterable[pa.RecordBatch], options: SinkOptions, *, first_partition: int) -> int:
    """Send all rows, wait until they are acknowledged, and give their number."""
    records = 0
    with Cluster(options.client) as cluster:
        producer = new_producer(cluster)
        sequences: dict[tuple[str, int], int] = defaultdict(int)

        def stamp(each: OutgoingBatch) -> Batch:
            first = sequences[each.topic, each.partition]
            sequences[each.topic, each.partition] = first + each.batch.records
            data = stamped(each.batch.data, *producer, first & 0x7FFFFFFF)
            return Batch(each.topic, each.partition, first + each.batch.records - 1, data)

        def partitions_of(topic: str) -> int:
            return cluster.retrying(lambda: len(cluster.topic(topic, create=True).leaders))

        batches = outgoing(iterator, options, partitions_of, first_partition=first_partition)
        while some := list(islice(batches, _SENT_AT_ONCE)):
            records += sum(each.batch.records for each in some)
            _send_all(cluster, [stamp(each) for each in some], options.acks)
    return records


def _send_all(cluster: Cluster, batches: list[Batch], acks: int) -> None:
    """Send until all are in; a batch that got in already is recognised by its sequence."""
    left = {(each.topic, each.partition, each.last_sequence): each for each in batches}

    def attempt() -> None:
        def done(batch: Batch) -> None:
            del left[batch.topic, batch.partition, batch.last_sequence]

        send(cluster, list(left.values()), acks=acks, acknowledged=done)

    cluster.retrying(attempt)
