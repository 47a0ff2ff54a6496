"""Stock clients of Kafka's protocol through the proxy: what they see, and what becomes of 20,000 records."""

from __future__ import annotations

import asyncio
import socket
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

import aiokafka
import confluent_kafka as ck
import kafka
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from magnetar.client.cluster import Cluster
from magnetar.client.settings import settings_of
from magnetar.wire.kafka.messages.list_config_resources_request import ListConfigResourcesRequest
from tests.proxy.processes import PATIENCE_S, ClusterProcess, ProxyProcess

RECORDS = 20_000
BROKER, LOGGER = 4, 8
PARTITIONS = 12


@pytest.fixture
def admin(proxy: ProxyProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": proxy.kafka})


@pytest.fixture
def topic(admin: AdminClient) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    make(admin, name)
    return name


def make(admin: AdminClient, *names: str) -> None:
    for future in admin.create_topics([NewTopic(name, PARTITIONS) for name in names]).values():
        future.result(PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    while any(
        each.error is not None or any(p.leader < 0 for p in each.partitions.values())
        for each in (admin.list_topics(name, PATIENCE_S).topics[name] for name in names)
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def produced(address: str, topic: str, count: int = RECORDS, **config: object) -> dict[int, list[bytes]]:
    """Produce, and return what was acknowledged, by partition, in order of acknowledgement."""
    acknowledged: dict[int, list[bytes]] = defaultdict(list)
    failed: list[str] = []

    def done(error: ck.KafkaError | None, message: ck.Message) -> None:
        if error is not None:
            failed.append(str(error))
        else:
            acknowledged[message.partition()].append(message.value())

    client = ck.Producer({"bootstrap.servers": address, "linger.ms": 2, "batch.num.messages": 200, **config})
    for number in range(count):
        client.produce(topic, b"%d" % number, partition=number % PARTITIONS, on_delivery=done)
        client.poll(0)
    assert client.flush(PATIENCE_S) == 0
    assert not failed, failed[:3]
    return acknowledged


def consumed(address: str, topic: str, count: int = RECORDS, **config: object) -> dict[int, list[bytes]]:
    """Read a whole topic in a group, and commit."""
    client = ck.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": f"g-{topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **config,
        }
    )
    client.subscribe([topic])
    found: dict[int, list[bytes]] = defaultdict(list)
    deadline = time.monotonic() + PATIENCE_S
    while sum(map(len, found.values())) < count:
        assert time.monotonic() < deadline, f"{sum(map(len, found.values()))} of {count}"
        for message in client.consume(1000, 0.2):
            assert message.error() is None
            found[message.partition()].append(message.value())
    client.commit(asynchronous=False)
    client.close()
    return found


def in_order(count: int = RECORDS) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = defaultdict(list)
    for number in range(count):
        found[number % PARTITIONS].append(b"%d" % number)
    return found


def leaders(cluster: ClusterProcess, topic: str) -> set[int]:
    found = AdminClient({"bootstrap.servers": cluster.kafka}).list_topics(topic, PATIENCE_S)
    return {each.leader for each in found.topics[topic].partitions.values()}


def test_clients_see_one_broker_that_leads_everything(
    admin: AdminClient, proxy: ProxyProcess, cluster: ClusterProcess, topic: str
) -> None:
    assert len(leaders(cluster, topic)) > 1, "the cluster's brokers share the topic, or nothing is shown here"
    told = admin.list_topics(topic, PATIENCE_S)
    assert {f"{each.host}:{each.port}" for each in told.brokers.values()} == {proxy.kafka}
    assert told.controller_id in told.brokers
    for partition in told.topics[topic].partitions.values():
        assert [partition.leader, *partition.replicas, *partition.isrs] == [told.controller_id] * 3
    described = admin.describe_cluster().result(PATIENCE_S)
    assert [f"{each.host}:{each.port}" for each in described.nodes] == [proxy.kafka]
    assert described.controller.id == told.controller_id
    with Cluster(settings_of({"bootstrap.servers": proxy.kafka})) as seen:
        assert seen.coordinator("a group").place == proxy.kafka
    assert told.cluster_id == AdminClient({"bootstrap.servers": cluster.kafka}).list_topics().cluster_id


@pytest.mark.parametrize(
    "config",
    [
        {"enable.idempotence": True},
        {"acks": "all", "batch.num.messages": 1, "linger.ms": 0},
        {"acks": 1, "compression.type": "lz4"},
        {"acks": 0},
    ],
    ids=["idempotent", "single", "lz4", "acks-0"],
)
def test_what_is_produced_is_consumed(proxy: ProxyProcess, topic: str, config: dict[str, object]) -> None:
    produced(proxy.kafka, topic, **config)
    assert consumed(proxy.kafka, topic) == in_order()


def test_a_request_of_many_leaders_is_one_answer(
    proxy: ProxyProcess, cluster: ClusterProcess, topic: str
) -> None:
    produced(cluster.kafka, topic)
    client = ck.Consumer({"bootstrap.servers": proxy.kafka, "group.id": "g"})
    ends = [client.get_watermark_offsets(ck.TopicPartition(topic, p), PATIENCE_S) for p in range(PARTITIONS)]
    assert sum(high - low for low, high in ends) == RECORDS
    client.close()
    admin = AdminClient({"bootstrap.servers": proxy.kafka})
    places = {ck.TopicPartition(topic, p): OffsetSpec.latest() for p in range(PARTITIONS)}
    found = {place.partition: f.result(PATIENCE_S).offset for place, f in admin.list_offsets(places).items()}
    assert [found[p] for p in range(PARTITIONS)] == [high for _, high in ends]
    cut = admin.delete_records([ck.TopicPartition(topic, p, 100) for p in range(PARTITIONS)])
    assert [each.result(PATIENCE_S).low_watermark for each in cut.values()] == [100] * PARTITIONS


def test_groups_are_those_of_all_brokers(
    proxy: ProxyProcess, cluster: ClusterProcess, admin: AdminClient
) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    make(admin, topic)
    produced(proxy.kafka, topic, 12)
    groups = [f"{topic}-{number}" for number in range(16)]
    for group in groups:
        consumed(proxy.kafka, topic, 12, **{"group.id": group})
    listed = {each.group_id for each in admin.list_consumer_groups().result(PATIENCE_S).valid}
    assert listed >= set(groups)
    described = admin.describe_consumer_groups(groups)
    assert {name: each.result(PATIENCE_S).state.name for name, each in described.items()} == dict.fromkeys(
        groups, "EMPTY"
    )
    deleted = admin.delete_consumer_groups(groups)
    assert all(each.result(PATIENCE_S) is None for each in deleted.values())


def test_configurations_pass(admin: AdminClient, topic: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.ms": "12345"})
    admin.incremental_alter_configs([_with_entry(topic)])
    deadline = time.monotonic() + PATIENCE_S
    while True:
        (told,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        if told.result(PATIENCE_S)["retention.ms"].value == "12345":
            return
        assert time.monotonic() < deadline, resource


def test_the_one_broker_is_described(admin: AdminClient) -> None:
    number = str(admin.list_topics(timeout=PATIENCE_S).controller_id)
    (told,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, number)]).items()
    assert told[0].name == number
    assert told[1].result(PATIENCE_S)["num.partitions"].value == "1"


def test_brokers_are_listed_as_clients_know_them(
    admin: AdminClient, cluster: ClusterProcess, proxy: ProxyProcess
) -> None:
    asked = ListConfigResourcesRequest(resource_types=[BROKER, LOGGER])

    def listed(address: str) -> list[tuple[int, str]]:
        with Cluster(settings_of({"bootstrap.servers": address})) as known:
            told = known.any_broker().call(asked, 1).config_resources
        return sorted((each.resource_type, each.resource_name) for each in told)

    brokers = AdminClient({"bootstrap.servers": cluster.kafka}).list_topics(timeout=PATIENCE_S).brokers
    assert len(brokers) > 1
    assert listed(cluster.kafka) == [
        (kind, str(node)) for kind in (BROKER, LOGGER) for node in sorted(brokers)
    ]
    own = str(admin.list_topics(timeout=PATIENCE_S).controller_id)
    assert listed(proxy.kafka) == [(BROKER, own), (LOGGER, own)]


def _with_entry(topic: str) -> ConfigResource:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry

    entry = ConfigEntry("retention.ms", "12345", incremental_operation=AlterConfigOpType.SET)
    return ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])


def test_kafka_python(proxy: ProxyProcess, topic: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=proxy.kafka, linger_ms=5)
    sent = [producer.send(topic, b"%d" % n, partition=n % PARTITIONS) for n in range(RECORDS)]
    producer.flush(PATIENCE_S)
    assert all(each.get(PATIENCE_S).offset >= 0 for each in sent)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=proxy.kafka,
        group_id=f"g-{topic}",
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
    )
    found: dict[int, list[bytes]] = defaultdict(list)
    for message in consumer:
        found[message.partition].append(message.value)
        if sum(map(len, found.values())) == RECORDS:
            break
    consumer.commit()
    consumer.close()
    assert found == in_order()


def test_aiokafka(proxy: ProxyProcess, topic: str) -> None:
    async def run() -> dict[int, list[bytes]]:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=proxy.kafka, linger_ms=5, enable_idempotence=True
        ) as producer:
            sent = [await producer.send(topic, b"%d" % n, partition=n % PARTITIONS) for n in range(RECORDS)]
            await asyncio.gather(*sent)
        found: dict[int, list[bytes]] = defaultdict(list)
        async with aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=proxy.kafka, group_id=f"g-{topic}", auto_offset_reset="earliest"
        ) as consumer:
            while sum(map(len, found.values())) < RECORDS:
                for place, messages in (await consumer.getmany(timeout_ms=20_000)).items():
                    found[place.partition].extend(each.value for each in messages)
        return found

    assert asyncio.run(asyncio.wait_for(run(), PATIENCE_S)) == in_order()


def test_transactions(proxy: ProxyProcess, cluster: ClusterProcess, topic: str) -> None:
    """Of all brokers' partitions; what is aborted was written before."""
    told = AdminClient({"bootstrap.servers": cluster.kafka}).list_topics(topic, PATIENCE_S).topics[topic]
    partitions = sorted(told.partitions)
    assert len({each.leader for each in told.partitions.values()}) > 1
    client = ck.Producer({"bootstrap.servers": proxy.kafka, "transactional.id": topic, "linger.ms": 2})
    client.init_transactions(PATIENCE_S)
    committed = set()
    for number in range(10):
        client.begin_transaction()
        values = [b"%d-%d" % (number, each) for each in range(RECORDS // 10)]
        for each, value in enumerate(values):
            client.produce(topic, value, partition=partitions[each % len(partitions)])
            client.poll(0)
        if number % 3:
            client.commit_transaction(PATIENCE_S)
            committed.update(values)
        else:
            # What librdkafka throws away when it aborts may have had its number in the sequence.
            assert client.flush(PATIENCE_S) == 0
            client.abort_transaction(PATIENCE_S)
    found = consumed(proxy.kafka, topic, len(committed), **{"isolation.level": "read_committed"})
    assert {value for values in found.values() for value in values} == committed


@pytest.fixture
def stranger(proxy: ProxyProcess) -> Iterator[socket.socket]:
    host, _, port = proxy.kafka.rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as made:
        yield made


@pytest.mark.parametrize(
    "sent",
    [
        b"\xff\xff\xff\xff" + bytes(100),
        (1 << 30).to_bytes(4, "big") + bytes(100),
        (100).to_bytes(4, "big") + (999).to_bytes(2, "big") + bytes(98),
        (20).to_bytes(4, "big") + (3).to_bytes(2, "big") + (99).to_bytes(2, "big") + bytes(16),
        (20).to_bytes(4, "big") + (0).to_bytes(2, "big") + (9).to_bytes(2, "big") + b"\xff" * 16,
        (14).to_bytes(4, "big") + (3).to_bytes(2, "big") + (12).to_bytes(2, "big") + b"\xff" * 10,
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=["negative", "huge", "unknown", "version", "produce", "metadata", "http"],
)
def test_what_is_no_request_ends_its_connection_alone(
    proxy: ProxyProcess, stranger: socket.socket, admin: AdminClient, sent: bytes
) -> None:
    stranger.sendall(sent)
    assert stranger.recv(100) == b""
    assert admin.list_topics(timeout=PATIENCE_S).brokers


def test_acknowledged_offsets_are_in_order(proxy: ProxyProcess, topic: str) -> None:
    """One connection, many requests on their way: answers come in the order of the requests."""
    offsets: list[int] = []
    client = ck.Producer(
        {
            "bootstrap.servers": proxy.kafka,
            "batch.num.messages": 1,
            "linger.ms": 0,
            "enable.idempotence": True,
        }
    )
    for number in range(2000):
        client.produce(
            topic,
            b"%d" % number,
            partition=0,
            on_delivery=lambda _, message: offsets.append(message.offset()),
        )
    assert client.flush(PATIENCE_S) == 0
    assert all(one < other for one, other in pairwise(offsets))
