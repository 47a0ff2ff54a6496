"""What the admin REST refuses with 405 (not served, not for this) or 412 (not so): it says why, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pulsar
import pytest

from tests.process import BrokerProcess

NAMESPACE = "/admin/v2/namespaces/refuses/ns"
KEPT, PARTS = "/admin/v2/persistent/refuses/ns/kept", "/admin/v2/persistent/refuses/ns/parts"
LOOSE = "/admin/v2/non-persistent/refuses/ns/loose"
NOT_SERVED = "This policy is not served: nothing would act on it"
NO_NUMBER = "must be a whole number, -1 for no bound"
OF_TOPICS = "Invalid configuration for autoTopicCreationOverride. the detail is [defaultNumPartitions]"


@pytest.fixture(scope="module")
def furnished(house: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{house.served['http'][0]}", timeout=30) as http:
        http.put("/admin/v2/tenants/refuses", json={}).raise_for_status()
        http.put(NAMESPACE).raise_for_status()
        http.put(KEPT).raise_for_status()
        http.put(f"{PARTS}/partitions", json=2).raise_for_status()
        http.put(f"{LOOSE}/partitions", json=2).raise_for_status()
        kept = {"retentionTimeInMinutes": 10, "retentionSizeInMB": 1}
        http.post(f"{NAMESPACE}/retention", json=kept).raise_for_status()
        http.put(f"{KEPT}/subscription/s").raise_for_status()
        yield http


@pytest.mark.parametrize(
    ("policy", "asked", "harmless"),
    [
        ("entryFilters", {"entryFilterNames": "mine"}, {}),
    ],
)
def test_a_policy_that_nothing_would_act_on_is_refused(
    furnished: httpx.Client, policy: str, asked: Any, harmless: Any
) -> None:
    path = f"{NAMESPACE}/{policy}"
    assert furnished.post(path, json=harmless).status_code == 204
    before = furnished.get(path).text
    for method in ("PUT", "POST"):
        refused = furnished.request(method, path, json=asked)
        assert (refused.status_code, refused.json()["reason"]) == (405, NOT_SERVED)
    assert furnished.get(path).text == before
    assert furnished.delete(path).status_code == 204


@pytest.mark.parametrize("name", ["%00/ns", "refuses/%00", "refuses/..", "%2e%2e/ns", "refuses/%e2%80%ae"])
@pytest.mark.parametrize(
    ("method", "what"), [("PUT", ""), ("GET", ""), ("PUT", "/0x0_0x1/split"), ("GET", "/topics")]
)
def test_what_is_no_namespaces_name_is_refused(
    furnished: httpx.Client, name: str, method: str, what: str
) -> None:
    assert 400 <= furnished.request(method, f"/admin/v2/namespaces/{name}{what}").status_code < 500


@pytest.mark.parametrize(
    ("method", "path", "body", "why"),
    [
        ("PUT", "/admin/v2/clusters/other", {}, "geo-replication is not served"),
        ("POST", f"{PARTS}/terminate", None, "Termination of a partitioned topic is not allowed"),
        ("POST", f"{KEPT}/terminate/partitions", None, "Termination of a non-partitioned topic is not allowed"),
        ("GET", f"{PARTS}/stats", None, "parts has 2 partitions: name one of them"),
        ("GET", f"{LOOSE}/stats", None, "loose has 2 partitions: name one of them"),
        ("POST", f"{LOOSE}/terminate", None, "on a non-persistent topic is not allowed"),
        ("POST", f"{LOOSE}/subscription/s/skip_all", None, "on a non-persistent topic is not allowed"),
        ("PATCH", KEPT, None, "PATCH"),
    ],
)  # fmt: skip
def test_what_is_not_done_is_refused_with_405(
    furnished: httpx.Client, method: str, path: str, body: Any, why: str
) -> None:
    refused = furnished.request(method, path, json=body)
    assert refused.status_code == 405, refused.text
    assert why in refused.json()["reason"]


@pytest.mark.parametrize(
    ("method", "path", "body", "why"),
    [
        ("PUT", "/admin/v2/tenants/blank", {"adminRoles": ["ann", " "]}, "whitespace in the beginning or end."),
        ("PUT", "/admin/v2/tenants/blank", {"adminRoles": [" ann"]}, "whitespace in the beginning or end."),
        ("PUT", "/admin/v2/tenants/blank", {"adminRoles": "ann"}, "empty or invalid entries"),
        ("PUT", "/admin/v2/namespaces/refuses/a%20b", None, "name is not valid"),
        ("POST", f"{NAMESPACE}/schemaAutoUpdateCompatibilityStrategy", "Sometimes", "Sometimes is none of"),
        ("POST", f"{NAMESPACE}/subscriptionAuthMode", "Suffix", "Suffix is none of None, Prefix"),
        ("POST", f"{NAMESPACE}/autoSubscriptionCreation", {"allowAutoSubscriptionCreation": "x"},
         "Invalid configuration"),
        ("POST", f"{NAMESPACE}/autoTopicCreation", {"allowAutoTopicCreation": "x"}, "Invalid configuration"),
        ("POST", f"{NAMESPACE}/autoTopicCreation", {"allowAutoTopicCreation": True, "topicType": "partitioned"},
         f"{OF_TOPICS} cannot be null when the type is partitioned."),
        ("POST", f"{NAMESPACE}/autoTopicCreation",
         {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 0},
         f"{OF_TOPICS} cannot be less than 1 for partition type."),
        ("POST", f"{NAMESPACE}/autoTopicCreation",
         {"allowAutoTopicCreation": True, "topicType": "non-partitioned", "defaultNumPartitions": 1},
         f"{OF_TOPICS} is not allowed to be set when the type is non-partition."),
        ("POST", f"{NAMESPACE}/backlogQuota", {"limitSize": 1 << 20, "policy": "producer_exception"},
         "Backlog Quota exceeds configured retention quota"),
        ("PUT", f"{KEPT}-partition-1", None, "belong to the partitions of a topic"),
        ("PUT", f"{LOOSE}2-partition-0/partitions", 2, "belong to the partitions of a topic"),
        ("DELETE", f"{PARTS}-partition-0", None, "cannot be deleted alone"),
        ("DELETE", f"{LOOSE}-partition-0", None, "cannot be deleted alone"),
        ("DELETE", f"{LOOSE}-partition-0/truncate", None, "unsupport truncate"),
        ("DELETE", f"{KEPT}/permissions/nobody", None, "Permissions are not set at the topic level"),
        ("DELETE", f"{KEPT}/properties?key=none", None, "the topic has no property 'none'"),
        ("POST", f"{KEPT}/retention", {"retentionTimeInMinutes": -2, "retentionSizeInMB": 1}, NO_NUMBER),
        ("POST", f"{KEPT}/retention", {"retentionTimeInMinutes": 1, "retentionSizeInMB": True}, NO_NUMBER),
        ("POST", f"{KEPT}/retention", {"retentionTimeInMinutes": 1}, f"retentionSizeInMB {NO_NUMBER}, not None"),
        ("POST", f"{KEPT}/compactionThreshold", -1, "a whole number from 0 on"),
        ("POST", f"{KEPT}/compactionThreshold", True, "a whole number from 0 on"),
        ("POST", f"{KEPT}/subscription/s/skip/0", None, "must be greater than 0"),
        ("POST", f"{KEPT}/subscription/s/resetcursor", {}, "must hold ledgerId and entryId"),
        ("POST", f"{KEPT}/subscription/s/expireMessages", {}, "must hold ledgerId and entryId"),
    ],
)  # fmt: skip
def test_what_cannot_be_so_is_refused_with_412(
    furnished: httpx.Client, method: str, path: str, body: Any, why: str
) -> None:
    before = furnished.get(NAMESPACE).json(), furnished.get(f"{KEPT}/properties").json()
    refused = furnished.request(method, path, json=body)
    assert refused.status_code == 412, refused.text
    assert why in refused.json()["reason"]
    assert (furnished.get(NAMESPACE).json(), furnished.get(f"{KEPT}/properties").json()) == before


def test_a_quota_below_what_is_retained_is_taken(furnished: httpx.Client) -> None:
    quota = {"limitSize": (1 << 20) - 1, "policy": "producer_exception"}
    assert furnished.post(f"{NAMESPACE}/backlogQuota", json=quota).status_code == 204
    of_time = quota | {"limitSize": 1 << 30, "limitTime": 5}
    asked = {"backlogQuotaType": "message_age"}
    assert furnished.post(f"{NAMESPACE}/backlogQuota", params=asked, json=of_time).status_code == 204


def test_what_is_in_use_is_not_deleted_and_with_force_it_is(
    furnished: httpx.Client, house: BrokerProcess
) -> None:
    client = pulsar.Client(house.pulsar_url, logger=None)
    consumer = client.subscribe("persistent://refuses/ns/used", "busy")
    path = "/admin/v2/persistent/refuses/ns/used"
    refused = furnished.delete(f"{path}/subscription/busy")
    assert (refused.status_code, refused.json()["reason"]) == (
        412,
        "Subscription has active connected consumers",
    )
    refused = furnished.delete(path)
    assert (refused.status_code, "active" in refused.json()["reason"]) == (412, True)
    assert furnished.get(f"{path}/subscriptions").json() == ["busy"]
    assert furnished.delete(f"{path}/subscription/busy?force=true").status_code == 204
    assert furnished.get(f"{path}/subscriptions").json() == []
    consumer.close()
    client.close()
