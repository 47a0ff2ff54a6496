"""The pages of one topic, which clients of both protocols use, some with names that are no names."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pulsar
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.console.test_pages import BIDI, SCRIPT, commit, facts, make, page, produce
from tests.process import BrokerProcess
from tests.waiting import until

TOPIC = "clients"


@pytest.fixture(scope="module", autouse=True)
def clients(house: BrokerProcess) -> Iterator[None]:
    make(house, TOPIC, partitions=3)
    produce(house, TOPIC, *[b"x" * 1000] * 10, partition=1)
    commit(house, TOPIC, f"group {SCRIPT}")
    idempotent = Producer({"bootstrap.servers": house.address, "enable.idempotence": True})
    idempotent.produce(TOPIC, b"once", partition=2)
    assert idempotent.flush(60) == 0
    client = pulsar.Client(house.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    full = f"persistent://public/default/{TOPIC}"
    client.create_producer(full, producer_name=f"producer {SCRIPT}").send(b"m")
    client.subscribe(
        full,
        f"sub {BIDI}",
        consumer_name="consumer {{7*7}}",
        initial_position=pulsar.InitialPosition.Earliest,
    )
    yield
    client.close()


def test_a_topics_partitions_readers_and_clients(house: BrokerProcess, http: httpx.Client) -> None:
    until(lambda: len(facts(http, "/console/topic", topic=TOPIC)["readers"]) == 2)
    told = facts(http, "/console/topic", topic=TOPIC)
    assert [each["partition"] for each in told["rows"]] == [0, 1, 2]
    assert told["rows"][1]["records"] >= 10
    assert told["rows"][1]["size"] > 10_000
    assert {each["name"] for each in told["readers"]} == {f"group {SCRIPT}", f"sub {BIDI}"}
    assert {each["protocol"] for each in told["readers"]} == {"kafka", "pulsar"}
    assert {each["producerName"] for each in told["pulsar_producers"]} >= {f"producer {SCRIPT}"}
    assert {each["consumerName"] for each in told["pulsar_consumers"]} == {"consumer {{7*7}}"}
    assert any(each["partition"] == 2 for each in told["kafka_producers"])
    text = page(http, "/console/topic", topic=f"persistent://public/default/{TOPIC}")
    assert "abc\\u202etxt.exe" in text
    assert "consumer {{7*7}}" in text
    assert "&lt;script&gt;" in text
    assert f"kafka-topics.sh --bootstrap-server {house.address} --describe --topic {TOPIC}" in text


def test_its_ledgers(http: httpx.Client) -> None:
    told = facts(http, "/console/ledgers", topic=TOPIC, partition="1")
    assert told["count"] == 1
    (ledger,) = told["ledgers"]
    assert ledger["entries"] >= 1
    assert ledger["lies"] == "here"
    assert "here" in page(http, "/console/ledgers", topic=TOPIC, partition="1")
    assert facts(http, "/console/ledgers", topic=TOPIC, partition="99")["partition"] == 2
    assert http.get("/console/ledgers.json", params={"topic": TOPIC, "partition": "x"}).status_code == 400


def test_its_configuration_says_where_each_value_comes_from(house: BrokerProcess, http: httpx.Client) -> None:
    change = ConfigEntry("retention.ms", "4321000", incremental_operation=AlterConfigOpType.SET)
    asked = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[change])
    admin = AdminClient({"bootstrap.servers": house.address})
    for each in admin.incremental_alter_configs([asked]).values():
        each.result(60)
    told = facts(http, "/console/configuration", topic=TOPIC)
    assert told["own"] == 1
    own = told["configs"][0]
    assert (own["name"], own["value"], own["source"]) == ("retention.ms", "4321000", "topic")
    assert own["others"][-1]["source"] == "default"
    assert all(each["doc"] for each in told["configs"])
    assert "4321000" in page(http, "/console/configuration", topic=TOPIC)


@pytest.mark.parametrize("name", ["topic", "ledgers", "configuration"])
def test_topics_that_are_not_there(http: httpx.Client, name: str) -> None:
    for topic, status in (("nothing", 404), ("", 400), ("a/b", 412), (SCRIPT, 412), (BIDI, 412)):
        answer = http.get(f"/console/{name}.json", params={"topic": topic})
        assert answer.status_code == status, answer.text
        assert http.get(f"/console/{name}", params={"topic": topic}).status_code == status


def test_a_topic_of_many_partitions_has_pages(house: BrokerProcess, http: httpx.Client) -> None:
    make(house, "wide", partitions=205)
    told = facts(http, "/console/topic", topic="wide", page="3")
    assert [each["partition"] for each in told["rows"]] == [200, 201, 202, 203, 204]
    assert told["pages"] == 3
    assert "Page 3 of 3" in page(http, "/console/topic", topic="wide", page="7")
