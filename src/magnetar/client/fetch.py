"""Whole record batches from a partition's leader, as they lie in its log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from magnetar.client.cluster import Cluster
from magnetar.client.errors import ClientError, check
from magnetar.records.batch import BatchHeader, batches
from magnetar.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.fetch_response import FetchResponse

MAX_BYTES = 16 << 20
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


class _Question:
    """A Fetch that was sent; its answer is due on its connection."""

    def __init__(
        self, cluster: Cluster, topic: str, partition: int, offset: int, *, committed: bool, most_bytes: int
    ) -> None:
        self._connection = cluster.leader(topic, partition)
        self._what = f"Fetch of {topic}-{partition} at offset {offset}"
        asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=most_bytes)
        self._connection.send(
            FetchRequest(
                max_wait_ms=_WAIT_MS,
                min_bytes=1,
                max_bytes=most_bytes,
                isolation_level=int(committed),
                topics=[FetchTopic(topic=topic, topic_id=cluster.topic(topic).topic_id, partitions=[asked])],
            )
        )

    def answer(self) -> Fetched:
        answer: FetchResponse = self._connection.receive()
        check(answer.error_code, self._what)
        row = answer.responses[0].partitions[0]
        check(row.error_code, self._what)
        records = row.records if row.records is not None else b""
        assert not isinstance(records, list)
        aborted = (Aborted(each.producer_id, each.first_offset) for each in row.aborted_transactions or ())
        return Fetched(memoryview(records), row.high_watermark, row.last_stable_offset, tuple(aborted))


def stored(
    cluster: Cluster,
    topic: str,
    partition: int,
    low: int,
    high: int,
    *,
    committed: bool = False,
    most_bytes: int = MAX_BYTES,
) -> Iterator[Fetched]:
    """Return what holds the offsets in ``[low, high)``, fetch by fetch, each with at least one whole batch.

    The next one is asked for before the last is given, so nobody else may use this cluster meanwhile. Ends early where
    no records are left below ``high``. Raises ``ClientError``.
    """

    def ask() -> _Question:
        return _Question(cluster, topic, partition, low, committed=committed, most_bytes=most_bytes)

    question: _Question | None = None
    try:
        while low < high:
            try:
                fetched = (question or ask()).answer()
            except ClientError as error:
                cluster.close()
                if not error.retriable:
                    raise
                fetched = cluster.retrying(lambda: ask().answer())
            question = None
            before = low
            for header, _ in batches(fetched.records):
                low = max(low, header.last_offset + 1)
            if low > before:
                with suppress(ClientError):  # if it cannot be sent now, it is sent again, with more patience
                    question = ask() if low < high else None
                yield fetched
            elif fetched.records:
                raise ClientError(f"{topic}-{partition} has no whole batch at offset {low}")
            elif (fetched.last_stable_offset if committed else fetched.high_watermark) >= high:
                return
    finally:
        if question is not None:
            cluster.close()  # an answer is still due on its connection


def headers(cluster: Cluster, topic: str, partition: int, low: int, high: int) -> Iterator[BatchHeader]:
    """Return the headers of the batches with offsets in ``[low, high)``."""
    for fetched in stored(cluster, topic, partition, low, high):
        for header, _ in batches(fetched.records):
            if header.base_offset < high:
                yield header
