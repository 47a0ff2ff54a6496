"""Kafka clients that ask and leave, ask and do not read, or send halves."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.attacks.attack import Attack
from benchmarks.attacks.target import Target
from benchmarks.attacks.wires import KafkaWire, request
from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from magnetar.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

FETCH, PRODUCE, METADATA = 12, 9, 12
_LONG_MS = (1 << 31) - 1
ROWS = 249_000
"""As many as a request may have."""


def nothing(target: Target) -> None:
    """Prepare nothing."""


def topic(target: Target) -> str:
    """Prepare a topic of one partition."""
    return target.have_topic("prey")


def full_topic(target: Target) -> str:
    """Prepare a topic with 8 MB in it."""
    topic(target)
    with target.kafka() as client:
        for _ in range(16):
            client.produce("prey", [0], random.randbytes(500_000))
    return "prey"


def fetch(
    name: str, *, offset: int = 0, wait_ms: int = 0, session: bool = False, rows: int = 1, first: int = 0
) -> FetchRequest:
    """Ask for partitions of a topic, from an offset on."""
    places = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index in range(first, first + rows)
    ]
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1 if wait_ms else 0,
        max_bytes=64 << 20,
        session_epoch=0 if session else -1,
        topics=[FetchTopic(topic=name, partitions=places)],
    )


@contextmanager
def crowd(target: Target, size: int) -> Iterator[list[KafkaWire]]:
    """Have so many clients, who come one after the other."""
    clients = []
    try:
        for _ in range(size):
            clients.append(KafkaWire(target))
            time.sleep(0.002)
        yield clients
    finally:
        for client in clients:
            client.close()


def nobody(target: Target, _: Any) -> None:
    time.sleep(5)


def come_at_once(target: Target, _: Any) -> str:
    clients = [KafkaWire(target) for _ in range(1000)]
    for client in clients:
        client.ask(ApiVersionsRequest(), 0)
    for client in clients:
        client.reset()
    return ""


def gone_amid_fetch(*, reset: bool) -> Any:
    """300 fetches that wait for ever, 20 requests behind each, and nobody there any more."""

    def strike(target: Target, name: str) -> str:
        said = request(fetch(name, wait_ms=_LONG_MS), FETCH)
        behind = request(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), METADATA) * 20
        before = target.descriptors
        with crowd(target, 300) as clients:
            for client in clients:
                client.send(said + behind)
            time.sleep(1)
            for client in clients:
                (client.reset if reset else client.close)()
        time.sleep(4)
        return f"{target.descriptors - before} descriptors left"

    return strike


def gone_with_queues(target: Target, _: Any) -> str:
    """10,000 questions for all of 2,000 topics in one write of each of ten clients, who then leave."""
    question = request(MetadataRequest(topics=None), METADATA) * 10_000
    with crowd(target, 10) as clients:
        for client in clients:
            client.send_as_taken(question, 0.5)
    time.sleep(0.5)
    used = target.cpu_seconds()
    time.sleep(2)
    return f"{(target.cpu_seconds() - used) * 50:.0f} % of a processor afterwards"


def many_topics(target: Target) -> None:
    """Prepare 2,000 topics."""
    with target.kafka() as client:
        client.create_topics([f"t{number}" for number in range(2000)], 1)


def halves(target: Target, _: Any) -> None:
    """Twelve clients with 99 MB of a frame of 100 MB."""
    said = (100_000_000).to_bytes(4, "big") + request(ApiVersionsRequest(), 0)[4:] + bytes(99_000_000)
    with crowd(target, 12) as clients:
        for client in clients:
            client.send_as_taken(said, 0.3)
        time.sleep(1)


def unread(target: Target, name: str) -> None:
    """50 clients with 20 fetches of 1 MB each, who take nothing."""
    said = request(fetch(name), FETCH) * 20
    with crowd(target, 50) as clients:
        for client in clients:
            client.send(said)
        time.sleep(3)


def sessions(target: Target, _: Any) -> None:
    """Twelve fetch sessions of 249,000 rows of no topic."""
    said = request(fetch("none", session=True, rows=ROWS), FETCH)
    for _ in range(12):
        with KafkaWire(target) as client:
            client.send(said)
            client.frame()


def acks_0(target: Target, name: str) -> None:
    """20,000 small batches that nobody wants an answer to, of one client in one go."""
    data = PartitionProduceData(index=0, records=encode_batch([PlainRecord(None, b"x" * 100)]))
    message = ProduceRequest(
        acks=0, timeout_ms=1000, topic_data=[TopicProduceData(name=name, partition_data=[data])]
    )
    with KafkaWire(target) as client:
        client.send(request(message, PRODUCE) * 20_000)
        client.ask(ApiVersionsRequest(), 0)


def strangers(target: Target, _: Any) -> None:
    """120 who have not said who they are, with half a megabyte of a frame each."""
    said = (520_000).to_bytes(4, "big") + bytes(519_000)
    with crowd(target, 120) as clients:
        for client in clients:
            client.send_as_taken(said, 0.05)
        time.sleep(1)


ATTACKS = (
    Attack("nobody attacks", nothing, nobody),
    Attack("kafka: 1,000 come at once", nothing, come_at_once),
    Attack("kafka: 300 gone amid Fetch", topic, gone_amid_fetch(reset=False)),
    Attack("kafka: 300 reset amid Fetch", topic, gone_amid_fetch(reset=True)),
    Attack("kafka: gone with queues", many_topics, gone_with_queues),
    Attack("kafka: 12 halves of 99 MB", nothing, halves),
    Attack("kafka: 50 x 20 fetches unread", full_topic, unread),
    Attack("kafka: 12 sessions of 249,000 rows", nothing, sessions),
    Attack("kafka: acks=0 flood", topic, acks_0),
    Attack("kafka: 120 strangers' halves", nothing, strangers, ("sasl.server.max.receive.size=524288",)),
)
