"""What is asked of all partitions of a topic is done by whichever workers have them, whoever is asked."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import httpx
import pulsar
import pytest

from tests.waiting import until
from tests.workers.house import PARTITIONS, House

pytestmark = [pytest.mark.slow]
MESSAGES = 400
T = "persistent/public/default/t"
EARLIEST = {"ledgerId": -1, "entryId": -1}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with House(tmp_path_factory.mktemp("workers") / "data", 2) as house:
        yield house
    assert "Traceback" not in house.log.read_text()


@pytest.fixture(scope="module")
def client(house: House) -> Iterator[pulsar.Client]:
    client = pulsar.Client(house.served["pulsar"][0])
    yield client
    client.close()


class Asked:
    """One worker's admin REST: whoever is sent on to another is told so by its status."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=f"{url}/admin/v2/", timeout=60, trust_env=False)

    def __call__(self, method: str, path: str, body: Any = None, expect: int = 2, **query: Any) -> Any:
        answer = self.http.request(method, path, json=body, params=query)
        assert answer.status_code in (expect, *range(expect * 100, expect * 100 + 100)), answer.text
        return answer.json() if answer.content else None


@pytest.fixture(scope="module")
def workers(house: House, client: pulsar.Client) -> dict[str, Asked]:
    """The REST of each, by its address, with a topic whose partitions are on both, and messages in all of them.

    A worker that is late is given partitions while they are written to, and its counters know what came since.
    """
    any_of_them = Asked(house.served["http"][0])
    while True:
        fill(house, client, any_of_them)
        if any_of_them("GET", f"{T}/partitioned-stats")["msgInCounter"] == MESSAGES:
            return {url: Asked(url) for url in owners(house).values()}
        any_of_them("DELETE", f"{T}/partitions")


def fill(house: House, client: pulsar.Client, ask: Asked) -> None:
    ask("PUT", f"{T}/partitions", PARTITIONS)
    house.until_shared("t")
    producer = client.create_producer("t", batching_enabled=False, block_if_queue_full=True)
    for number in range(MESSAGES):
        producer.send_async(b"%d" % number, lambda *_: None, partition_key=str(number))
    producer.flush()
    producer.close()


def owners(house: House) -> dict[int, str]:
    """By the number of a partition the address of its worker's REST."""
    found = {}
    for number in range(PARTITIONS):
        url = f"{house.served['http'][0]}/lookup/v2/topic/{T}-partition-{number}"
        found[number] = httpx.get(url, trust_env=False).raise_for_status().json()["httpUrl"]
    return found


def backlog(ask: Asked, subscription: str) -> int:
    stats = ask("GET", f"{T}/partitioned-stats")
    return int(stats["subscriptions"][subscription]["msgBacklog"])


def test_stats_are_of_all_partitions_and_tell_who_has_each(house: House, workers: dict[str, Asked]) -> None:
    assert len(workers) == 2
    for ask in workers.values():
        stats = ask("GET", f"{T}/partitioned-stats")
        assert stats["msgInCounter"] == MESSAGES
        has = {
            int(name.rpartition("-")[2]): each["ownerBroker"] for name, each in stats["partitions"].items()
        }
        assert has == {number: url.partition("://")[2] for number, url in owners(house).items()}
        internal = ask("GET", f"{T}/partitioned-internalStats")
        assert sum(each["numberOfEntries"] for each in internal["partitions"].values()) == MESSAGES
        assert ask("GET", f"{T}/partitioned-stats", perPartition="false")["partitions"] == {}


def test_a_subscription_is_made_moved_and_ended_on_all_partitions(workers: dict[str, Asked]) -> None:
    first, second = workers.values()
    first("PUT", f"{T}/subscription/s", EARLIEST)
    assert first("GET", f"{T}/subscriptions") == second("GET", f"{T}/subscriptions") == ["s"]
    second("PUT", f"{T}/subscription/s", expect=409)
    assert backlog(first, "s") == backlog(second, "s") == MESSAGES
    second("POST", f"{T}/subscription/s/skip_all")
    assert backlog(first, "s") == 0
    first("POST", f"{T}/subscription/s/resetcursor/0")
    assert backlog(second, "s") == MESSAGES
    first("POST", f"{T}/subscription/s/expireMessages/100000")
    assert backlog(second, "s") == MESSAGES
    first("POST", f"{T}/subscription/s/expireMessages/0")
    assert backlog(second, "s") == 0
    first("POST", f"{T}/subscription/s/resetcursor/0")
    second("POST", f"{T}/all_subscription/expireMessages/0")
    assert backlog(second, "s") == 0
    second("PUT", f"{T}/subscription/s/properties", {"of": "all"})
    for number in range(PARTITIONS):
        stats = first("GET", f"{T}/partitioned-stats")["partitions"]
        one = stats[f"persistent://public/default/t-partition-{number}"]
        assert one["subscriptions"]["s"]["subscriptionProperties"] == {"of": "all"}
    assert first("GET", f"{T}/subscription/s/properties") == {"of": "all"}
    first("DELETE", f"{T}/subscription/s")
    assert second("GET", f"{T}/subscriptions") == []
    for what in ("skip_all", "resetcursor/0", "expireMessages/1"):
        second("POST", f"{T}/subscription/s/{what}", expect=404)
    second("DELETE", f"{T}/subscription/s", expect=404)


def test_whoever_uses_one_partition_keeps_it_all_wherever_that_is(
    house: House, client: pulsar.Client, workers: dict[str, Asked]
) -> None:
    for number in range(PARTITIONS):
        reader = client.subscribe(f"t-partition-{number}", "used")
        for ask in workers.values():
            ask("DELETE", f"{T}/subscription/used", expect=412)
            ask("DELETE", f"{T}/partitions", expect=412)
        reader.close()
    next(iter(workers.values()))("DELETE", f"{T}/subscription/used")


def test_a_namespace_or_a_bundle_of_it_is_cleared(house: House, workers: dict[str, Asked]) -> None:
    first, second = workers.values()
    first("PUT", f"{T}/subscription/s", EARLIEST)
    names = [f"persistent://public/default/t-partition-{number}" for number in range(PARTITIONS)]

    def left() -> dict[str, int]:
        stats = first("GET", f"{T}/partitioned-stats")["partitions"]
        return {name: stats[name]["subscriptions"]["s"]["msgBacklog"] for name in names}

    expected = left()
    assert min(expected.values()) > 0
    bounds = first("GET", "namespaces/public/default/bundles")["boundaries"]
    bundles = {}
    for begin, end in itertools.pairwise(bounds):
        last = end == bounds[-1]  # has the highest hash as well
        bundles[f"{begin}_{end}"] = {
            name
            for name in names
            if int(begin, 16) <= crc32(name.encode()) and (crc32(name.encode()) < int(end, 16) or last)
        }
    for bundle, of_it in bundles.items():
        second("POST", f"namespaces/public/default/{bundle}/clearBacklog/s")
        expected |= dict.fromkeys(of_it, 0)
        assert left() == expected
    assert set(expected.values()) == {0}
    first("POST", f"{T}/subscription/s/resetcursor/0")
    second("POST", "namespaces/public/default/clearBacklog")
    assert set(left().values()) == {0}
    bundle, of_it = next((bundle, of_it) for bundle, of_it in bundles.items() if of_it)
    first("POST", f"namespaces/public/default/{bundle}/unsubscribe/s")
    stats = first("GET", f"{T}/partitioned-stats")["partitions"]
    assert {name for name, each in stats.items() if not each["subscriptions"]} == of_it
    second("POST", "namespaces/public/default/unsubscribe/s")
    assert first("GET", f"{T}/subscriptions") == []


def test_topics_that_are_not_persistent(workers: dict[str, Asked], client: pulsar.Client) -> None:
    first, second = workers.values()
    first("PUT", "non-persistent/public/default/n/partitions", PARTITIONS)
    reader = client.subscribe("non-persistent://public/default/n", "s")
    for ask in (first, second):
        stats = ask("GET", "non-persistent/public/default/n/partitioned-stats")
        assert len(stats["partitions"]) == PARTITIONS
        assert len(stats["subscriptions"]["s"]["consumers"]) == PARTITIONS
        assert ask("GET", "non-persistent/public/default/n/subscriptions") == ["s"]
        ask("DELETE", "non-persistent/public/default/n/partitions", expect=412)
    producer = client.create_producer("non-persistent://public/default/plain")
    for what in ("stats", "subscriptions", "internalStats"):  # it has one broker: others send there
        path = f"non-persistent/public/default/plain/{what}"
        found = {ask.http.get(path).status_code for ask in (first, second)}
        assert found == {200, 307}
    producer.close()
    second("PUT", "non-persistent/public/default/n/unload")
    reader.close()
    first("DELETE", "non-persistent/public/default/n/subscription/s", expect=404)
    second("DELETE", "non-persistent/public/default/n/partitions")


def test_a_topic_is_compacted_unloaded_emptied_and_ended(workers: dict[str, Asked]) -> None:
    first, second = workers.values()
    first("PUT", f"{T}/compaction")
    until(lambda: second("GET", f"{T}/compaction")["status"] == "SUCCESS")
    second("PUT", f"{T}/unload")
    first("POST", f"{T}/trim")
    assert first("GET", f"{T}/partitioned-stats")["storageSize"] > 0
    first("DELETE", f"{T}/truncate")
    for each in second("GET", f"{T}/partitioned-internalStats")["partitions"].values():
        assert each["properties"]["firstOffset"] == each["properties"]["nextOffset"] != "0"
    ended = second("POST", f"{T}/terminate/partitions")
    assert sorted(map(int, ended)) == list(range(PARTITIONS))
    internal = first("GET", f"{T}/partitioned-internalStats")["partitions"]
    assert {each["state"] for each in internal.values()} == {"Terminated"}
    second("DELETE", f"{T}/partitions")
    first("GET", f"{T}/partitioned-stats", expect=404)


def test_new_partitions_begin_with_the_topics_subscriptions_whoever_has_them(
    house: House, client: pulsar.Client, workers: dict[str, Asked]
) -> None:
    topic = "grows-apart"
    ask, other = workers.values()
    ask("PUT", f"persistent/public/default/{topic}/partitions", 2)
    client.subscribe(topic, "kept", pulsar.ConsumerType.Shared).close()
    other("POST", f"persistent/public/default/{topic}/partitions", PARTITIONS)
    producer = client.create_producer(topic, block_if_queue_full=True)
    for number in range(MESSAGES):
        producer.send_async(b"%d" % number, lambda *_: None, partition_key=str(number))
    producer.flush()
    stats = ask("GET", f"persistent/public/default/{topic}/partitioned-stats", perPartition="true")
    assert len(stats["partitions"]) == PARTITIONS
    assert all(list(each["subscriptions"]) == ["kept"] for each in stats["partitions"].values())
    consumer = client.subscribe(topic, "kept", pulsar.ConsumerType.Shared)
    assert {int(consumer.receive(10_000).data()) for _ in range(MESSAGES)} == set(range(MESSAGES))
    consumer.close()
