"""What operators see of transactions and do about them, and what time does."""

from __future__ import annotations

import time
from itertools import count

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.cli.operator import Operator
from tests.process import BrokerProcess
from tests.transactions.clients import COMMITTED, SECONDS, ends, in_transaction, make_topic, producer, values

NAMES = (f"operators-{number}" for number in count())


@pytest.fixture
def operator(broker: BrokerProcess) -> Operator:
    return Operator(broker.address)


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    return make_topic(broker.address, next(NAMES))


def until_stable(broker: BrokerProcess, topic: str) -> None:
    """Wait until nothing is open in a topic's first partition."""
    until = time.monotonic() + SECONDS
    while ends(broker.address, topic, COMMITTED)[1] != ends(broker.address, topic, "read_uncommitted")[1]:
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.slow
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(
    broker: BrokerProcess, topic: str
) -> None:
    made = producer(broker.address, f"{topic}-id", **{"transaction.timeout.ms": 1000})
    made.begin_transaction()
    made.produce(topic, b"late", partition=0)
    assert made.flush(SECONDS) == 0
    assert values(broker.address, topic, COMMITTED) == []
    until_stable(broker, topic)
    with pytest.raises(KafkaException):
        made.commit_transaction(SECONDS)
    in_transaction(producer(broker.address, f"{topic}-id"), topic, [b"again"])
    assert values(broker.address, topic, COMMITTED) == [b"again"]


def test_more_time_than_a_transaction_may_ask_for_is_refused(broker: BrokerProcess, topic: str) -> None:
    with pytest.raises(KafkaException, match="INVALID_TRANSACTION_TIMEOUT"):
        producer(broker.address, topic, **{"transaction.timeout.ms": 900_001})


@pytest.mark.slow
def test_list_describe_abort(broker: BrokerProcess, operator: Operator, topic: str) -> None:
    name = f"{topic}-id"
    made = producer(broker.address, name)
    in_transaction(made, topic, [b"a"])
    made.begin_transaction()
    made.produce(topic, b"b", partition=0)
    assert made.flush(SECONDS) == 0
    listed = {each["transactional_id"]: each["state"] for each in operator.run("txn", "list", "--json").value}
    assert listed[name] == "Ongoing"
    ongoing = operator.run("txn", "list", "--state", "Ongoing", "--json").value
    assert {each["transactional_id"] for each in ongoing} >= {name}
    assert name not in operator.ok("txn", "list", "--state", "Empty")
    detail = operator.run("txn", "describe", name, "--json").value
    assert (detail["state"], detail["partitions"]) == ("Ongoing", [f"{topic}-0"])
    assert operator.run("txn", "abort", name, "--json").value["partitions"] == [f"{topic}-0"]
    until_stable(broker, topic)
    with pytest.raises(KafkaException):
        made.commit_transaction(SECONDS)
    assert values(broker.address, topic, COMMITTED) == [b"a"]
    declined = operator.run("txn", "abort", name)
    assert (declined.status, "no transaction open" in declined.err) == (1, True)
    assert operator.run("txn", "describe", "nobody's").status == 1
    assert operator.run("txn", "abort").status == 2


@pytest.mark.slow
def test_one_that_hangs_in_a_partition_is_ended_there(
    broker: BrokerProcess, operator: Operator, topic: str
) -> None:
    made = producer(broker.address, f"{topic}-id")
    made.begin_transaction()
    made.produce(topic, b"x", partition=0)
    assert made.flush(SECONDS) == 0
    producer_id = operator.run("txn", "describe", f"{topic}-id", "--json").value["producer_id"]
    operator.ok("txn", "abort", "--partition", f"{topic}-0", "--producer-id", str(producer_id))
    assert ends(broker.address, topic, COMMITTED) == (0, 2)
    assert values(broker.address, topic, COMMITTED) == []
    assert (
        operator.run("txn", "abort", "--partition", f"{topic}-0", "--producer-id", str(producer_id)).status
        == 1
    )


def test_why_names_the_transaction_that_holds_readers_up(
    broker: BrokerProcess, operator: Operator, topic: str
) -> None:
    made = producer(broker.address, f"{topic}-id")
    in_transaction(made, topic, [b"a"])
    made.begin_transaction()
    made.produce(topic, b"b", partition=0)
    assert made.flush(SECONDS) == 0
    group = Consumer({"bootstrap.servers": broker.address, "group.id": f"{topic}-group"})
    group.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    group.close()
    time.sleep(1.1)  # shorter ones hold nobody up
    data = broker.data
    said = operator.run("why", f"{topic}-0", "--data", data, "--json").value
    assert said["reason"] == "open-transaction"
    assert f"transactional id {topic}-id" in said["says"]
    assert f"magnetar txn abort {topic}-id" in said["next_step"]
    of_group = operator.run("why", "group", f"{topic}-group", "--data", data, "--json").value
    assert of_group["reason"] == "open-transaction"
    made.commit_transaction(SECONDS)
    until_stable(broker, topic)
    assert operator.run("why", f"{topic}-0", "--data", data, "--json").value["reason"] != "open-transaction"
