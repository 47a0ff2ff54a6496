"""A group's coordinator goes to another broker just as members ask where they left off: they ask again, and read."""

from __future__ import annotations

import time
from typing import Any

import confluent_kafka as ck
import pytest

from tests.ownership.load import PATIENCE_S, make_topics
from tests.ownership.process import MovingBroker

RECORDS = 1000
LEFT_OFF = 400
UNASKED_S = 10.0


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_who_is_refused_its_offsets_asks_again(broker: MovingBroker, protocol: str) -> None:
    make_topics(broker.kafka, "t")
    producer = ck.Producer({"bootstrap.servers": broker.kafka})
    for number in range(RECORDS):
        producer.produce("t", b"%d" % number, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    group = "readers"
    committer = ck.Consumer({"bootstrap.servers": broker.kafka, "group.id": group})
    committer.commit(offsets=[ck.TopicPartition("t", 0, LEFT_OFF)], asynchronous=False)
    committer.close()
    refusals: list[str] = []

    class Log:
        def log(self, _: int, line: str, *words: Any) -> None:
            said = line % words
            if "OffsetFetch for" in said and "Not coordinator" in said:
                refusals.append(said)

    settings = {"group.protocol": protocol, "auto.offset.reset": "earliest", "debug": "topic"}
    consumer = ck.Consumer({"bootstrap.servers": broker.kafka, "group.id": group, **settings}, logger=Log())

    def assigned(_: Any, partitions: list[ck.TopicPartition]) -> None:
        assert partitions
        broker.coordinator_away(group)  # it asks for offsets when this returns

    consumer.subscribe(["t"], on_assign=assigned)
    read: list[int] = []
    began = time.monotonic()
    is_back = False
    while len(read) < RECORDS - LEFT_OFF:
        waited = time.monotonic() - began
        assert waited < PATIENCE_S, f"{len(refusals)} refusals, then nothing"
        read += [int(each.value()) for each in consumer.consume(RECORDS, 0.1) if each.error() is None]
        # On a busy machine a heartbeat may be refused first: then it does not ask before it knows the coordinator.
        if (refusals or waited > UNASKED_S) and not is_back:
            is_back = True
            broker.coordinator_back(group)
    assert read == list(range(LEFT_OFF, RECORDS))
    consumer.close()
