"""What stats say is measured: each number moves with what clients do, and none is a constant."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pulsar
import pytest
from pulsar import ConsumerType

from tests.process import BrokerProcess
from tests.rest.test_groups import path_of

_numbers = itertools.count()
WAIT_MS = 20_000


@pytest.fixture
def topic() -> str:
    return f"measured-{next(_numbers)}"


@pytest.fixture
def client(house: BrokerProcess) -> Iterator[pulsar.Client]:
    client = pulsar.Client(house.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


def stats(http: httpx.Client, topic: str) -> dict[str, Any]:
    return dict(http.get(f"{path_of(topic)}/stats").json())


def between(http: httpx.Client, topic: str, work: Callable[[], None]) -> dict[str, Any]:
    """Return stats that have seen ``work``: rates are what happened since the look before the last but one second."""
    stats(http, topic)
    work()
    time.sleep(1.1)
    return stats(http, topic)


def test_rates_of_producers_and_consumers(client: pulsar.Client, http: httpx.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", ConsumerType.Shared)
    producer = client.create_producer(topic)

    def work() -> None:
        for number in range(20):
            producer.send(b"%d" % number + bytes(100))
        for _ in range(20):
            consumer.acknowledge(consumer.receive(WAIT_MS))

    found = between(http, topic, work)
    (publisher,) = found["publishers"]
    subscription = found["subscriptions"]["s"]
    (reader,) = subscription["consumers"]
    for row, messages, size in (
        (publisher, "msgRateIn", "msgThroughputIn"),
        (reader, "msgRateOut", "msgThroughputOut"),
        (subscription, "msgRateOut", "msgThroughputOut"),
    ):
        assert 0 < row[messages] <= 20
        assert row[size] > 100 * row[messages]
    assert reader["messageAckRate"] > 0
    assert subscription["messageAckRate"] == pytest.approx(reader["messageAckRate"], rel=0.2)
    assert reader["messageAckCounter"] == 20
    assert reader["msgRateRedeliver"] == subscription["msgRateRedeliver"] == 0
    time.sleep(1.1)
    stats(http, topic)
    time.sleep(1.1)
    (quiet,) = stats(http, topic)["publishers"]
    assert quiet["msgRateIn"] == 0


def test_batches_count_as_their_messages(client: pulsar.Client, http: httpx.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", ConsumerType.Shared)
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=200)
    for number in range(10):
        producer.send_async(b"%d" % number, None)
    producer.flush()
    for message in [consumer.receive(WAIT_MS) for _ in range(10)]:
        consumer.acknowledge(message)
    while (reader := stats(http, topic)["subscriptions"]["s"]["consumers"][0])["messageAckCounter"] < 10:
        time.sleep(0.05)
    assert (reader["messageAckCounter"], reader["msgOutCounter"]) == (10, 10)


def test_what_is_sent_again(client: pulsar.Client, http: httpx.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", ConsumerType.Shared, negative_ack_redelivery_delay_ms=100)
    producer = client.create_producer(topic)

    def work() -> None:
        for number in range(5):
            producer.send(b"%d" % number)
        for message in [consumer.receive(WAIT_MS) for _ in range(5)]:
            consumer.negative_acknowledge(message)
        for _ in range(5):
            assert consumer.receive(WAIT_MS).redelivery_count() == 1

    subscription = between(http, topic, work)["subscriptions"]["s"]
    assert 0 < subscription["msgRateRedeliver"] <= 5
    assert subscription["consumers"][0]["msgRateRedeliver"] == pytest.approx(
        subscription["msgRateRedeliver"], rel=0.2
    )


def test_who_is_blocked(client: pulsar.Client, http: httpx.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", ConsumerType.Shared)
    assert not stats(http, topic)["subscriptions"]["s"]["consumers"][0]["blockedConsumerOnUnackedMsgs"]
    body = b"3"
    path = f"{path_of(topic)}/maxUnackedMessagesOnConsumer"
    assert http.post(path, content=body, headers={"content-type": "application/json"}).status_code < 300
    producer = client.create_producer(topic)
    for number in range(5):
        producer.send(b"%d" % number)
    messages = [consumer.receive(WAIT_MS) for _ in range(3)]
    assert stats(http, topic)["subscriptions"]["s"]["consumers"][0]["blockedConsumerOnUnackedMsgs"]
    for message in messages:
        consumer.acknowledge(message)
    while stats(http, topic)["subscriptions"]["s"]["consumers"][0]["blockedConsumerOnUnackedMsgs"]:
        time.sleep(0.05)


def test_what_expired(client: pulsar.Client, http: httpx.Client, topic: str) -> None:
    client.subscribe(topic, "s").close()
    producer = client.create_producer(topic)
    for number in range(4):
        producer.send(b"%d" % number)

    def work() -> None:
        time.sleep(1.2)
        assert http.post(f"{path_of(topic)}/subscription/s/expireMessages/1").status_code < 300

    subscription = between(http, topic, work)["subscriptions"]["s"]
    assert subscription["totalMsgExpired"] >= 3
    assert subscription["msgRateExpired"] > 0


def test_where_reading_is(client: pulsar.Client, http: httpx.Client, topic: str) -> None:
    """Of six entries the first is acknowledged and two more went out; nothing waits while there is more to read."""

    def cursor() -> dict[str, Any]:
        return dict(http.get(f"{path_of(topic)}/internalStats").json()["cursors"]["s"])

    consumer = client.subscribe(topic, "s", receiver_queue_size=1)
    producer = client.create_producer(topic)
    assert cursor()["numberOfEntriesSinceFirstNotAckedMessage"] == 0
    while not cursor()["waitingReadOp"]:
        time.sleep(0.05)
    for number in range(6):
        producer.send(b"%d" % number)
    consumer.acknowledge(consumer.receive(WAIT_MS))
    consumer.receive(WAIT_MS)
    while (found := cursor())["markDeletePosition"].split(":")[1] != "0":
        time.sleep(0.05)
    entry = int(found["readPosition"].split(":")[1])
    assert entry > 1
    assert found["numberOfEntriesSinceFirstNotAckedMessage"] == entry - 1
    assert not found["waitingReadOp"]  # the consumer has no room
    assert not found["subscriptionHavePendingRead"]
    for name in ("properties", "pendingReadOps", "lastLedgerSwitchTimestamp"):
        assert name not in found  # nothing stands behind them here
    for _ in range(4):
        consumer.acknowledge(consumer.receive(WAIT_MS))
    while not (cursor()["waitingReadOp"] and cursor()["subscriptionHavePendingRead"]):
        time.sleep(0.05)


def test_whether_messages_came_in_chunks_and_keys_out_of_order(
    client: pulsar.Client, http: httpx.Client, topic: str
) -> None:
    producer = client.create_producer(topic, chunking_enabled=True, batching_enabled=False)
    producer.send(b"small")
    assert not stats(http, topic)["msgChunkPublished"]
    producer.send(bytes(6 << 20))
    assert stats(http, topic)["msgChunkPublished"]
    policy = pulsar.ConsumerKeySharedPolicy(allow_out_of_order_delivery=True)
    client.subscribe(topic, "any", ConsumerType.KeyShared, key_shared_policy=policy)
    client.subscribe(topic, "ordered", ConsumerType.KeyShared)
    found = stats(http, topic)["subscriptions"]
    assert [found[name]["allowOutOfOrderDelivery"] for name in ("any", "ordered")] == [True, False]


def test_who_has_the_topic(client: pulsar.Client, http: httpx.Client, topic: str) -> None:
    client.create_producer(topic)
    client.create_producer(f"non-persistent://public/default/{topic}")
    (broker,) = http.get("/admin/v2/brokers").json()
    assert broker.startswith("127.0.0.1:")
    assert stats(http, topic)["ownerBroker"] == broker
    other = path_of(topic).replace("/persistent/", "/non-persistent/")
    assert http.get(f"{other}/stats").json()["ownerBroker"] == broker
