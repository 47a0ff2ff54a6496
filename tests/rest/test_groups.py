"""Kafka's groups as Pulsar's tools see them, and names that a group and a subscription share."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pulsar
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.process import BrokerProcess

_numbers = itertools.count()
MESSAGES = 100


@pytest.fixture
def topic() -> str:
    return f"groups-{next(_numbers)}"


@pytest.fixture
def client(house: BrokerProcess) -> Iterator[pulsar.Client]:
    client = pulsar.Client(house.pulsar_url)
    yield client
    client.close()


def path_of(topic: str) -> str:
    return f"/admin/v2/persistent/public/default/{topic}"


def produce(house: BrokerProcess, topic: str, first: int, last: int, *, at_once: int = 1) -> None:
    producer = Producer({"bootstrap.servers": house.address, "linger.ms": 50})
    for number in range(first, last):
        producer.produce(topic, b"%d" % number, partition=0)
        if (number + 1) % at_once == 0:
            producer.flush()
    producer.flush()


def consumer_of(house: BrokerProcess, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": house.address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
        }
    )


def read(consumer: Consumer, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        message = consumer.poll(30)
        assert message is not None, f"only {found}"
        assert message.error() is None
        found.append(int(message.value()))
    return found


def committed(house: BrokerProcess, group: str, topic: str) -> int:
    consumer = consumer_of(house, group)
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=10)
        return int(found.offset)
    finally:
        consumer.close()


def eventually(look: Callable[[], Any], wanted: Any) -> None:
    """Wait until what is looked at is as wanted; the broker does it once a second."""
    for _ in range(150):
        found = look()
        if found == wanted:
            return
        time.sleep(0.1)
    raise AssertionError(f"{found!r}, not {wanted!r}")


def backlog(http: httpx.Client, topic: str, name: str) -> int | None:
    found = http.get(f"{path_of(topic)}/stats").json()["subscriptions"].get(name)
    return None if found is None else int(found["msgBacklog"])


def test_a_group_is_listed_reset_and_deleted_by_pulsars_tools(
    http: httpx.Client, house: BrokerProcess, client: pulsar.Client, topic: str
) -> None:
    produce(house, topic, 0, 10)
    consumer = consumer_of(house, topic)
    consumer.subscribe([topic])
    assert read(consumer, 10) == list(range(10))
    consumer.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
    eventually(lambda: backlog(http, topic, topic), 3)
    refused = http.post(f"{path_of(topic)}/subscription/{topic}/skip_all")
    assert refused.status_code == 412
    assert "has members" in refused.json()["reason"]
    consumer.close()
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, topic)
    eventually(lambda: http.post(f"{path_of(topic)}/subscription/{topic}/skip/1").status_code, 204)
    assert committed(house, topic, topic) == 8
    assert http.post(f"{path_of(topic)}/subscription/{topic}/resetcursor/0").status_code == 204
    assert committed(house, topic, topic) == 0
    assert http.delete(f"{path_of(topic)}/subscription/{topic}").status_code == 204
    assert committed(house, topic, topic) < 0


def test_what_is_cleared_namespace_wide_is_committed_for_groups(
    http: httpx.Client, house: BrokerProcess, client: pulsar.Client
) -> None:
    assert http.put("/admin/v2/tenants/cleared", json={}).status_code == 204
    assert http.put("/admin/v2/namespaces/cleared/ns").status_code == 204
    topics = ["cleared/ns/one", "cleared/ns/two"]
    for topic in topics:
        produce(house, topic, 0, 10)
    client.subscribe(f"persistent://{topics[0]}", "pulsars", initial_position=pulsar.InitialPosition.Earliest)
    consumer = consumer_of(house, "g")
    consumer.subscribe(topics)
    read(consumer, 1)
    consumer.commit(offsets=[TopicPartition(topic, 0, 3) for topic in topics], asynchronous=False)

    def backlogs() -> list[int | None]:
        def of(topic: str, name: str) -> int | None:
            found = http.get(f"/admin/v2/persistent/{topic}/stats").json()["subscriptions"].get(name)
            return None if found is None else int(found["msgBacklog"])

        return [of(topics[0], "g"), of(topics[1], "g"), of(topics[0], "pulsars")]

    eventually(backlogs, [7, 7, 10])
    refused = http.post("/admin/v2/namespaces/cleared/ns/clearBacklog")
    assert (refused.status_code, "has members" in refused.json()["reason"]) == (412, True)
    assert http.post("/admin/v2/namespaces/cleared/ns/unsubscribe/g").status_code == 412
    assert backlogs() == [7, 7, 10]
    assert http.post("/admin/v2/namespaces/cleared/ns/clearBacklog/pulsars").status_code == 204
    assert backlogs() == [7, 7, 0]
    consumer.close()
    eventually(lambda: http.post("/admin/v2/namespaces/cleared/ns/clearBacklog/g").status_code, 204)
    assert [committed(house, "g", topic) for topic in topics] == [10, 10]
    assert backlogs() == [0, 0, 0]
    assert http.post("/admin/v2/namespaces/cleared/ns/unsubscribe/g").status_code == 204
    assert [committed(house, "g", topic) < 0 for topic in topics] == [True, True]


def test_a_group_that_kafka_deletes_is_gone_for_pulsar(
    http: httpx.Client, house: BrokerProcess, topic: str
) -> None:
    produce(house, topic, 0, 3)
    consumer = consumer_of(house, topic)
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    consumer.close()
    eventually(lambda: backlog(http, topic, topic), 2)
    admin = AdminClient({"bootstrap.servers": house.address})
    admin.delete_consumer_groups([topic])[topic].result()
    eventually(lambda: backlog(http, topic, topic), None)


def test_a_subscription_that_only_has_a_groups_name_is_left_alone(
    http: httpx.Client, house: BrokerProcess, client: pulsar.Client, topic: str
) -> None:
    client.subscribe(topic, topic).close()
    produce(house, topic, 0, 3)
    consumer = consumer_of(house, topic)
    consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    consumer.close()
    time.sleep(2.5)
    assert backlog(http, topic, topic) == 3
    assert committed(house, topic, topic) == 3


@pytest.fixture(scope="module")
def linked_house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("linked") / "data"
    settings = ("group.initial.rebalance.delay.ms=0", "linked.subscriptions=shared")
    given = [word for setting in settings for word in ("--set", setting)]
    with BrokerProcess(data, "--pulsar", "127.0.0.1:0", "--http", "127.0.0.1:0", *given) as process:
        yield process


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [1, 7])
def test_a_linked_group_and_subscription_hand_over_without_a_gap(
    linked_house: BrokerProcess, topic: str, at_once: int
) -> None:
    house = linked_house
    produce(house, topic, 0, MESSAGES, at_once=at_once)
    # Kafka begins, commits in the middle of a batch, and dies without a word.
    consumer = consumer_of(house, "shared")
    consumer.subscribe([topic])
    assert read(consumer, 40) == list(range(40))
    consumer.commit(offsets=[TopicPartition(topic, 0, 31)], asynchronous=False)
    client = pulsar.Client(house.pulsar_url)
    waiting = client.subscribe(topic, "shared", batch_index_ack_enabled=True)
    with pytest.raises(pulsar.Timeout):
        waiting.receive(1500)  # the group has members
    consumer.close()
    # Pulsar goes on right there.
    got = [int(waiting.receive(30_000).data()) for _ in range(20)]
    assert got == list(range(31, 51))
    waiting.close()
    again = client.subscribe(topic, "shared", batch_index_ack_enabled=True)
    first = [again.receive(30_000) for _ in range(15)]
    assert [int(each.data()) for each in first] == list(range(31, 46))  # nothing was acknowledged
    for each in first[:12]:
        again.acknowledge(each)
    eventually(lambda: committed(house, "shared", topic), 43)
    # Kafka comes back while the subscription's consumer is there and holds messages.
    back = consumer_of(house, "shared")
    back.subscribe([topic])
    assert read(back, MESSAGES - 43) == list(range(43, MESSAGES))
    back.commit(asynchronous=False)
    back.close()
    eventually(lambda: committed(house, "shared", topic), MESSAGES)
    produce(house, topic, MESSAGES, MESSAGES + 1)
    while (number := int(again.receive(30_000).data())) < MESSAGES:
        pass  # what it already held when Kafka came back
    assert number == MESSAGES
    client.close()
