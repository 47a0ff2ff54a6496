"""The admin REST as pulsar-admin uses it: what was made is there, what cannot be is refused with Pulsar's status."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pulsar
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from tests.process import BrokerProcess
from tests.waiting import until

_numbers = itertools.count()


@pytest.fixture
def topic() -> str:
    return f"rest-{next(_numbers)}"


@pytest.fixture
def client(house: BrokerProcess) -> Iterator[pulsar.Client]:
    client = pulsar.Client(house.pulsar_url, logger=None)
    yield client
    client.close()


def path_of(topic: str) -> str:
    return f"/admin/v2/persistent/public/default/{topic}"


def refused(response: httpx.Response, status: int) -> str:
    assert response.status_code == status, response.text
    return str(response.json()["reason"])


def produce(house: BrokerProcess, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": house.address, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value, key=b"k", headers={"h": b"1"})
        producer.flush()


# -- cluster, tenants, namespaces


def test_the_cluster_and_its_health(http: httpx.Client, house: BrokerProcess) -> None:
    assert http.get("/admin/v2/clusters").json() == ["standalone"]
    found = http.get("/admin/v2/clusters/standalone").json()
    assert found["brokerServiceUrl"] == house.pulsar_url
    assert http.get("/admin/v2/brokers/standalone").json() == house.served["http"]
    assert http.get("/admin/v2/brokers/health").text == "ok"
    assert http.get("/status.html").text == "OK"
    assert "does not exist" in refused(http.get("/admin/v2/clusters/other"), 404)


def test_tenants_come_and_go(http: httpx.Client) -> None:
    body = {"adminRoles": ["ann"], "allowedClusters": ["standalone"]}
    assert http.put("/admin/v2/tenants/acme", json=body).status_code == 204
    assert http.get("/admin/v2/tenants/acme").json() == body
    refused(http.put("/admin/v2/tenants/acme", json=body), 409)
    refused(http.put("/admin/v2/tenants/a%20b", json=body), 412)
    refused(http.put("/admin/v2/tenants/far", json={"allowedClusters": ["mars"]}), 412)
    assert http.post("/admin/v2/tenants/acme", json={"adminRoles": []}).status_code == 204
    assert http.get("/admin/v2/tenants/acme").json()["adminRoles"] == []
    assert http.put("/admin/v2/namespaces/acme/ns").status_code == 204
    assert http.get("/admin/v2/namespaces/acme").json() == ["acme/ns"]
    refused(http.delete("/admin/v2/tenants/acme"), 409)
    assert http.delete("/admin/v2/namespaces/acme/ns").status_code == 204
    assert http.delete("/admin/v2/tenants/acme").status_code == 204
    refused(http.get("/admin/v2/tenants/acme"), 404)


def test_a_policy_of_a_namespace_takes_effect_for_kafka_too(http: httpx.Client, topic: str) -> None:
    http.put("/admin/v2/tenants/keeps", json={})
    assert http.put("/admin/v2/namespaces/keeps/ns").status_code == 204
    root = "/admin/v2/namespaces/keeps/ns"
    kept = {"retentionTimeInMinutes": 10, "retentionSizeInMB": 3}
    assert http.post(f"{root}/retention", json=kept).status_code == 204
    assert http.get(f"{root}/retention").json() == kept
    assert http.get(root).json()["retention_policies"] == kept
    assert http.put(f"/admin/v2/persistent/keeps/ns/{topic}/partitions", json=3).status_code == 204
    assert "whole number" in refused(http.post(f"{root}/messageTTL", json="x"), 400)
    refused(http.put(f"/admin/v2/persistent/keeps/ns/{topic}-x/partitions", json="x"), 406)
    refused(http.put(f"/admin/v2/persistent/keeps/ns/{topic}-x/partitions", json="0"), 406)
    assert http.delete(f"{root}/retention").status_code == 204
    assert http.get(f"{root}/retention").status_code == 204  # nothing is set
    refused(http.delete(root), 409)
    assert http.delete(root, params={"force": "true"}).status_code == 204


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_one_request_does_not_make_millions_of_partitions(
    http: httpx.Client, topic: str, domain: str
) -> None:
    path = f"/admin/v2/{domain}/public/default/{topic}"
    for number in (10_001, 10**12, "9999999999999999999"):
        assert "less than or equal to 10000" in refused(http.put(f"{path}/partitions", json=number), 406)
    refused(http.put(f"{path}/partitions", json="99999999999999999999"), 406)  # no number of Pulsar's
    assert http.put(f"{path}/partitions", json=3).status_code == 204
    refused(http.post(f"{path}/partitions", json=10_004), 406)
    assert http.get(f"{path}/partitions").json() == {"partitions": 3}


def test_numbers_and_booleans_may_stand_in_strings(http: httpx.Client, topic: str) -> None:
    """As Pulsar reads them; its Rust client's tests make their topics so."""
    path, root = path_of(topic), "/admin/v2/namespaces/public/default"
    assert http.put(f"{path}/partitions", json="3").status_code == 204
    assert http.get(f"{path}/partitions").json() == {"partitions": 3}
    assert http.post(f"{path}/partitions", json=" 4 ").status_code == 204
    assert http.get(f"{path}/partitions").json() == {"partitions": 4}
    for policy, said, kept in (
        ("compactionThreshold", "1000", 1000),
        ("deduplicationEnabled", "true", True),
        ("maxMessageSize", "2000", 2000),
        ("retention", {"retentionTimeInMinutes": "10", "retentionSizeInMB": 3}, None),
    ):
        assert http.post(f"{path}/{policy}", json=said).status_code == 204, policy
        if kept is not None:
            assert http.get(f"{path}/{policy}").json() == kept
    assert http.get(f"{path}/retention").json() == {"retentionTimeInMinutes": 10, "retentionSizeInMB": 3}
    kept = {"retentionTimeInMinutes": "10", "retentionSizeInMB": "5"}
    assert http.post(f"{root}/retention", json=kept).status_code == 204
    wrong = refused(http.post(f"{root}/retention", json=kept | {"retentionSizeInMB": "x"}), 412)
    assert "retentionSizeInMB must be a whole number, not 'x'" in wrong
    assert http.delete(f"{root}/retention").status_code == 204
    assert http.post(f"{root}/maxConsumersPerTopic", json="77").status_code == 204
    assert http.get(f"{root}/maxConsumersPerTopic").json() == 77
    assert http.delete(f"{root}/maxConsumersPerTopic").status_code == 204


def test_grants_are_kept(http: httpx.Client, topic: str) -> None:
    http.put(path_of(topic))
    root = f"{path_of(topic)}/permissions"
    assert http.post(f"{root}/bob", json=["produce", "consume"]).status_code == 204
    assert http.get(root).json() == {"bob": ["consume", "produce"]}
    assert "'fly' is no action" in refused(http.post(f"{root}/bob", json=["fly"]), 412)
    assert http.delete(f"{root}/bob").status_code == 204
    refused(http.delete(f"{root}/bob"), 412)


# -- topics


def test_topics_of_both_worlds_are_listed_and_deleted(
    http: httpx.Client, house: BrokerProcess, topic: str
) -> None:
    produce(house, topic, b"1")
    assert f"persistent://public/default/{topic}" in http.get("/admin/v2/persistent/public/default").json()
    assert http.get(f"{path_of(topic)}/partitions").json() == {"partitions": 0}
    assert http.put(f"{path_of(topic)}-p/partitions", json=4).status_code == 204
    assert http.get(f"{path_of(topic)}-p/partitions").json() == {"partitions": 4}
    assert f"persistent://public/default/{topic}-p" in (
        http.get("/admin/v2/persistent/public/default/partitioned").json()
    )
    refused(http.put(f"{path_of(topic)}-p/partitions", json=4), 409)
    refused(http.put(f"{path_of(topic)}-q/partitions", json=0), 406)
    assert http.post(f"{path_of(topic)}-p/partitions", json=6).status_code == 204
    assert http.get(f"{path_of(topic)}-p/partitions").json() == {"partitions": 6}
    refused(http.post(f"{path_of(topic)}-p/partitions", json=2), 412)
    assert http.delete(f"{path_of(topic)}-p/partitions").status_code == 204
    refused(http.get(f"{path_of(topic)}-p/partitions"), 404)
    assert http.delete(path_of(topic)).status_code == 204


def test_a_topic_in_use_is_not_deleted_unless_forced(
    http: httpx.Client, client: pulsar.Client, topic: str
) -> None:
    consumer = client.subscribe(topic, "s")
    assert "active" in refused(http.delete(path_of(topic)), 412)
    consumer.close()
    assert http.delete(path_of(topic), params={"force": "true"}).status_code == 204


def test_look_up_tells_where(http: httpx.Client, house: BrokerProcess, topic: str) -> None:
    found = http.get(f"/lookup/v2/topic/persistent/public/default/{topic}").json()
    assert found["brokerUrl"] == found["nativeUrl"] == house.pulsar_url


def test_a_client_that_looks_up_by_http_produces(house: BrokerProcess, topic: str) -> None:
    client = pulsar.Client(f"http://{house.served['http'][0]}", logger=None)
    client.create_producer(topic).send(b"found")
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert reader.read_next(10_000).data() == b"found"
    client.close()


# -- subscriptions and messages


def test_a_subscription_is_looked_at_skipped_and_reset(
    http: httpx.Client, client: pulsar.Client, topic: str
) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(10):
        producer.send(b"%d" % number, properties={"n": str(number)}, partition_key="k")
    consumer.close()
    root = f"{path_of(topic)}/subscription/s"
    assert http.get(f"{path_of(topic)}/subscriptions").json() == ["s"]
    assert backlog(http, topic) == 10
    peeked = http.get(f"{root}/position/3")
    assert peeked.content == b"2"
    assert peeked.headers["X-Pulsar-PROPERTY-n"] == "2"
    assert http.post(f"{root}/skip/4").status_code == 204
    assert backlog(http, topic) == 6
    ledger, _, entry = http.get(f"{root}/position/1").headers["X-Pulsar-Message-ID"].partition(":")
    assert http.get(f"{path_of(topic)}/ledger/{ledger}/entry/{entry}").content == b"4"
    assert http.post(f"{root}/skip_all").status_code == 204
    assert backlog(http, topic) == 0
    place = {"ledgerId": int(ledger), "entryId": int(entry)}
    assert http.post(f"{root}/resetcursor", json=place).status_code == 204
    assert backlog(http, topic) == 6
    assert http.post(f"{root}/resetcursor/0").status_code == 204
    assert backlog(http, topic) == 10
    refused(http.get(f"{root}/position/11"), 404)
    consumer = client.subscribe(topic, "s")
    refused(http.delete(root), 412)
    assert consumer.receive(10_000).data() == b"0"
    consumer.close()
    assert http.delete(root).status_code == 204
    refused(http.delete(root), 404)


def backlog(http: httpx.Client, topic: str) -> Any:
    return http.get(f"{path_of(topic)}/stats").json()["subscriptions"]["s"]["msgBacklog"]


def test_a_new_subscription_begins_where_it_is_told(
    http: httpx.Client, client: pulsar.Client, house: BrokerProcess, topic: str
) -> None:
    produce(house, topic, b"a", b"b", b"c")
    earliest = {"ledgerId": -1, "entryId": -1}
    assert http.put(f"{path_of(topic)}/subscription/first", json=earliest).status_code == 204
    assert http.put(f"{path_of(topic)}/subscription/last").status_code == 204
    refused(http.put(f"{path_of(topic)}/subscription/last"), 409)
    found = http.get(f"{path_of(topic)}/stats").json()["subscriptions"]
    assert (found["first"]["msgBacklog"], found["last"]["msgBacklog"]) == (3, 0)
    assert client.subscribe(topic, "first").receive(10_000).data() == b"a"


def test_a_message_of_kafka_is_shown_as_pulsar_would(
    http: httpx.Client, house: BrokerProcess, topic: str
) -> None:
    produce(house, topic, b"value")
    shown = http.get(f"{path_of(topic)}/examinemessage", params={"initialPosition": "earliest"})
    assert shown.status_code == 200
    assert b"value" in shown.content
    last = http.get(f"{path_of(topic)}/lastMessageId").json()
    assert last["entryId"] == 0
    internal = http.get(f"{path_of(topic)}/internalStats").json()
    assert internal["properties"] == {"firstOffset": "0", "nextOffset": "1"}


def test_stats_of_partitions_are_added_up(http: httpx.Client, house: BrokerProcess, topic: str) -> None:
    http.put(f"{path_of(topic)}/partitions", json=2)
    assert http.put(f"{path_of(topic)}/subscription/s").status_code == 204
    producer = Producer({"bootstrap.servers": house.address, "linger.ms": 0})
    for partition in (0, 1, 1):
        producer.produce(topic, b"x", partition=partition)
        producer.flush()
    found = http.get(f"{path_of(topic)}/partitioned-stats").json()
    assert found["metadata"] == {"partitions": 2}
    assert found["subscriptions"]["s"]["msgBacklog"] == 3
    assert {each["subscriptions"]["s"]["msgBacklog"] for each in found["partitions"].values()} == {1, 2}
    assert "name one of them" in refused(http.get(f"{path_of(topic)}/stats"), 405)


def test_a_topic_made_with_one_partition_gets_more_and_keeps_its_clients(
    http: httpx.Client, client: pulsar.Client, house: BrokerProcess, topic: str
) -> None:
    path = path_of(topic)
    assert http.put(f"{path}/partitions", json=1).status_code == 204
    assert http.get(f"{path}/partitions").json() == {"partitions": 1}
    root = path.rpartition("/")[0]
    assert f"persistent://public/default/{topic}" in http.get(f"{root}/partitioned").json()
    assert f"persistent://public/default/{topic}-partition-0" in http.get(root).json()
    producer, consumer = client.create_producer(topic), client.subscribe(topic, "s")
    assert producer.send(b"1").partition() == 0
    (before,) = http.get(f"{path}-partition-0/stats").json()["publishers"]
    assert http.post(f"{path}/partitions", json=2).status_code == 204
    assert http.get(f"{path}/partitions").json() == {"partitions": 2}
    producer.send(b"2")
    produce(house, topic, b"of Kafka")
    (after,) = http.get(f"{path}-partition-0/stats").json()["publishers"]
    assert after["connectedSince"] == before["connectedSince"], "nobody was sent away"
    assert {consumer.receive(10_000).data() for _ in range(2)} == {b"1", b"2"}


def test_trim_has_retention_look_at_once(http: httpx.Client, house: BrokerProcess, topic: str) -> None:
    produce(house, topic, b"1", b"2")
    assert http.post(f"{path_of(topic)}/trim").status_code == 204
    assert ends(house, topic) == (0, 2)
    config = ConfigResource(ConfigResource.Type.TOPIC, topic)
    for name in ("retention.ms", "segment.ms"):
        config.add_incremental_config(ConfigEntry(name, "1", incremental_operation=AlterConfigOpType.SET))
    admin = AdminClient({"bootstrap.servers": house.address})
    admin.incremental_alter_configs([config])[config].result(10)

    def is_gone() -> bool:
        assert http.post(f"{path_of(topic)}/trim").status_code == 204
        return ends(house, topic) == (2, 2)

    until(
        is_gone
    )  # the first ends a ledger that is old, one behind it lets go of that: it is sealed in between


def ends(house: BrokerProcess, topic: str) -> tuple[int, int]:
    """Return the first offset and the one behind the last."""
    consumer = Consumer({"bootstrap.servers": house.address, "group.id": topic})
    try:
        first, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
    finally:
        consumer.close()
    return first, end


def test_truncate_lets_go_of_everything(http: httpx.Client, house: BrokerProcess, topic: str) -> None:
    produce(house, topic, b"1", b"2")
    assert http.delete(f"{path_of(topic)}/truncate").status_code == 204
    assert ends(house, topic) == (2, 2)


# -- schemas, metrics, and what is wrong


def test_schemas_have_versions(http: httpx.Client, topic: str) -> None:
    root = f"/admin/v2/schemas/public/default/{topic}"
    http.put(path_of(topic))
    record = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
    wider = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int","default":0}]}'
    other = '{"type":"record","name":"R","fields":[{"name":"c","type":"string"}]}'
    assert http.post(f"{root}/schema", json={"type": "AVRO", "schema": record}).json() == {
        "version": {"version": 0}
    }
    assert http.post(f"{root}/schema", json={"type": "AVRO", "schema": wider}).json() == {
        "version": {"version": 1}
    }
    refused(http.post(f"{root}/schema", json={"type": "AVRO", "schema": other}), 409)
    assert not http.post(f"{root}/compatibility", json={"type": "AVRO", "schema": other}).json()[
        "compatibility"
    ]
    assert http.get(f"{root}/schema").json()["data"] == wider
    assert http.get(f"{root}/schema/0").json()["data"] == record
    assert len(http.get(f"{root}/schemas").json()["getSchemaResponses"]) == 2
    assert http.delete(f"{root}/schema").json() == {"version": 2}, "as pulsar-admin reads it"
    assert http.delete(f"{root}/schema").json() == {"version": 2}, "it is gone already"
    assert http.delete("/admin/v2/schemas/public/default/never-there/schema").json() == {"version": -1}
    for gone in (
        "schema",
        "schema/0",
        "schema/1",
        "schema/2",
    ):  # as from Pulsar: none from before the deletion
        refused(http.get(f"{root}/{gone}"), 404)
    assert http.get(f"{root}/schemas").json() == {"getSchemaResponses": []}
    assert http.post(f"{root}/schema", json={"type": "AVRO", "schema": other}).json() == {
        "version": {"version": 3}
    }
    assert [each["version"] for each in http.get(f"{root}/schemas").json()["getSchemaResponses"]] == [3]
    assert "one of" in refused(http.post(f"{root}/schema", json={"type": "NO", "schema": ""}), 422)


def test_schemas_of_keys_and_values_are_an_object_of_both(http: httpx.Client, topic: str) -> None:
    root = f"/admin/v2/schemas/public/default/{topic}"
    http.put(path_of(topic))
    record = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    text = json.dumps({"key": record, "value": ""}, separators=(",", ":"))
    kinds = {"key.schema.type": "AVRO", "value.schema.type": "STRING"}
    content = {"type": "KEY_VALUE", "schema": text, "properties": kinds}
    assert http.post(f"{root}/schema", json=content).json() == {"version": {"version": 0}}
    found = http.get(f"{root}/schema").json()
    assert (found["type"], found["data"]) == ("KEY_VALUE", text)
    assert found["properties"] == kinds
    assert http.post(f"{root}/version", json=content).json() == {"version": 0}
    for wrong in ("", "[]", "[" * 100_000, '{"key": 1}', '{"key": {}, "value": ""}'):
        assert http.post(f"{root}/schema", json={**content, "schema": wrong}).status_code in (409, 422), wrong


def test_what_a_namespace_says_of_schemas_is_in_force(http: httpx.Client, topic: str) -> None:
    assert http.put("/admin/v2/namespaces/public/schemas").status_code == 204
    strategy = "/admin/v2/namespaces/public/schemas/schemaCompatibilityStrategy"
    root = f"/admin/v2/schemas/public/schemas/{topic}"
    one = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
    other = one.replace('"a"', '"b"')
    assert http.get(strategy).json() == "UNDEFINED"
    assert "ALWAYS_COMPATIBLE" in refused(http.put(strategy, json="NOW_AND_THEN"), 412)
    assert http.put(strategy, json="ALWAYS_COMPATIBLE").status_code == 204
    for text in (one, other):
        assert http.post(f"{root}/schema", json={"type": "AVRO", "schema": text}).status_code == 200
    assert http.put(strategy, json="FULL").status_code == 204
    third = one.replace('"a"', '"c"')
    refused(http.post(f"{root}/schema", json={"type": "AVRO", "schema": third}), 409)


def test_messages_that_are_too_old_are_passed_over(
    http: httpx.Client, client: pulsar.Client, house: BrokerProcess, topic: str
) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    producer.send(b"old")
    consumer.close()
    assert backlog(http, topic) == 1
    assert http.post(f"{path_of(topic)}/all_subscription/expireMessages/3600").status_code == 204
    assert backlog(http, topic) == 1
    time.sleep(1.1)
    assert http.post(f"{path_of(topic)}/subscription/s/expireMessages/1").status_code == 204
    assert backlog(http, topic) == 0


def test_one_property_of_a_namespace(http: httpx.Client) -> None:
    namespace = "/admin/v2/namespaces/public/coloured"
    assert http.put(namespace, json={}).status_code == 204
    assert http.put(f"{namespace}/property/colour/red").status_code == 204
    assert http.put(f"{namespace}/property/size/big").status_code == 204
    assert http.get(f"{namespace}/property/colour").text == "red"
    assert http.get(f"{namespace}/properties").json() == {"colour": "red", "size": "big"}
    assert http.delete(f"{namespace}/property/colour").text == "red"
    assert "has no property" in refused(http.get(f"{namespace}/property/colour"), 404)


def test_messages_count_from_when_the_topic_was_opened(http: httpx.Client, client: pulsar.Client) -> None:
    topic = "counted-in-partitions"
    assert http.put(f"{path_of(topic)}/partitions", json=3).status_code == 204
    producer = client.create_producer(topic, batching_enabled=False)
    for _ in range(6):
        producer.send(b"counted")
    stats = http.get(f"{path_of(topic)}/partitioned-stats").json()  # nobody has asked before
    assert (stats["msgInCounter"], stats["bytesInCounter"] > 0) == (6, True)


def test_metrics_are_pulsars(http: httpx.Client, client: pulsar.Client, topic: str) -> None:
    consumer, producer = client.subscribe(topic, "s"), client.create_producer(topic)
    producer.send(b"x")
    lines = http.get("/metrics").text.splitlines()
    of_topic = [line for line in lines if f'topic="persistent://public/default/{topic}"' in line]
    found = {line.partition("{")[0]: line.rpartition(" ")[2] for line in of_topic}
    assert found["pulsar_producers_count"] == found["pulsar_subscription_back_log"] == "1"
    assert any('subscription="s"' in line for line in of_topic)
    consumer.close()


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/admin/v2/nothing", b"", 404),
        ("PATCH", "/admin/v2/tenants", b"", 405),
        ("GET", "/admin/v2/namespaces/none", b"", 404),
        ("GET", "/admin/v2/persistent/public/none", b"", 404),
        ("PUT", "/admin/v2/tenants/t", b"{", 400),
        ("PUT", "/admin/v2/tenants/t", b"[]", 400),
        ("PUT", "/admin/v2/tenants/t", b"\xff", 400),
        ("PUT", "/admin/v2/tenants/t", b"[" * 200_000, 400),
        ("PUT", "/admin/v2/tenants/t", b'{"adminRoles": NaN}', 400),
        ("PUT", "/admin/v2/persistent/public/default/x/partitions", b'"many"', 406),
        ("GET", "/admin/v2/persistent/public/default/none/stats", b"", 404),
        ("POST", "/admin/v2/persistent/public/default/none/subscription/s/skip/x", b"", 404),
        ("PUT", "/admin/v2/persistent/public/default/" + "x" * 300, b"", 412),
        ("PUT", "/admin/v2/tenants/t", b"x" * (9 << 20), 413),
    ],
)
def test_what_is_wrong_is_refused_with_a_reason(
    http: httpx.Client, method: str, path: str, body: bytes, status: int
) -> None:
    assert refused(http.request(method, path, content=body), status)


def test_the_page_describes_every_path(http: httpx.Client) -> None:
    from magnetar.admin import rest
    from magnetar.pulsar.rest.routes import ROUTES

    page = http.get("/openapi.json").json()
    assert page["openapi"].startswith("3.1")
    described = sum(len(methods) for methods in page["paths"].values())
    assert described == len(ROUTES) + len(rest.ROUTES)
    assert all(method["summary"] for methods in page["paths"].values() for method in methods.values())


def test_settings_are_changed_by_pulsars_names(http: httpx.Client) -> None:
    root = "/admin/v2/brokers/configuration"
    names = http.get(root).json()
    assert {
        "allowAutoTopicCreation",
        "auto.create.topics.enable",
        "loadBalancerSheddingIntervalMinutes",
    } <= set(names)
    assert http.get(f"{root}/runtime").json()["allowAutoTopicCreation"] == "True"
    assert http.post(f"{root}/allowAutoTopicCreation/false").status_code == 204
    assert http.get(f"{root}/values").json() == {
        "auto.create.topics.enable": "false",
        "allowAutoTopicCreation": "false",
    }
    assert http.get(f"{root}/runtime").json()["allowAutoTopicCreation"] == "False"
    assert http.delete(f"{root}/allowAutoTopicCreation").status_code == 204
    assert http.post(f"{root}/loadBalancerSheddingIntervalMinutes/2").status_code == 204
    assert http.get(f"{root}/values").json() == {"load.shedding.interval.s": "120"}  # of another unit
    assert http.delete(f"{root}/loadBalancerSheddingIntervalMinutes").status_code == 204
    assert http.get(f"{root}/values").json() == {}
    assert http.post(f"{root}/noSuchSetting/1").status_code == 412


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_limits_of_all_topics_are_changed_while_the_broker_runs(
    http: httpx.Client, house: BrokerProcess, topic: str, domain: str
) -> None:
    root = "/admin/v2/brokers/configuration"
    client = pulsar.Client(
        f"pulsar://{house.served['pulsar'][0]}", logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    name = f"{domain}://public/default/{topic}"
    client.create_producer(name, "first")
    assert http.post(f"{root}/maxProducersPerTopic/1").status_code == 204
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(name, "second")
    with pytest.raises(pulsar.ProducerBusy):  # opened afterwards
        [client.create_producer(f"{name}-later", f"number {each}") for each in range(2)]
    assert http.delete(f"{root}/maxProducersPerTopic").status_code == 204
    client.create_producer(name, "second")
    client.close()


def test_where_metadata_is_kept_is_told(http: httpx.Client) -> None:
    told = http.get("/admin/v2/brokers/internal-configuration").json()
    assert told == {
        "metadataStoreUrl": "sqlite:",
        "configurationMetadataStoreUrl": "sqlite:",
        "ledgersRootPath": "/ledgers",
    }


@pytest.mark.parametrize("of_namespace", [False, True])
def test_what_is_retained_exceeds_the_backlog_that_may_be(
    http: httpx.Client, topic: str, of_namespace: bool
) -> None:
    """As Pulsar has it, for both orders and both bounds; 0 and -1 are no bounds."""
    namespace = f"public/quota-{topic}"
    assert http.put(f"/admin/v2/namespaces/{namespace}").status_code == 204
    own = f"/admin/v2/persistent/{namespace}/t"
    assert http.put(own).status_code == 204
    root = f"/admin/v2/namespaces/{namespace}" if of_namespace else own

    def retained(minutes: int, size_mb: int) -> httpx.Response:
        body = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": size_mb}
        return http.post(f"{own}/retention", json=body)

    size = {"limitSize": 10 << 20, "policy": "producer_request_hold"}
    assert http.post(f"{root}/backlogQuota", json=size).status_code == 204
    assert "Retention Quota must exceed" in refused(retained(10, 10), 412)
    for minutes, size_mb in ((10, 11), (0, 0), (-1, -1), (10, -1)):
        assert retained(minutes, size_mb).status_code == 204
    age = {"limitTime": 600, "policy": "producer_request_hold"}
    by_age = {"backlogQuotaType": "message_age"}
    assert http.post(f"{root}/backlogQuota", json=age, params=by_age).status_code == (
        204 if of_namespace else 412
    )
    assert retained(11, -1).status_code == 204
    assert http.post(f"{root}/backlogQuota", json=age, params=by_age).status_code == 204
    refused(retained(10, -1), 412)
    assert retained(11, 20).status_code == 204
    if not of_namespace:
        larger = {"limitSize": 20 << 20, "policy": "producer_request_hold"}
        assert "Backlog Quota exceeds" in refused(http.post(f"{own}/backlogQuota", json=larger), 412)
