"""What Pulsar's Go client says in its own way, and what it looks for in the answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pulsar
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions

from tests.process import BrokerProcess

NAMESPACE = "/admin/v2/namespaces/public/default"
AUTO = f"{NAMESPACE}/autoTopicCreation"


def test_a_subscription_may_be_called_subscription(http: httpx.Client) -> None:
    permissions = f"{NAMESPACE}/permissions/subscription"
    for name in ("subscription", "other"):
        assert http.post(f"{permissions}/{name}", json=["user"]).status_code == 204
    assert http.delete(f"{NAMESPACE}/permissions/subscription/user").status_code == 204
    assert http.get(permissions).json() == {"other": ["user"]}
    assert http.delete(f"{NAMESPACE}/permissions/other/user").status_code == 204
    assert http.delete(permissions).status_code == 204  # of a role of this name
    refused = http.patch(permissions)
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET")


def test_a_subscription_is_made_with_its_topic_where_topics_are_made_by_asking(http: httpx.Client) -> None:
    topics = "/admin/v2/persistent/public/default"
    latest = {"ledgerId": 2**63 - 1, "entryId": 2**63 - 1}
    assert http.put(f"{topics}/alone/subscription/s", json=latest).status_code == 204
    assert http.get(f"{topics}/alone/subscriptions").json() == ["s"]
    assert http.get(f"{topics}/alone/partitions").json()["partitions"] == 0
    partitioned = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3}
    assert http.post(AUTO, json=partitioned).status_code == 204
    assert http.put(f"{topics}/parted/subscription/s", json=latest).status_code == 204
    assert http.get(f"{topics}/parted/partitions").json()["partitions"] == 3
    assert http.post(AUTO, json={"allowAutoTopicCreation": False}).status_code == 204
    assert http.put(f"{topics}/nowhere/subscription/s", json=latest).status_code == 404
    assert http.delete(AUTO).status_code == 204
    assert http.delete(f"{topics}/parted/partitions", params={"force": True}).status_code == 204


def test_a_plus_in_a_path_is_a_space(http: httpx.Client) -> None:
    """Java's clients write names as its ``URLEncoder`` does."""
    topics = "/admin/v2/persistent/public/default"
    assert http.put(f"{topics}/a+b%2Bc%26+d/partitions", content="2").status_code == 204
    assert http.get(f"{topics}/partitioned").json() == ["persistent://public/default/a b+c& d"]
    assert http.get(f"{topics}/a%20b%2Bc%26%20d/partitions").json()["partitions"] == 2
    assert http.delete(f"{topics}/a+b%2Bc%26+d/partitions").status_code == 204


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"topicType": "partitioned"}, "cannot be null when the type is partitioned."),
        (
            {"topicType": "partitioned", "defaultNumPartitions": -1},
            "cannot be less than 1 for partition type.",
        ),
        (
            {"topicType": "non-partitioned", "defaultNumPartitions": 3},
            "is not allowed to be set when the type is non-partition.",
        ),
    ],
)
def test_which_topics_are_made_is_refused_in_pulsars_words(
    http: httpx.Client, said: dict[str, Any], why: str
) -> None:
    answer = http.post(AUTO, json={"allowAutoTopicCreation": True, **said})
    assert answer.status_code == 412
    told = "Invalid configuration for autoTopicCreationOverride. the detail is [defaultNumPartitions]"
    assert answer.json()["reason"] == f"{told} {why}"


def test_who_lets_no_topics_be_made_need_not_say_of_which_type(http: httpx.Client) -> None:
    said = {"allowAutoTopicCreation": False, "topicType": ""}
    assert http.post(AUTO, json=said).status_code == 204
    assert http.get(AUTO).json() == said
    asked = f"/admin/v2/persistent/public/default/{uuid4().hex}/partitions?checkAllowAutoCreation=true"
    try:
        assert http.get(asked).status_code == 404
    finally:
        assert http.delete(AUTO).status_code == 204
    assert http.get(asked).json() == {"partitions": 0}


def test_what_is_missing_is_told_in_pulsars_words(http: httpx.Client) -> None:
    answer = http.get("/admin/v2/namespaces/public/nowhere")
    assert (answer.status_code, answer.json()["reason"]) == (404, "Namespace does not exist")


def test_stats_leave_out_whom_they_are_told_to(http: httpx.Client, house: BrokerProcess) -> None:
    name = uuid4().hex
    client = pulsar.Client(house.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        for domain in ("persistent", "non-persistent"):
            topic = f"{domain}://public/default/{name}"
            client.create_producer(topic)
            client.subscribe(topic, "s")
            root = f"/admin/v2/{domain}/public/default/{name}"
            for path in (f"{root}/stats", f"{root}/partitioned-stats"):
                whole = http.get(path).json()
                assert whole["subscriptions"]["s"]["consumers"][0]["lastConsumedFlowTimestamp"] > 0
                assert len(whole["publishers"]) == len(whole["subscriptions"]["s"]["consumers"]) == 1
                found = http.get(
                    path, params={"excludePublishers": "true", "excludeConsumers": "true"}
                ).json()
                assert found["publishers"] == found["subscriptions"]["s"]["consumers"] == []
                assert http.get(path, params={"excludeConsumers": "true"}).json()["publishers"]
    finally:
        client.close()


def test_a_schemas_check_tells_by_which_strategy(http: httpx.Client) -> None:
    schema = {"type": "STRING", "schema": "", "properties": {}}
    root = f"/admin/v2/schemas/public/default/{uuid4().hex}"
    assert http.post(f"{root}/schema", json=schema).status_code == 200
    answer = http.post(f"{root}/compatibility", json=schema).json()
    assert answer == {"compatibility": True, "schemaCompatibilityStrategy": "FULL"}


def test_values_of_settings_and_properties_may_have_slashes(http: httpx.Client) -> None:
    assert http.put(f"{NAMESPACE}/property/where/a%2Fb").status_code == 204
    assert http.get(f"{NAMESPACE}/property/where").text == "a/b"
    assert http.delete(f"{NAMESPACE}/property/where").status_code == 200
    refused = http.post("/admin/v2/brokers/configuration/no.such.setting/a%2Fb")
    assert "is not served" not in refused.json()["reason"]


def test_a_topic_has_properties_beside_its_configuration(http: httpx.Client, house: BrokerProcess) -> None:
    for path, body in (
        ("", {"team": "green", "retention.ms": "60000"}),
        ("/partitions", {"partitions": 4, "properties": {"team": "green", "retention.ms": "60000"}}),
    ):
        name = uuid4().hex
        root = f"/admin/v2/persistent/public/default/{name}"
        assert http.put(f"{root}{path}", json=body).status_code == 204
        assert http.get(f"{root}/properties").json() == {"team": "green", "retention.ms": "60000"}
        assert http.put(f"{root}/properties", json={"team": "red", "é": "ü"}).status_code == 204
        for refused, status in (
            ({"n": 1}, 400),
            ({"kafka.topic.id": "x"}, 412),
            ({"retention.ms": "x"}, 412),
        ):
            assert http.put(f"{root}/properties", json={"lost": "y", **refused}).status_code == status
        assert http.delete(f"{root}/properties", params={"key": "retention.ms"}).status_code == 204
        assert http.get(f"{root}/properties").json() == {"team": "red", "é": "ü"}
        kafka = AdminClient({"bootstrap.servers": house.address})
        grown = kafka.create_partitions([NewPartitions(name, 5)])[name]
        grown.result(timeout=30)  # what else is changed of a topic leaves them alone
        resource = ConfigResource("TOPIC", name)
        configs = kafka.describe_configs([resource])[resource].result(timeout=30)
        assert configs["retention.ms"].value == "604800000"
        assert "team" not in configs
        assert http.delete(f"{root}/properties", params={"key": "é"}).status_code == 204
        assert http.get(f"{root}/properties").json() == {"team": "red"}
        assert http.delete(f"{root}/properties", params={"key": "é"}).status_code == 412
        assert http.get("/admin/v2/persistent/public/default").status_code == 200


def test_properties_of_topics_outlive_a_kill(tmp_path: Path) -> None:
    arguments = ("--http", "127.0.0.1:0", "--pulsar", "127.0.0.1:0")
    path = "/admin/v2/persistent/public/default/kept"
    with BrokerProcess(tmp_path / "data", *arguments) as process:
        url = f"http://{process.served['http'][0]}{path}"
        assert httpx.put(url, json={"team": "green"}, timeout=30).status_code == 204
        process.kill()
    with BrokerProcess(tmp_path / "data", *arguments) as process:
        url = f"http://{process.served['http'][0]}{path}/properties"
        assert httpx.get(url, timeout=30).json() == {"team": "green"}


def test_peeking_in_a_subscription_that_is_not_there_shows_the_first_messages_and_makes_none(
    http: httpx.Client, house: BrokerProcess
) -> None:
    name = uuid4().hex
    client = pulsar.Client(house.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        producer = client.create_producer(f"persistent://public/default/{name}")
        for number in range(3):
            producer.send(b"%d" % number, properties={"plain": "x", "as=is é": "ü"})
    finally:
        client.close()
    root = f"/admin/v2/persistent/public/default/{name}"
    seen = [http.get(f"{root}/subscription/nobody/position/{number}").content for number in (1, 2, 3)]
    assert seen == [b"0", b"1", b"2"]
    told = http.get(f"{root}/subscription/nobody/position/1").headers
    assert json.loads(told["X-Pulsar-PROPERTY"]) == {"plain": "x", "as=is é": "ü"}
    assert told["X-Pulsar-PROPERTY-plain"] == "x"  # for older clients
    assert http.get(f"{root}/subscription/nobody/position/4").status_code == 404
    assert http.get(f"{root}/subscriptions").json() == []


TOPIC_POLICIES: tuple[tuple[str, str, Any, Any], ...] = (
    ("PUT", "schemaCompatibilityStrategy", "BACKWARD", "FULL"),
    ("POST", "schemaValidationEnforced", True, False),
    ("POST", "autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False},
     {"allowAutoSubscriptionCreation": True}),
    ("POST", "deduplicationSnapshotInterval", 1000, None),
    ("POST", "replication", ["standalone"], ["standalone"]),
    ("POST", "replicatorDispatchRate", {"dispatchThrottlingRateInMsg": 500, "relativeToPublishRate": True}, None),
    ("POST", "subscriptionDispatchRate",
     {"dispatchThrottlingRateInMsg": 7, "dispatchThrottlingRateInByte": 9, "ratePeriodInSecond": 30,
      "relativeToPublishRate": True},
     {"dispatchThrottlingRateInMsg": 0, "dispatchThrottlingRateInByte": 0, "ratePeriodInSecond": 1,
      "relativeToPublishRate": False}),
)  # fmt: skip
"""By which method, path, and value a policy is set, and what is in force without it."""


@pytest.mark.parametrize(("method", "path", "value", "unset"), TOPIC_POLICIES)
def test_a_topic_has_its_own_of_a_namespaces_policies(
    http: httpx.Client, method: str, path: str, value: Any, unset: Any
) -> None:
    topic = f"/admin/v2/persistent/public/default/{uuid4().hex}"
    assert http.put(f"{topic}/partitions", json=2).status_code == 204
    policy, applied = f"{topic}/{path}", {"applied": "true"}

    def told(**query: str) -> Any:
        answer = http.get(policy, params=query)
        return answer.json() if answer.content else None

    assert (told(), told(**applied)) == (None, unset)
    assert http.request(method, policy, json=value).status_code == 204
    assert (told(), told(**applied)) == (value, value)
    assert http.delete(policy).status_code == 204
    assert (told(), told(**applied)) == (None, unset)


@pytest.mark.parametrize(
    ("path", "value", "status"),
    [
        ("schemaCompatibilityStrategy", "SOMETIMES", 412),
        ("schemaValidationEnforced", "perhaps", 400),
        ("autoSubscriptionCreation", {"allowAutoSubscriptionCreation": "x"}, 412),
        ("deduplicationSnapshotInterval", "often", 400),
        ("replication", ["elsewhere"], 403),
        ("replicatorDispatchRate", {"dispatchThrottlingRateInMsg": "x"}, 412),
    ],
)
def test_a_topics_policy_that_cannot_be_is_refused(
    http: httpx.Client, path: str, value: Any, status: int
) -> None:
    topic = f"/admin/v2/persistent/public/default/{uuid4().hex}"
    assert http.put(topic).status_code == 204
    refused = http.post(f"{topic}/{path}", json=value)
    assert (refused.status_code, bool(refused.json()["reason"])) == (status, True)
    assert http.get(f"{topic}/{path}").content in (b"", b"null")


def test_pulsars_words_for_numbers_that_cannot_be(http: httpx.Client) -> None:
    for method, path, why in (
        ("POST", "subscriptionExpirationTime", "Invalid value for subscription expiration time"),
        ("PUT", "offloadThresholdInSeconds", "Invalid value for offloadThresholdInSecond"),
    ):
        refused = http.request(method, f"{NAMESPACE}/{path}", json=-60)
        assert (refused.status_code, refused.json()["reason"]) == (412, why)
        for value in (60, 0):
            assert http.request(method, f"{NAMESPACE}/{path}", json=value).status_code == 204
            assert http.get(f"{NAMESPACE}/{path}").json() == value
        assert http.delete(f"{NAMESPACE}/{path}").status_code == 204
