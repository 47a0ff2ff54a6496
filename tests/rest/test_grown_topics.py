"""What is sent to a topic's new partitions before its consumers have found them waits for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import httpx
import pulsar
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.process import BrokerProcess

ROOT = "/admin/v2/persistent/public/default"
MESSAGES = 500
_NUMBERS = count()
Grow = Callable[[str, int], None]


@pytest.fixture
def client(house: BrokerProcess) -> Iterator[pulsar.Client]:
    client = pulsar.Client(f"pulsar://{house.served['pulsar'][0]}")
    yield client
    client.close()


@pytest.fixture(params=["Pulsar's REST", "CreatePartitions"])
def grow(request: pytest.FixtureRequest, house: BrokerProcess, http: httpx.Client) -> Grow:
    def by_rest(topic: str, partitions: int) -> None:
        assert http.post(f"{ROOT}/{topic}/partitions", json=partitions).status_code == 204

    def by_kafka(topic: str, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": house.address})
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result()

    return by_rest if request.param == "Pulsar's REST" else by_kafka


def subscriptions(http: httpx.Client, partition: str) -> dict[str, Any]:
    return dict(http.get(f"{ROOT}/{partition}/stats").raise_for_status().json()["subscriptions"])


def test_what_is_sent_to_a_new_partition_before_a_consumer_has_found_it_waits_for_it(
    client: pulsar.Client, http: httpx.Client, grow: Grow
) -> None:
    topic = f"grows-{next(_NUMBERS)}"
    http.put(f"{ROOT}/{topic}/partitions", json=2).raise_for_status()
    beginning = {"ledgerId": -1, "entryId": -1, "properties": {"of": "them"}}
    http.put(f"{ROOT}/{topic}/subscription/kept", json=beginning).raise_for_status()
    consumer = client.subscribe(topic, "kept", pulsar.ConsumerType.Shared)
    reader = client.create_reader(f"persistent://public/default/{topic}-partition-0", pulsar.MessageId.latest)
    grow(topic, 5)
    producer = client.create_producer(topic, block_if_queue_full=True)
    for number in range(MESSAGES):
        producer.send_async(b"%d" % number, lambda *_: None, partition_key=str(number))
    producer.flush()
    for partition in range(2, 5):
        (name,) = subscriptions(http, f"{topic}-partition-{partition}").items()
        assert (name[0], name[1]["subscriptionProperties"]) == ("kept", {"of": "them"})
    consumer.close()
    again = client.subscribe(topic, "kept", pulsar.ConsumerType.Shared)
    assert {int(again.receive(10_000).data()) for _ in range(MESSAGES)} == set(range(MESSAGES))
    reader.close()


def test_a_topic_without_partitions_that_gets_some_keeps_its_subscriptions_on_all(
    client: pulsar.Client, house: BrokerProcess, http: httpx.Client
) -> None:
    topic = f"grows-{next(_NUMBERS)}"
    client.subscribe(topic, "kept").close()
    admin = AdminClient({"bootstrap.servers": house.address})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result()
    for partition in range(3):
        assert list(subscriptions(http, f"{topic}-partition-{partition}")) == ["kept"]


def test_asked_again_partitions_without_subscriptions_get_those_of_the_first(http: httpx.Client) -> None:
    """As when the broker was killed while the topic grew."""
    topic = f"grows-{next(_NUMBERS)}"
    http.put(f"{ROOT}/{topic}/partitions", json=3).raise_for_status()
    for partition, name in ((0, "one"), (0, "two"), (1, "one")):
        http.put(f"{ROOT}/{topic}-partition-{partition}/subscription/{name}").raise_for_status()
    assert http.post(f"{ROOT}/{topic}/partitions", json=3).status_code == 204
    found = [sorted(subscriptions(http, f"{topic}-partition-{number}")) for number in range(3)]
    assert found == [["one", "two"], ["one"], ["one", "two"]], "what has some is somebody's wish"
