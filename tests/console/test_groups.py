"""Groups and subscriptions in one table, and each with the reason why it stands still."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pulsar
import pytest
from confluent_kafka import Consumer

from tests.console.test_pages import BIDI, SCRIPT, commit, facts, make, page, produce
from tests.process import BrokerProcess
from tests.waiting import until

GROUP, SUBSCRIPTION = f"group {SCRIPT} {BIDI}", f"sub {SCRIPT}"


@pytest.fixture(scope="module", autouse=True)
def topic(house: BrokerProcess) -> None:
    make(house, "read", partitions=2)
    for partition in range(2):
        produce(house, "read", *[b"x"] * 20, partition=partition)
    commit(house, "read", GROUP)


@pytest.fixture
def client(house: BrokerProcess) -> Iterator[pulsar.Client]:
    made = pulsar.Client(house.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield made
    made.close()


def test_both_protocols_readers_are_in_one_table(http: httpx.Client, client: pulsar.Client) -> None:
    consumer = client.subscribe(
        "persistent://public/default/read",
        SUBSCRIPTION,
        consumer_name=SCRIPT,
        initial_position=pulsar.InitialPosition.Earliest,
    )
    until(lambda: facts(http, "/console/groups", protocol="pulsar", q=SUBSCRIPTION)["found"] == 1)
    told = facts(http, "/console/groups", q=SCRIPT)["readers"]
    by_name = {each["name"]: each for each in told}
    group, subscription = by_name[GROUP], by_name[SUBSCRIPTION]
    assert (group["protocol"], group["topics"], group["state"]) == ("kafka", ["read"], "Empty")
    assert 0 < group["lag"] < 40
    assert group["age_s"] is not None
    assert (subscription["protocol"], subscription["members"]) == ("pulsar", 1)
    assert 2 <= subscription["lag"] <= 40  # entries, of one record or more
    for query in (
        {},
        {"sort": "name"},
        {"sort": "members"},
        {"protocol": "kafka"},
        {"q": SCRIPT},
        {"page": "9"},
    ):
        page(http, "/console/groups", **query)
    assert http.get("/console/groups.json", params={"sort": "x"}).status_code == 400
    one = facts(http, "/console/subscription", topic="read", subscription=SUBSCRIPTION)
    assert (one["backlog"], one["consumer_count"]) == (subscription["lag"], 2)
    assert {each["offset"] for each in one["rows"]} == {0}
    assert one["why"]["reason"] in ("reading", "no-permits")
    page(http, "/console/subscription", topic="read", subscription=SUBSCRIPTION)
    for _ in range(40):
        consumer.acknowledge(consumer.receive(60_000))
    until(lambda: reason(http) == "caught-up")
    consumer.close()


def reason(http: httpx.Client) -> str:
    told = facts(http, "/console/subscription", topic="read", subscription=SUBSCRIPTION)
    return str(told["why"]["reason"])


def test_a_subscription_without_consumers(http: httpx.Client, client: pulsar.Client) -> None:
    consumer = client.subscribe(
        "persistent://public/default/read", "left", initial_position=pulsar.InitialPosition.Earliest
    )
    consumer.close()
    until(
        lambda: (
            facts(http, "/console/subscription", topic="read", subscription="left")["why"]["reason"]
            == "no-consumers"
        )
    )
    assert "no consumer is connected" in page(
        http, "/console/subscription", topic="read", subscription="left"
    )
    answer = http.get("/console/subscription.json", params={"topic": "read", "subscription": "none"})
    assert answer.status_code == 404


def test_a_group_tells_why_it_stands_still(house: BrokerProcess, http: httpx.Client) -> None:
    told = facts(http, "/console/group", group=GROUP)
    assert told["why"]["reason"] in ("no-members", "unassigned")
    assert told["why"]["says"]
    assert told["lag"] > 0
    assert {(each["topic"], each["partition"]) for each in told["partitions"]} <= {("read", 0), ("read", 1)}
    page(http, "/console/group", group=GROUP)
    assert http.get("/console/group.json", params={"group": "none"}).status_code == 404
    assert http.get("/console/group.json").status_code == 400


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_are_shown_with_what_they_hold(
    house: BrokerProcess, http: httpx.Client, protocol: str
) -> None:
    name = f"members-{protocol}"
    settings = {"bootstrap.servers": house.address, "group.id": name, "client.id": SCRIPT}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "group.protocol": protocol})
    consumer.subscribe(["read"])
    until(lambda: consumer.poll(0.5) is not None and len(consumer.assignment()) == 2)
    consumer.commit(asynchronous=False)
    (member,) = facts(http, "/console/group", group=name)["members"]
    assert member["client"] == SCRIPT
    assert member["assigned"] == ["read-0", "read-1"]
    page(http, "/console/group", group=name)
    consumer.close()


def test_why_of_a_partition(http: httpx.Client) -> None:
    asked = {"topic": "read", "partition": "1"}

    def agree() -> bool:
        told = facts(http, "/console/why", **asked)
        assert told["why"]["reason"] in ("moving", "idle")
        shown = page(http, "/console/why", **asked).replace("&#39;", "'")
        return timeless(told["why"]["says"]) in timeless(shown)

    until(agree)  # between two requests it may have come to stand still


def timeless(text: str) -> str:
    """Return a text without the spans of time in it, which are others a moment later."""
    return re.sub(r"\b\d+ (?:ms|s|min|h|d)\b", "a while", text)
