"""What Pulsar's Go client says in its own way, and what it looks for in the answers."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx
import pulsar
import pytest

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
