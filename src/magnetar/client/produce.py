"""Whole record batches to partitions' leaders, each once: an idempotent producer (KIP-98) whose batches are ready-made.

A `Batch` has its producer's identity and sequence inside; to send it again changes nothing. Up to five of a partition
are on their way at once, which is how many a broker remembers, and one of each partition in a request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from magnetar.client.cluster import Cluster
from magnetar.client.connection import Connection
from magnetar.client.errors import BrokerRefused, check
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from magnetar.wire.kafka.messages.init_producer_id_response import InitProducerIdResponse
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from magnetar.wire.kafka.messages.produce_response import ProduceResponse

IN_FLIGHT = 5
_REQUEST_BYTES = 8 << 20


class ProducerIdentity(NamedTuple):
    """What a broker gave to an idempotent producer."""

    producer_id: int
    epoch: int


class Batch(NamedTuple):
    """A batch for a partition; ``last_sequence`` is its place in what this producer writes there."""

    topic: str
    partition: int
    last_sequence: int
    data: bytes


def new_producer(cluster: Cluster) -> ProducerIdentity:
    """Return an identity nobody else has."""

    def ask() -> ProducerIdentity:
        answer: InitProducerIdResponse = cluster.any_broker().call(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0x7FFFFFFF)
        )
        check(answer.error_code, "InitProducerId")
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    return cluster.retrying(ask)


def send(
    cluster: Cluster,
    batches: Iterable[Batch],
    *,
    acks: int = -1,
    acknowledged: Callable[[Batch], None] = lambda batch: None,
) -> None:
    """Send batches in their order, and return once all are acknowledged, each told to ``acknowledged``.

    Raises at the first that is refused, or when a connection breaks; what was on its way then may be in the log or not.
    """
    waiting: deque[tuple[Connection, list[Batch]]] = deque()
    try:
        for connection, group in _grouped(cluster, batches):
            if len(waiting) == IN_FLIGHT:
                _settle(*waiting.popleft(), acknowledged)
            connection.send(_request(cluster, group, connection, acks))
            waiting.append((connection, group))
        while waiting:
            _settle(*waiting.popleft(), acknowledged)
    except BaseException:
        cluster.close()  # answers are still on their way on these connections
        raise


def _grouped(cluster: Cluster, batches: Iterable[Batch]) -> Iterator[tuple[Connection, list[Batch]]]:
    """Return what goes into one request: of one leader, of each partition one batch."""
    group: list[Batch] = []
    seen: set[tuple[str, int]] = set()
    size, leader = 0, None
    for batch in batches:
        connection = cluster.leader(batch.topic, batch.partition)
        full = size + len(batch.data) > _REQUEST_BYTES
        if group and (connection is not leader or (batch.topic, batch.partition) in seen or full):
            assert leader is not None
            yield leader, group
            group, seen, size = [], set(), 0
        leader = connection
        group.append(batch)
        seen.add((batch.topic, batch.partition))
        size += len(batch.data)
    if group:
        assert leader is not None
        yield leader, group


def _request(cluster: Cluster, group: list[Batch], connection: Connection, acks: int) -> ProduceRequest:
    topics: dict[str, list[PartitionProduceData]] = {}
    for batch in group:
        topics.setdefault(batch.topic, []).append(
            PartitionProduceData(index=batch.partition, records=batch.data)
        )
    return ProduceRequest(
        acks=acks,
        timeout_ms=int(cluster.settings.request_timeout_s * 1000),
        topic_data=[
            TopicProduceData(name=name, topic_id=cluster.topic(name).topic_id, partition_data=rows)
            for name, rows in topics.items()
        ],
    )


def _settle(connection: Connection, group: list[Batch], acknowledged: Callable[[Batch], None]) -> None:
    answer: ProduceResponse = connection.receive()
    rows = [row for topic in answer.responses for row in topic.partition_responses]
    failed: BrokerRefused | None = None
    # Brokers answer in the order of the request.
    for batch, row in zip(group, rows, strict=True):
        if row.error_code in (0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            acknowledged(batch)
        elif failed is None:
            failed = BrokerRefused(
                row.error_code, f"Produce to {batch.topic}-{batch.partition}", row.error_message or None
            )
    if failed is not None:
        raise failed
