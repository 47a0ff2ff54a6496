"""Whether a Produce request names many partitions is told without decoding it, and as decoding it would."""

from __future__ import annotations

from random import Random

import pytest

from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from magnetar.wire.kafka.produce_rows import has_many_rows

VERSIONS = range(ProduceRequest.MIN_VERSION, ProduceRequest.MAX_VERSION + 1)


def produce(version: int, rows: list[int], random: Random) -> memoryview:
    topics = [
        TopicProduceData(
            name="" if version >= 13 else "t" * random.randrange(200),
            topic_id=random.randbytes(16) if version >= 13 else bytes(16),
            partition_data=[
                PartitionProduceData(index=each, records=random.randbytes(random.randrange(300)))
                for each in range(count)
            ],
        )
        for count in rows
    ]
    message = ProduceRequest(
        transactional_id=random.choice((None, "x")), acks=1, timeout_ms=9, topic_data=topics
    )
    return memoryview(message.encode(version))


@pytest.mark.parametrize("version", VERSIONS)
def test_topics_and_partitions_are_counted(version: int) -> None:
    random = Random(version)
    for rows in ([], [0], [3], [1, 1, 1], [0] * 9, [2, 0, 7], [5] * 5):
        body = produce(version, rows, random)
        counted = len(rows) + sum(rows)
        assert not has_many_rows(body, version, counted)
        if counted:
            assert has_many_rows(body, version, counted - 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_cannot_be_read_has_few_and_takes_no_time(version: int) -> None:
    random = Random(version)
    body = bytes(produce(version, [3, 4], random))
    for end in range(len(body)):
        has_many_rows(memoryview(body[:end]), version, 3)
    for _ in range(500):
        damaged = bytearray(body)
        damaged[random.randrange(len(body))] = random.choice((0xFF, 0x7F, 0x80, 0))
        has_many_rows(memoryview(damaged), version, 3)
