"""Kafka's groups as Pulsar's tools see them, and linked names, where a group's coordinator is another worker's."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import httpx
import pulsar
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.rest.test_groups import consumer_of, read
from tests.waiting import until
from tests.workers.house import PARTITIONS, House

pytestmark = [pytest.mark.slow]
EACH = 50
GROUPS = 6
"""So many that each worker coordinates some: names that differ in their last digit are of as many partitions."""
LINKED = [f"linked-topic-{number}" for number in range(20)]
"""One for each topic."""
_tries = itertools.count()


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    settings = (f"linked.subscriptions={','.join(LINKED)}", "group.initial.rebalance.delay.ms=0")
    given = [word for setting in settings for word in ("--set", setting)]
    with House(tmp_path_factory.mktemp("workers") / "data", 2, *given) as house:
        yield house
    assert "Traceback" not in house.log.read_text()


@pytest.fixture
def topic() -> str:
    """Return a name that no try before has used."""
    return f"topic-{next(_tries)}"


@pytest.fixture
def groups(topic: str) -> list[str]:
    return [f"group-of-{topic}-{number}" for number in range(GROUPS)]


@pytest.fixture
def http(house: House) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=f"{house.served['http'][0]}/admin/v2/persistent/public/default/", timeout=60
    ) as made:
        yield made


def filled(house: House, topic: str) -> None:
    """Make a topic, some of whose partitions each worker has, with as many messages in each."""
    house.make_topic(topic)
    house.until_shared(topic)
    producer = Producer({"bootstrap.servers": house.address})
    for number in range(EACH * PARTITIONS):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
        if number % PARTITIONS == PARTITIONS - 1:
            producer.flush()  # an entry each: that is what backlogs count


def commit(house: House, group: str, topic: str, offset: int) -> None:
    consumer = consumer_of(house, group)
    consumer.commit(
        offsets=[TopicPartition(topic, each, offset) for each in range(PARTITIONS)], asynchronous=False
    )
    consumer.close()


def committed(house: House, group: str, topic: str) -> list[int]:
    consumer = consumer_of(house, group)
    try:
        found = consumer.committed([TopicPartition(topic, each) for each in range(PARTITIONS)], timeout=10)
        return [each.offset for each in found]
    finally:
        consumer.close()


def coordinators(house: House, groups: list[str]) -> set[int]:
    admin = AdminClient({"bootstrap.servers": house.address})
    told = admin.describe_consumer_groups(groups)
    return {each.result().coordinator.id for each in told.values()}


def backlogs(http: httpx.Client, topic: str, name: str) -> list[Any]:
    found = http.get(f"{topic}/partitioned-stats").raise_for_status().json()["partitions"]
    each = [found[f"persistent://public/default/{topic}-partition-{number}"] for number in range(PARTITIONS)]
    return [stats["subscriptions"].get(name, {}).get("msgBacklog") for stats in each]


def test_groups_are_seen_skipped_reset_and_ended_whoever_coordinates_them(
    house: House, http: httpx.Client, topic: str, groups: list[str]
) -> None:
    filled(house, topic)
    for group in groups:
        commit(house, group, topic, 20)
    # A worker that is late is given its part of them later.
    until(lambda: coordinators(house, groups) == {0, 1})
    for group in groups:
        until(lambda group=group: backlogs(http, topic, group) == [EACH - 20] * PARTITIONS)
        http.post(f"{topic}/subscription/{group}/skip_all").raise_for_status()
        assert committed(house, group, topic) == [EACH] * PARTITIONS
        http.post(f"{topic}/subscription/{group}/resetcursor/0").raise_for_status()
        assert committed(house, group, topic) == [0] * PARTITIONS
        http.delete(f"{topic}/subscription/{group}").raise_for_status()
        assert committed(house, group, topic) == [-1001] * PARTITIONS
        assert backlogs(http, topic, group) == [None] * PARTITIONS
    for group in groups:
        commit(house, group, topic, 5)
        until(lambda group=group: backlogs(http, topic, group) == [EACH - 5] * PARTITIONS)
        house.admin.delete_consumer_groups([group])[group].result()
        until(lambda group=group: backlogs(http, topic, group) == [None] * PARTITIONS)


def test_groups_with_members_are_not_moved(
    house: House, http: httpx.Client, topic: str, groups: list[str]
) -> None:
    filled(house, topic)
    for group in groups[:4]:
        consumer = consumer_of(house, group)
        consumer.subscribe([topic])
        read(consumer, EACH * PARTITIONS)
        consumer.commit(asynchronous=False)
        until(lambda group=group: backlogs(http, topic, group) == [0] * PARTITIONS)
        for method, path in (("POST", "skip_all"), ("POST", "resetcursor/0"), ("DELETE", "")):
            refused = http.request(method, f"{topic}/subscription/{group}/{path}".rstrip("/"))
            assert (refused.status_code, "has members" in refused.text) == (412, True), (group, path)
        consumer.close()
    assert committed(house, groups[0], topic) == [EACH] * PARTITIONS


def test_a_linked_name_is_handed_over_and_back(house: House, topic: str) -> None:
    """Its partitions are on both workers, and its coordinator is one of them."""
    linked = f"linked-{topic}"
    filled(house, topic)
    everything = set(range(EACH * PARTITIONS))
    client = pulsar.Client(house.served["pulsar"][0])
    worker = client.subscribe(topic, linked, initial_position=pulsar.InitialPosition.Earliest)
    done = set()
    for _ in range(EACH * PARTITIONS // 2):
        message = worker.receive(30_000)
        done.add(int(message.data()))
        worker.acknowledge_cumulative(message)
    worker.close()
    wanted = [sum(each % PARTITIONS == partition for each in done) for partition in range(PARTITIONS)]
    until(lambda: committed(house, linked, topic) == wanted)
    consumer = consumer_of(house, linked)
    consumer.subscribe([topic])
    left = everything - done
    first = read(consumer, len(left) // 2)
    assert set(first) <= left
    assert len(set(first)) == len(first)
    waits = client.subscribe(topic, linked)
    consumer.commit(asynchronous=False)
    with pytest.raises(pulsar.Timeout):
        waits.receive(1500)  # the group has members
    consumer.close()
    rest = left - set(first)
    while rest:
        message = waits.receive(30_000)
        rest.discard(int(message.data()))
        assert int(message.data()) in left - set(first)
        waits.acknowledge_cumulative(message)
    until(lambda: committed(house, linked, topic) == [EACH] * PARTITIONS)
    client.close()
