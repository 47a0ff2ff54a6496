"""Bundles are split, unloaded and moved, by hand and by load, while a stock client produces: nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from urllib.error import HTTPError

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.brokers import (
    PARTITIONS,
    BrokerProcess,
    Load,
    bootstrap,
    check,
    leaders,
    make_topic,
)
from tests.cluster.rest import ask, bundles
from tests.cluster.servers import Cluster, class_path
from tests.waiting import until

class_path()  # skips the module where BookKeeper cannot be run
pytestmark = [pytest.mark.slow]

BUNDLE_MAX_TOPICS = 20


@pytest.fixture(scope="module")
def pair(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    directory = tmp_path_factory.mktemp("brokers")
    quick = ("load.report.interval.ms=300", "load.shedding.interval.s=1", "load.shedding.grace.s=3600")
    large = f"bundle.max.topics={BUNDLE_MAX_TOPICS}"
    brokers = [
        BrokerProcess(cluster, directory, number, *quick, "load.shedding.enabled=false", large)
        for number in (1, 2)
    ]
    for each in brokers:
        each.start()
    yield brokers
    for each in brokers:
        each.end()


def move(broker: BrokerProcess, namespace: str, target: BrokerProcess) -> None:
    ask(broker, "PUT", f"namespaces/{namespace}/unload?destinationBroker=127.0.0.1:{target.http}")


def under_load(pair: list[BrokerProcess], topic: str, act: Callable[[AdminClient, Load], None]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap(pair)})
    make_topic(admin, topic)
    load = Load(bootstrap(pair), topic)
    load.wait_for_more(1000)
    act(admin, load)
    load.wait_for_more(2000)
    load.end()
    check(load, bootstrap(pair), topic)


def test_a_bundle_is_split_by_any_broker_under_load(pair: list[BrokerProcess]) -> None:
    def act(admin: AdminClient, load: Load) -> None:
        before = bundles(pair[0])
        for each in before[:2]:
            ask(pair[1], "PUT", f"namespaces/public/default/{each}/split?unload=true")
            load.wait_for_more(500)
        after = bundles(pair[0])
        assert len(after) == len(before) + 2
        assert set(before[2:]) < set(after)
        assert set(before[:2]).isdisjoint(after)
        until(lambda: bundles(pair[1]) == after)
        ask(
            pair[0],
            "PUT",
            "namespaces/public/default/LARGEST/split?splitAlgorithmName=topic_count_equally_divide",
        )
        assert len(bundles(pair[0])) == len(before) + 3
        until(lambda: min(leaders(admin, "split").values()) > 0)

    under_load(pair, "split", act)


def test_bundles_that_cannot_be_split_so_stay_as_they_are(pair: list[BrokerProcess]) -> None:
    before = bundles(pair[0])
    for path, body in (
        ("0x00000000_0x00000001/split", None),
        (f"{before[-1]}/split?splitAlgorithmName=by_colour", None),
        (f"{before[-1]}/split?splitAlgorithmName=specified_positions_divide", [0]),
    ):
        with pytest.raises(HTTPError) as refused:
            ask(pair[0], "PUT", f"namespaces/public/default/{path}", body)
        assert refused.value.code == 412
    assert bundles(pair[0]) == before


def test_a_namespace_goes_to_the_broker_that_is_named_and_back_under_load(pair: list[BrokerProcess]) -> None:
    def is_at(admin: AdminClient, target: BrokerProcess) -> bool:
        return set(leaders(admin, "moved").values()) == {target.number}

    def act(admin: AdminClient, load: Load) -> None:
        for target in (*pair, *pair):
            move(pair[0], "public/default", target)
            until(partial(is_at, admin, target))
            load.wait_for_more(500)

    under_load(pair, "moved", act)
    with pytest.raises(HTTPError) as refused:
        ask(pair[0], "PUT", "namespaces/public/default/unload?destinationBroker=nowhere:1")
    assert refused.value.code == 412


def test_a_rolling_restart_under_load_loses_nothing(
    pair: list[BrokerProcess], record_property: pytest.RecordProperty
) -> None:
    def act(admin: AdminClient, load: Load) -> None:
        load.longest_silence_s = 0.0
        for each in pair:
            each.end()
            load.wait_for_more(500)  # by the other
            each.start()
            until(lambda: -1 not in leaders(admin, "rolled").values())
            load.wait_for_more(500)
        record_property("longest silence s", round(load.longest_silence_s, 2))

    under_load(pair, "rolled", act)


def test_what_is_unloaded_comes_back_whoever_had_it(pair: list[BrokerProcess]) -> None:
    def act(admin: AdminClient, load: Load) -> None:
        for _ in range(3):
            ask(pair[0], "PUT", "namespaces/public/default/unload")
            load.wait_for_more(500)

    under_load(pair, "unloaded", act)


def test_a_bundle_with_too_many_topics_is_split_by_itself(pair: list[BrokerProcess]) -> None:
    before = len(bundles(pair[0]))
    admin = AdminClient({"bootstrap.servers": bootstrap(pair)})
    many = 4 * BUNDLE_MAX_TOPICS * before
    admin.create_topics([NewTopic("many", many)])["many"].result()
    producer = Producer({"bootstrap.servers": bootstrap(pair)})
    failed: list[object] = []
    for partition in range(many):
        producer.produce("many", b"x", partition=partition, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(120) == 0
    assert set(failed) == {None}
    until(lambda: len(bundles(pair[0])) > before + 3)


def test_a_busy_broker_gives_bundles_away(pair: list[BrokerProcess]) -> None:
    """Both have as many bundles, so that it is the load alone by which they are moved."""
    mine, others = pair
    move(mine, "public/default", mine)
    move(mine, "public/__kafka", others)
    for broker in pair:
        for name, value in (("load.shedding.threshold.percent", "3"), ("load.shedding.enabled", "true")):
            ask(broker, "POST", f"brokers/configuration/{name}/{value}")

    def act(admin: AdminClient, load: Load) -> None:
        until(lambda: set(leaders(admin, "busy").values()) == {1, 2})
        assert len(leaders(admin, "busy")) == PARTITIONS

    under_load(pair, "busy", act)
