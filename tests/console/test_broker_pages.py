"""Schemas, transactions, clients, permissions and the cluster, of a broker that stock clients use."""

from __future__ import annotations

import json

import httpx
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from tests.console.conftest import browser
from tests.console.test_login import bearer
from tests.console.test_pages import BIDI, SCRIPT, facts, make, page
from tests.process import BrokerProcess
from tests.waiting import until

AVRO = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long", "doc": SCRIPT}]}


def test_subjects_with_their_versions_and_what_changed(house: BrokerProcess, http: httpx.Client) -> None:
    registry = SchemaRegistryClient({"url": f"http://{house.served['schema-registry'][0]}"})
    first = registry.register_schema("subjects-value", Schema(json.dumps(AVRO), "AVRO"))
    more = AVRO | {"fields": [*AVRO["fields"], {"name": "note", "type": "string", "default": ""}]}  # type: ignore[misc]
    second = registry.register_schema("subjects-value", Schema(json.dumps(more), "AVRO"))
    registry.register_schema("others-value", Schema(json.dumps(AVRO), "AVRO"))
    (row,) = facts(http, "/console/schemas", q="subjects")["subjects"]
    assert (row["subject"], row["latest"], row["id"], row["kind"]) == ("subjects-value", 2, second, "AVRO")
    told = facts(http, "/console/subject", subject="subjects-value")
    assert (told["version"], told["id"], told["before"]) == (2, second, 1)
    assert any(each.startswith("+") and "note" in each for each in told["changes"])
    older = facts(http, "/console/subject", subject="subjects-value", version="1")
    assert (older["id"], older["before"]) == (first, None)
    assert older["used_by"] == [{"subject": "others-value", "version": 1}]
    assert "&lt;script&gt;" in page(http, "/console/subject", subject="subjects-value")
    page(http, "/console/schemas")
    for query, status in (
        ({}, 400),
        ({"subject": "none"}, 404),
        ({"subject": "subjects-value", "version": "9"}, 404),
    ):
        assert http.get("/console/subject.json", params=query).status_code == status


def test_open_transactions_come_first(house: BrokerProcess, http: httpx.Client) -> None:
    make(house, "moved")
    ended, opened = (
        Producer({"bootstrap.servers": house.address, "transactional.id": name})
        for name in (f"a {BIDI}", f"z {SCRIPT}")
    )
    for each in (ended, opened):
        each.init_transactions(60)
        each.begin_transaction()
        each.produce("moved", b"x")
        each.flush(60)
    ended.commit_transaction(60)
    # The one that was committed is open until its markers are written.
    until(lambda: facts(http, "/console/transactions")["transactions"][0]["id"] == f"z {SCRIPT}")
    told = facts(http, "/console/transactions")["transactions"]
    assert (told[0]["id"], told[0]["state"], told[0]["partitions"]) == (f"z {SCRIPT}", "Ongoing", ["moved-0"])
    assert told[0]["open_s"] is not None
    assert f"a {BIDI}" in [each["id"] for each in told]
    page(http, "/console/transactions")
    assert facts(http, "/console/transactions", q="nothing has it")["found"] == 0
    opened.abort_transaction(60)


def software(http: httpx.Client) -> list[str]:
    return [each["client_software_name"] for each in facts(http, "/console/clients")["software"]]


def test_clients_by_software_and_what_they_were_refused(house: BrokerProcess, http: httpx.Client) -> None:
    producer = Producer({"bootstrap.servers": house.address})
    # A connection has been counted once its first request was read, and its software once it has said so.
    until(
        lambda: (
            producer.list_topics(timeout=60) is not None and any("kafka" in name for name in software(http))
        )
    )
    told = facts(http, "/console/clients")
    assert any(each["request"] == "Metadata" for each in told["requests"])
    page(http, "/console/clients")


def test_the_cluster_and_permissions_of_a_broker_without_grants(http: httpx.Client) -> None:
    told = facts(http, "/console/cluster")
    assert [each["node"] for each in told["brokers"]] == [told["node"]]
    assert "public/default" in [each["namespace"] for each in told["namespaces"]]
    page(http, "/console/cluster")
    assert facts(http, "/console/permissions")["in_force"] is False
    assert "asks for no grants" in page(http, "/console/permissions")


def test_permissions_are_told_to_super_users_with_where_they_come_from(secured: BrokerProcess) -> None:
    with browser(secured) as http:
        root = bearer("root")
        path = "/admin/v2/namespaces/public/default/permissions/lena"
        assert http.post(path, json=["produce"], headers=root).status_code == 204
        told = http.get("/console/permissions.json", headers=root).json()
        assert told["in_force"] is True
        rows = {(each["role"], each["resource"]): each for each in told["grants"]}
        assert rows["root", "everything"]["why"] == "super user"
        assert rows["lena", "public/default"] | {"host": "*"} == {
            "role": "lena",
            "resource": "public/default",
            "actions": ["produce"],
            "why": "namespace grant",
            "allows": True,
            "host": "*",
        }
        assert http.get("/console/permissions.json?q=lena", headers=root).json()["found"] == 1
        for name in ("permissions", "cluster", "transactions", "clients"):
            assert http.get(f"/console/{name}.json", headers=bearer("alice")).status_code == 403
