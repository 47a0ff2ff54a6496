"""Whole record batches from a partition's leader, as they lie in its log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from magnetar.client.cluster import Cluster
from magnetar.client.errors import ClientError, check
from magnetar.kafka.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from magnetar.kafka.wire.messages.fetch_response import FetchResponse
from magnetar.records.batch import BatchHeader, batches

MOST_BYTES = 16 << 20
_WAIT_MS = 500


class Aborted(NamedTuple):
    """A transaction that was aborted: its producer, and its first offset."""

    producer_id: int
    first_offset: int


class Fetched(NamedTuple):
    """What one Fetch brought: batches laid end to end, the last one perhaps cut; and how far may be read."""

    records: memoryview
    high_watermark: int
    last_stable_offset: int
    aborted: tuple[Aborted, ...]


def fetch(
    cluster: Cluster,
    topic: str,
    partition: int,
    offset: int,
    *,
    committed: bool = False,
    most_bytes: int = MOST_BYTES,
) -> Fetched:
    """Ask once for the batches from ``offset`` on; wait up to half a second for some. Raises ``ClientError``."""
    connection = cluster.leader(topic, partition)
    asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=most_bytes)
    answer: FetchResponse = connection.call(
        FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=most_bytes,
            isolation_level=int(committed),
            topics=[FetchTopic(topic=topic, topic_id=cluster.topic(topic).topic_id, partitions=[asked])],
        )
    )
    what = f"Fetch of {topic}-{partition} at offset {offset}"
    check(answer.error_code, what)
    row = answer.responses[0].partitions[0]
    check(row.error_code, what)
    records = row.records if row.records is not None else b""
    assert not isinstance(records, list)
    aborted = (Aborted(each.producer_id, each.first_offset) for each in row.aborted_transactions or ())
    return Fetched(memoryview(records), row.high_watermark, row.last_stable_offset, tuple(aborted))


def stored(
    cluster: Cluster, topic: str, partition: int, low: int, high: int, *, committed: bool = False
) -> Iterator[Fetched]:
    """Give what holds the offsets in ``[low, high)``, fetch by fetch, each with at least one whole batch.

    Ends early where no records are left below ``high``. Raises ``ClientError``.
    """
    while low < high:
        fetched = cluster.retrying(
            lambda at=low: fetch(cluster, topic, partition, at, committed=committed)  # type: ignore[misc]
        )
        before = low
        for header, _ in batches(fetched.records):
            low = max(low, header.last_offset + 1)
        if low > before:
            yield fetched
        elif fetched.records:
            raise ClientError(f"{topic}-{partition} has no whole batch at offset {low}")
        elif (fetched.last_stable_offset if committed else fetched.high_watermark) >= high:
            return


def headers(cluster: Cluster, topic: str, partition: int, low: int, high: int) -> Iterator[BatchHeader]:
    """Give the headers of the batches with offsets in ``[low, high)``."""
    for fetched in stored(cluster, topic, partition, low, high):
        for header, _ in batches(fetched.records):
            if header.base_offset < high:
                yield header
