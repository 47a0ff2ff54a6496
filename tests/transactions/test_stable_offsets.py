"""Whoever takes over a partition waits for the transaction in which its owner before commits offsets (KIP-447)."""

from __future__ import annotations

import threading
import time

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.process import BrokerProcess
from tests.transactions.clients import COMMITTED, SECONDS, UNCOMMITTED, make_topic, producer

RECORDS, DONE = 20, 5
OPEN_S = 1.5
"""For how long the transaction stays open when the next owner asks."""


def member(broker: BrokerProcess, group: str, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": group,
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )


def first(consumer: Consumer, topic: str) -> Message:
    consumer.subscribe([topic])
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            return message
    raise AssertionError("nothing came")


@pytest.mark.parametrize(
    ("isolation", "commits", "begins_at"),
    [(COMMITTED, True, DONE), (COMMITTED, False, 0), (UNCOMMITTED, True, 0)],
    ids=["committed", "aborted", "who does not ask for that begins at once"],
)
def test_who_takes_over_begins_where_the_open_transaction_ends(
    broker: BrokerProcess, isolation: str, commits: bool, begins_at: int
) -> None:
    name = f"stable-{isolation}-{commits}"
    make_topic(broker.address, name)
    fill = Producer({"bootstrap.servers": broker.address})
    for number in range(RECORDS):
        fill.produce(name, b"%d" % number)
    assert fill.flush(SECONDS) == 0
    made = producer(broker.address, name)
    before = member(broker, name, COMMITTED)
    assert first(before, name).offset() == 0
    made.begin_transaction()
    made.send_offsets_to_transaction(
        [TopicPartition(name, 0, DONE)], before.consumer_group_metadata(), SECONDS
    )
    before.close()
    end = made.commit_transaction if commits else made.abort_transaction
    ends = threading.Timer(OPEN_S, end, (SECONDS,))
    ends.start()
    after = member(broker, name, isolation)
    try:
        message = first(after, name)
        assert message.offset() == begins_at
        assert ends.is_alive() is (isolation == UNCOMMITTED), "it did not wait for the end, or did in vain"
    finally:
        ends.join()
        after.close()
