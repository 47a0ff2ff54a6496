"""Tenants on one broker: the same short names, and nothing in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.admin.client import ask
from magnetar.kafka.handlers import ROUTES
from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from magnetar.wire.kafka.messages.delete_groups_request import DeleteGroupsRequest
from magnetar.wire.kafka.messages.describe_groups_request import DescribeGroupsRequest
from magnetar.wire.kafka.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from magnetar.wire.kafka.messages.describe_topic_partitions_request import (
    Cursor,
    DescribeTopicPartitionsRequest,
)
from magnetar.wire.kafka.messages.list_groups_request import ListGroupsRequest
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from tests.hostile.client import Wire, fetch, produce
from tests.process import BrokerProcess
from tests.security.conftest import say
from tests.security.signing import SECRET_URL, token
from tests.wire.values import OUTLINE

TENANTS = ("red", "blue")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with two tenants, each with a role that may do everything there."""
    texts = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "tokenSecretKey": SECRET_URL,
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "superUserRoles": "root",
        "kafkaEnableMultiTenantMetadata": "true",
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 4,
    }
    settings = [part for name, text in texts.items() for part in ("--set", f"{name}={text}")]
    with BrokerProcess(tmp_path_factory.mktemp("tenants") / "data", *settings, kafka=None) as process:
        with Wire(process.host_and_port) as root:
            assert say(root, f"token:{token('root')}", "public").error_code == 0  # type: ignore[attr-defined]
            for tenant in TENANTS:
                topic = CreatableTopic(name=f"{tenant}/default/first", num_partitions=1, replication_factor=1)
                root.ask(CreateTopicsRequest(topics=[topic]))
                ask(process.data, "set-admins", tenant=tenant, roles=[f"{tenant}-admin"])
        yield process
        assert not [line for line in process.log_lines() if "Traceback" in line or "request failed" in line]


def configuration(house: BrokerProcess, tenant: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": house.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": tenant,
        "sasl.password": f"token:{token(tenant.partition('/')[0] + '-admin')}",
        **more,
    }


def wire(house: BrokerProcess, user: str, role: str | None = None) -> Wire:
    opened = Wire(house.host_and_port)
    role = role or f"{user.partition('/')[0]}-admin"
    assert say(opened, f"token:{token(role)}", user).error_code == 0  # type: ignore[attr-defined]
    return opened


def test_routes_name_topics_where_kafkas_definitions_do() -> None:
    """And where a configuration's resource may be a topic, which the definitions do not say."""
    defined = {message["name"]: message["topics"] for message in OUTLINE.values()}
    for route in ROUTES:
        for kind, paths in (("Request", route.names.asked), ("Response", route.names.answered)):
            here = [".".join(path) for path in paths if path[-1] != "resource_name"]
            assert sorted(here) == sorted(defined[route.name + kind]), (route, kind)


def test_the_same_names_mean_other_topics_and_groups(house: BrokerProcess) -> None:
    for tenant in TENANTS:
        producer = Producer(configuration(house, tenant))
        for number in range(20):
            producer.produce("orders", f"{tenant}-{number}")
        assert producer.flush(20) == 0
    for tenant in TENANTS:
        consumer = Consumer(
            configuration(house, tenant, **{"group.id": "g", "auto.offset.reset": "earliest"})
        )
        consumer.subscribe(["orders"])
        found: list[str] = []
        while len(found) < 20:
            for message in consumer.consume(20, 0.5):
                assert not message.error(), message.error()
                assert message.topic() == "orders"
                found.append(message.value().decode())
        assert found == [f"{tenant}-{number}" for number in range(20)]
        if tenant == "red":
            consumer.commit(offsets=[TopicPartition("orders", 0, 7)], asynchronous=False)
        consumer.close()
    committed = {}
    for tenant in TENANTS:
        reader = Consumer(configuration(house, tenant, **{"group.id": "other" if tenant == "blue" else "g"}))
        committed[tenant] = reader.committed([TopicPartition("orders", 0)], 10)[0].offset
        reader.close()
    assert committed["red"] >= 7
    assert committed["blue"] == -1001


def test_each_sees_who_produces_to_its_own_topic(house: BrokerProcess) -> None:
    for number, tenant in enumerate(TENANTS, 1):
        for _ in range(number):
            producer = Producer(configuration(house, tenant, **{"enable.idempotence": True}))
            producer.produce("written", "x")
            assert producer.flush(20) == 0
    for number, tenant in enumerate(TENANTS, 1):
        asked = [TopicRequest(name="written", partition_indexes=[0])]
        with wire(house, tenant) as client:
            (topic,) = client.ask(DescribeProducersRequest(topics=asked)).topics
        assert (topic.name, topic.partitions[0].error_code) == ("written", 0)
        assert len(topic.partitions[0].active_producers) == number


def test_tools_see_their_own_tenant_alone(house: BrokerProcess) -> None:
    for tenant in TENANTS:
        admin = AdminClient(configuration(house, tenant))
        admin.create_topics([NewTopic(f"only-{tenant}", 2)])[f"only-{tenant}"].result(10)
        listed = set(admin.list_topics(timeout=10).topics)
        assert {f"only-{tenant}", "first"} <= listed
        assert not any(
            "/" in name or name == f"only-{other}" for name in listed for other in TENANTS if other != tenant
        )
        with pytest.raises(KafkaException) as refusal:
            admin.create_topics([NewTopic("public/default/not-mine", 1)])["public/default/not-mine"].result(
                10
            )
        assert refusal.value.args[0].code() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        admin.delete_topics([f"only-{tenant}"])[f"only-{tenant}"].result(10)
        assert f"only-{tenant}" not in admin.list_topics(timeout=10).topics


def test_even_a_super_user_is_at_home_in_one_tenant(house: BrokerProcess) -> None:
    with wire(house, "red", "root") as root:
        shown = root.ask(MetadataRequest(topics=None)).topics
        shown += root.ask(DescribeTopicPartitionsRequest(topics=[])).topics
        assert "first" in [topic.name for topic in shown]
        assert not [topic.name for topic in shown if topic.name.startswith(("blue/", "public/"))]


def test_a_topic_is_called_as_the_client_calls_it(house: BrokerProcess) -> None:
    with wire(house, "red") as red:
        red.ask(MetadataRequest(topics=[MetadataRequestTopic(name="named")]))
        for name in ("named", "red/default/named", "persistent://red/default/named"):
            row = red.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)])).topics[0]
            assert (row.error_code, row.name) == (0, name)
            batch = encode_batch([PlainRecord(None, name.encode(), [], 0, 0)])
            assert produce(red, name, batch).error_code == 0
        assert fetch(red, "named", 0).high_watermark == 3
        theirs = MetadataRequestTopic(name="blue/default/first")
        assert (
            red.ask(MetadataRequest(topics=[theirs])).topics[0].error_code
            == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        )
        everything = red.ask(DescribeTopicPartitionsRequest(topics=[])).topics
        assert "first" in [topic.name for topic in everything]
        assert not [topic.name for topic in everything if topic.name.startswith("blue")]


def test_a_namespace_may_be_home_too(house: BrokerProcess) -> None:
    with wire(house, "red/other") as red:
        red.ask(MetadataRequest(topics=[MetadataRequestTopic(name="here")], allow_auto_topic_creation=True))
        assert produce(red, "here", encode_batch([PlainRecord(None, b"x", [], 0, 0)])).error_code == 0
    with wire(house, "red") as red:
        there = MetadataRequestTopic(name="red/other/here")
        assert red.ask(MetadataRequest(topics=[there])).topics[0].name == "red/other/here"
        looked = MetadataRequest(topics=[MetadataRequestTopic(name="here")], allow_auto_topic_creation=False)
        assert red.ask(looked).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("user", "role", "why"),
    [
        ("nowhere", "root", "no tenant or namespace"),
        ("red/no/such", "root", "no tenant or namespace"),
        ("..", "root", "no tenant or namespace"),
        ("red", "blue-admin", "has no grant"),
        ("public", "blue-admin", "has no grant"),
        ("public/default", "blue-admin", "has no grant"),
        ("blue", "stranger", "has no grant"),
    ],
)
def test_nobody_is_at_home_with_others(house: BrokerProcess, user: str, role: str, why: str) -> None:
    with Wire(house.host_and_port) as opened:
        answer: Any = say(opened, f"token:{token(role)}", user)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert why in answer.error_message
        assert opened.is_closed()


def test_nobody_acts_on_groups_by_what_he_was_granted_elsewhere(house: BrokerProcess) -> None:
    ask(house.data, "grant", target="red/default", role="carrier", actions=["produce"])
    ask(house.data, "grant", target="blue/default", role="carrier", actions=["consume"])
    described = DescribeGroupsRequest(groups=["g"])
    with wire(house, "blue", "carrier") as at_blue:
        assert at_blue.ask(described).groups[0].error_code == 0
    with wire(house, "red", "carrier") as at_red:
        assert at_red.ask(described).groups[0].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert at_red.ask(ListGroupsRequest()).groups == []
        assert at_red.ask(DeleteGroupsRequest(groups_names=["g"])).results[0].error_code == (
            ErrorCode.GROUP_AUTHORIZATION_FAILED
        )


def test_the_next_page_begins_with_nothing_that_is_hidden(house: BrokerProcess) -> None:
    with wire(house, "blue") as blue:
        seen: list[str] = []
        cursor = None
        while True:
            request = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=1, cursor=cursor)
            answer = blue.ask(request)
            seen += [topic.name for topic in answer.topics]
            if answer.next_cursor is None:
                break
            seen.append(answer.next_cursor.topic_name)
            cursor = Cursor(
                topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index
            )
    assert "first" in seen
    assert not [name for name in seen if name.startswith(("red/", "public/"))]


def test_another_topics_id_beside_ones_own_name_opens_nothing(house: BrokerProcess) -> None:
    with wire(house, "red") as red:
        theirs = red.ask(MetadataRequest(topics=[MetadataRequestTopic(name="first")])).topics[0].topic_id
    with wire(house, "blue") as blue:
        for name in ("first", None):
            both = MetadataRequest(topics=[MetadataRequestTopic(name=name, topic_id=theirs)])
            (row,) = blue.ask(both).topics
            assert (row.error_code, row.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
            assert row.partitions == []
