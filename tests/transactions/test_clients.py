"""Transactions by stock clients: committed ones are read whole, aborted ones not at all, open ones not yet."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest
from confluent_kafka import KafkaException

from tests.process import BrokerProcess
from tests.transactions.clients import (
    COMMITTED,
    UNCOMMITTED,
    ends,
    in_transaction,
    make_topic,
    producer,
    values,
)

PRODUCERS, TRANSACTIONS, RECORDS, PARTITIONS = 4, 50, 100, 3
NAMES = (f"topic-{number}" for number in count())


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    return make_topic(broker.address, next(NAMES))


@pytest.mark.slow
def test_what_is_committed_is_read_and_what_is_aborted_is_not(broker: BrokerProcess, topic: str) -> None:
    made = producer(broker.address, f"{topic}-id")
    in_transaction(made, topic, [b"a", b"b"])
    in_transaction(made, topic, [b"x", b"y"], commit=False)
    in_transaction(made, topic, [b"c"])
    assert values(broker.address, topic, COMMITTED) == [b"a", b"b", b"c"]
    assert values(broker.address, topic, UNCOMMITTED) == [b"a", b"b", b"x", b"y", b"c"]


def test_what_is_open_is_not_read_yet_and_holds_up_what_lies_behind_it(
    broker: BrokerProcess, topic: str
) -> None:
    slow, quick = (producer(broker.address, f"{topic}-{name}") for name in ("slow", "quick"))
    in_transaction(quick, topic, [b"before"])
    slow.begin_transaction()
    slow.produce(topic, b"slow", partition=0)
    assert slow.flush(60) == 0
    in_transaction(quick, topic, [b"behind"])
    assert values(broker.address, topic, COMMITTED) == [b"before"]
    assert ends(broker.address, topic, COMMITTED) == (0, 2)  # "before" and its marker
    assert ends(broker.address, topic, UNCOMMITTED) == (0, 5)
    slow.commit_transaction(60)
    assert values(broker.address, topic, COMMITTED) == [b"before", b"slow", b"behind"]
    assert ends(broker.address, topic, COMMITTED) == (0, 6)


def test_a_producer_of_the_same_id_fences_the_one_of_before(broker: BrokerProcess, topic: str) -> None:
    old = producer(broker.address, f"{topic}-id")
    in_transaction(old, topic, [b"old"])
    old.begin_transaction()
    old.produce(topic, b"zombie", partition=0)
    assert old.flush(60) == 0
    new = producer(broker.address, f"{topic}-id")
    with pytest.raises(KafkaException) as refused:
        old.commit_transaction(60)
    assert refused.value.args[0].fatal()
    in_transaction(new, topic, [b"new"])
    assert values(broker.address, topic, COMMITTED) == [b"old", b"new"]


@pytest.mark.slow
def test_thousands_of_records_in_hundreds_of_transactions(broker: BrokerProcess) -> None:
    topic = make_topic(broker.address, "volume", PARTITIONS)

    def writes(number: int) -> list[bytes]:
        made = producer(broker.address, f"volume-{number}")
        committed: list[bytes] = []
        for each in range(TRANSACTIONS):
            batch = [b"%d:%d:%d" % (number, each, record) for record in range(RECORDS)]
            made.begin_transaction()
            for at, value in enumerate(batch):
                made.produce(topic, value, partition=at % PARTITIONS)
                made.poll(0)
            if (number + each) % 4:
                made.commit_transaction(60)
                committed += batch
            else:
                made.flush(60)
                made.abort_transaction(60)
        return committed

    with ThreadPoolExecutor(PRODUCERS) as threads:
        committed = list(threads.map(writes, range(PRODUCERS)))
    found = values(broker.address, topic, COMMITTED, PARTITIONS)
    assert sorted(found) == sorted(value for each in committed for value in each)
    assert len(values(broker.address, topic, UNCOMMITTED, PARTITIONS)) == PRODUCERS * TRANSACTIONS * RECORDS
    # Of each producer in its order within each partition.
    for number in range(PRODUCERS):
        for partition in range(PARTITIONS):
            numbers = [tuple(map(int, value.split(b":"))) for value in found]
            mine = [each for each in numbers if each[0] == number and each[2] % PARTITIONS == partition]
            assert mine == sorted(mine)
