"""Who reads a message says how many elements all its arrays may have together."""

from __future__ import annotations

from random import Random

import pytest

from magnetar.wire.kafka.malformed import TooManyElements, WireError
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

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
def test_topics_and_partitions_are_counted_together(version: int) -> None:
    random = Random(version)
    for rows in ([], [0], [3], [1, 1, 1], [0] * 9, [2, 0, 7], [5] * 5):
        body = produce(version, rows, random)
        counted = len(rows) + sum(rows)
        read = ProduceRequest.decode(body, version, max_elements=counted)
        assert [len(topic.partition_data) for topic in read.topic_data] == rows
        if counted:
            with pytest.raises(TooManyElements):
                ProduceRequest.decode(body, version, max_elements=counted - 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_with_a_bound_nothing_else_is_raised_for_what_cannot_be_read(version: int) -> None:
    random = Random(version)
    body = bytes(produce(version, [3, 4], random))
    for end in range(len(body)):
        with pytest.raises(WireError):
            ProduceRequest.decode(memoryview(body[:end]), version, max_elements=9)
    for _ in range(500):
        damaged = bytearray(body)
        damaged[random.randrange(len(body))] = random.choice((0xFF, 0x7F, 0x80, 0))
        try:
            ProduceRequest.decode(memoryview(damaged), version, max_elements=9)
        except WireError:
            pass
