"""Consume, transform, produce: what is written and how far was read count together, or not at all."""

from __future__ import annotations

import time
from itertools import count

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.process import BrokerProcess
from tests.transactions.clients import COMMITTED, SECONDS, make_topic, producer, values

RECORDS, BATCH = 2_000, 50
NAMES = (f"offsets-{number}" for number in count())


def consumer(broker: BrokerProcess, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": COMMITTED,
        }
    )


def committed(broker: BrokerProcess, group: str, topic: str) -> int:
    """Return how far a group has committed, as an operator sees it; it does not wait for open transactions."""
    admin = AdminClient({"bootstrap.servers": broker.address})
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
    (found,) = admin.list_consumer_group_offsets([asked]).values()
    return int(found.result(SECONDS).topic_partitions[0].offset)


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "aborted"])
def test_offsets_count_when_their_transaction_is_committed(broker: BrokerProcess, commit: bool) -> None:
    topic, group = make_topic(broker.address, next(NAMES)), next(NAMES)
    made = producer(broker.address, f"{topic}-id")
    reader = consumer(broker, group)
    made.begin_transaction()
    made.produce(topic, b"v", partition=0)
    made.send_offsets_to_transaction([TopicPartition(topic, 0, 7)], reader.consumer_group_metadata(), SECONDS)
    assert committed(broker, group, topic) < 0
    if commit:
        made.commit_transaction(SECONDS)
    else:
        made.flush(SECONDS)
        made.abort_transaction(SECONDS)
    until = time.monotonic() + SECONDS
    # The answer tells that it was decided; what waits for the decision is told a moment later.
    while commit and committed(broker, group, topic) < 0 and time.monotonic() < until:
        time.sleep(0.01)
    assert committed(broker, group, topic) == (7 if commit else -1001)
    reader.close()


@pytest.mark.slow
def test_each_record_is_processed_once_though_every_third_attempt_is_aborted(broker: BrokerProcess) -> None:
    source, target = make_topic(broker.address, next(NAMES)), make_topic(broker.address, next(NAMES))
    plain = Producer({"bootstrap.servers": broker.address})
    for number in range(RECORDS):
        plain.produce(source, b"%d" % number, partition=0)
    assert plain.flush(SECONDS) == 0
    group = next(NAMES)
    reader = consumer(broker, group)
    reader.subscribe([source])
    made = producer(broker.address, f"{source}-id")
    done = attempts = 0
    while done < RECORDS:
        messages = reader.consume(BATCH, timeout=SECONDS)
        assert messages
        attempts += 1
        made.begin_transaction()
        for message in messages:
            made.produce(target, b"<%s>" % message.value(), partition=0)
        behind = TopicPartition(source, 0, messages[-1].offset() + 1)
        made.send_offsets_to_transaction([behind], reader.consumer_group_metadata(), SECONDS)
        if attempts % 3:
            made.commit_transaction(SECONDS)
            done += len(messages)
            continue
        made.flush(SECONDS)
        made.abort_transaction(SECONDS)
        reader.seek(TopicPartition(source, 0, messages[0].offset()))
    assert values(broker.address, target, COMMITTED) == [b"<%d>" % each for each in range(RECORDS)]
    assert committed(broker, group, source) == RECORDS
    reader.close()
