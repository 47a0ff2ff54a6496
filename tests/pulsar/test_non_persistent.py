"""Topics that are not persistent: stock clients write to whoever listens, and the admin REST tells what was dropped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pulsar
import pytest
from confluent_kafka.admin import AdminClient
from pulsar import ConsumerKeySharedPolicy, ConsumerType, KeySharedMode

from tests.process import BrokerDidNotStart, BrokerProcess
from tests.pulsar.conftest import PULSAR, connect
from tests.pulsar.test_client import nothing_comes, receive

ROOT = "/admin/v2/non-persistent/public/default"
HTTP = ("--http", "127.0.0.1:0")
WAIT_MS = 10_000


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("fleeting") / "data", *PULSAR, *HTTP) as process:
        yield process


@pytest.fixture
def client(house: BrokerProcess) -> Iterator[pulsar.Client]:
    made = connect(house)
    yield made
    made.close()


@pytest.fixture
def http(house: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{house.served['http'][0]}", timeout=30) as made:
        yield made


@pytest.fixture
def local() -> str:
    return f"np-{uuid4().hex[:12]}"


@pytest.fixture
def topic(local: str) -> str:
    return f"non-persistent://public/default/{local}"


def test_who_listens_gets_what_is_sent_and_nobody_gets_it_later(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    producer.send(b"to nobody")
    one, other = client.subscribe(topic, "one"), client.subscribe(topic, "other")
    assert str(producer.send(b"to both", partition_key="k", properties={"p": "1"})) == "(0,0,-1,-1)"
    for consumer in (one, other):
        message = consumer.receive(WAIT_MS)
        assert (message.data(), message.partition_key(), message.properties()) == (
            b"to both",
            "k",
            {"p": "1"},
        )
        consumer.acknowledge(message)
        assert nothing_comes(consumer)
    late = client.subscribe(topic, "late", initial_position=pulsar.InitialPosition.Earliest)
    assert nothing_comes(late)


def test_batches_and_chunks_arrive_as_they_were_sent(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "reads")
    producer = client.create_producer(
        topic, batching_enabled=True, compression_type=pulsar.CompressionType.LZ4
    )
    for number in range(100):
        producer.send_async(b"%d" % number * 50, None)
    producer.flush()
    assert receive(consumer, 100) == [b"%d" % number * 50 for number in range(100)]


def test_shared_consumers_divide_the_messages(client: pulsar.Client, topic: str) -> None:
    both = [client.subscribe(topic, "s", ConsumerType.Shared) for _ in range(2)]
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(20):
        producer.send(b"%d" % number)
    found = [receive(consumer, 10) for consumer in both]
    assert sorted(map(int, found[0] + found[1])) == list(range(20))


def test_all_messages_of_a_key_go_to_one_consumer(client: pulsar.Client, topic: str) -> None:
    low = ConsumerKeySharedPolicy(key_shared_mode=KeySharedMode.Sticky, sticky_ranges=[(0, 32767)])
    high = ConsumerKeySharedPolicy(key_shared_mode=KeySharedMode.Sticky, sticky_ranges=[(32768, 65535)])
    both = [
        client.subscribe(topic, "s", ConsumerType.KeyShared, key_shared_policy=policy)
        for policy in (low, high)
    ]
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(40):
        producer.send(b"%d" % number, partition_key=f"k{number % 10}")
    owners: dict[str, set[int]] = {}
    total = 0
    for place, consumer in enumerate(both):
        while not_empty := _next(consumer):
            owners.setdefault(not_empty.partition_key(), set()).add(place)
            total += 1
    assert total == 40
    assert all(len(places) == 1 for places in owners.values())
    assert {place for places in owners.values() for place in places} == {0, 1}


def _next(consumer: pulsar.Consumer) -> pulsar.Message | None:
    try:
        return consumer.receive(500)
    except pulsar.Timeout:
        return None


def test_failover_goes_on_with_the_next_consumer(client: pulsar.Client, topic: str) -> None:
    first = client.subscribe(topic, "s", ConsumerType.Failover, consumer_name="a")
    second = client.subscribe(topic, "s", ConsumerType.Failover, consumer_name="b")
    producer = client.create_producer(topic)
    producer.send(b"1")
    assert receive(first, 1) == [b"1"]
    first.close()
    producer.send(b"2")
    assert receive(second, 1) == [b"2"]


def test_a_subscription_has_one_type_and_an_exclusive_one_consumer(client: pulsar.Client, topic: str) -> None:
    client.subscribe(topic, "s")
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s")
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s", ConsumerType.Shared)


def test_what_a_consumer_has_no_room_for_is_dropped_and_counted(
    client: pulsar.Client, http: httpx.Client, topic: str, local: str
) -> None:
    consumer = client.subscribe(topic, "slow", receiver_queue_size=2)
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(10):
        producer.send(b"%d" % number)
    stats = http.get(f"{ROOT}/{local}/stats").json()
    assert (stats["msgInCounter"], stats["msgOutCounter"], stats["msgDropCounter"]) == (10, 2, 8)
    slow = stats["subscriptions"]["slow"]
    assert (slow["msgOutCounter"], slow["msgDropCounter"], slow["isDurable"]) == (2, 8, False)
    assert (stats["msgDropRate"], slow["msgDropRate"]) == (0, 0), "rates are counted from the first look on"
    assert "msgDropRate" not in stats["publishers"][0]  # nothing is dropped before it comes to a subscription
    assert receive(consumer, 2) == [b"0", b"1"]
    assert nothing_comes(consumer)
    assert http.get(f"{ROOT}/{local}/internalStats").json()["entriesAddedCounter"] == 10


def test_partitions_are_topics_of_their_own(
    client: pulsar.Client, http: httpx.Client, topic: str, local: str
) -> None:
    assert http.put(f"{ROOT}/{local}/partitions", json=3).status_code == 204
    assert http.get(f"{ROOT}/{local}/partitions").json()["partitions"] == 3
    assert topic in http.get(f"{ROOT}/partitioned").json()
    consumer = client.subscribe(topic, "s", ConsumerType.Shared)
    producer = client.create_producer(topic)
    for number in range(6):
        producer.send(b"%d" % number)
    assert sorted(receive(consumer, 6)) == [b"%d" % number for number in range(6)]
    stats = http.get(f"{ROOT}/{local}/partitioned-stats").json()
    assert (stats["msgInCounter"], stats["metadata"]["partitions"], len(stats["partitions"])) == (6, 3, 3)
    assert http.get(f"{ROOT}/{local}-partition-0/stats").json()["msgInCounter"] == 2
    assert http.post(f"{ROOT}/{local}/partitions", json=4).status_code == 204
    assert http.get(f"{ROOT}/{local}/partitions").json()["partitions"] == 4
    assert http.delete(f"{ROOT}/{local}/partitions").status_code == 412
    consumer.close()
    producer.close()
    assert http.delete(f"{ROOT}/{local}/partitions").status_code == 204
    assert http.get(f"{ROOT}/{local}/partitions").json()["partitions"] == 0
    assert topic not in http.get(f"{ROOT}/partitioned").json()


def test_the_admin_rest_knows_them_and_says_what_cannot_be(
    client: pulsar.Client, http: httpx.Client, topic: str, local: str
) -> None:
    path = f"{ROOT}/{local}"
    assert http.put(path).status_code == 204
    assert http.put(path).status_code == 409
    assert topic in http.get(ROOT).json()
    assert topic in http.get(f"{ROOT}/0x00000000_0xffffffff").json()
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    assert http.get(f"{path}/subscriptions").json() == ["s"]
    namespace = "/admin/v2/namespaces/public/default/topics"
    assert topic not in http.get(namespace).json()
    assert topic in http.get(namespace, params={"mode": "ALL"}).json()
    assert topic in http.get(namespace, params={"mode": "NON_PERSISTENT"}).json()
    assert http.get(f"/lookup/v2/topic/non-persistent/public/default/{local}").json()["nativeUrl"]
    for method, rest in (
        ("GET", "lastMessageId"), ("GET", "messageid/0"), ("GET", "examinemessage"),
        ("GET", "subscription/s/position/1"), ("POST", "subscription/s/expireMessages/1"),
        ("POST", "subscription/s/skip_all"), ("PUT", "compaction"), ("POST", "terminate"),
    ):  # fmt: skip
        assert http.request(method, f"{path}/{rest}").status_code == 405, rest
    assert http.put(f"{path}/subscription/n").status_code == 400
    assert http.delete(f"{path}/truncate").status_code == 412
    assert http.delete(path).status_code == 412
    assert http.put(f"{path}/unload").status_code == 204
    producer.send(b"both came back")
    consumer.close()
    producer.close()
    assert http.delete(path).status_code == 204
    assert http.delete(path).status_code == 404
    assert http.get(f"{path}/stats").status_code == 404


def test_a_topic_of_the_same_name_that_is_persistent_is_another_one(
    client: pulsar.Client, topic: str, house: BrokerProcess, local: str
) -> None:
    kept = client.subscribe(topic.removeprefix("non-"), "s")
    fleeting = client.subscribe(topic, "s")
    client.create_producer(topic).send(b"fleeting")
    assert receive(fleeting, 1) == [b"fleeting"]
    assert nothing_comes(kept)
    seen = AdminClient({"bootstrap.servers": house.address}).list_topics(timeout=10).topics
    assert [name for name in seen if local in name] == [local], "Kafka sees the persistent one alone"


def test_there_is_no_last_message_and_seeking_changes_nothing(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    producer.send(b"1")
    receive(consumer, 1)
    with pytest.raises(pulsar.PulsarException, match="UnknownError"):
        consumer.get_last_message_id()
    consumer.seek(pulsar.MessageId.earliest)
    producer.send(b"2")
    assert receive(consumer, 1) == [b"2"]


def test_partitions_are_remembered_topics_and_messages_are_not(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", *PULSAR, *HTTP) as process:
        with httpx.Client(base_url=f"http://{process.served['http'][0]}", timeout=30) as http:
            assert http.put(f"{ROOT}/three/partitions", json=3).status_code == 204
            assert http.put(f"{ROOT}/plain").status_code == 204
        process.kill()
    off = ("--set", "enableNonPersistentTopics=false")
    with BrokerProcess(tmp_path / "data", *PULSAR, *HTTP, *off) as process:
        with httpx.Client(base_url=f"http://{process.served['http'][0]}", timeout=30) as http:
            assert http.get(f"{ROOT}/three/partitions").json()["partitions"] == 3
            assert http.get(ROOT).json() == []
        client = connect(process)
        with pytest.raises(pulsar.PulsarException, match="NotAllowed"):
            client.create_producer("non-persistent://public/default/plain")
        client.close()


def test_prometheus_sees_them_too(client: pulsar.Client, http: httpx.Client, topic: str) -> None:
    full = client.subscribe(topic, "full", receiver_queue_size=1)
    producer = client.create_producer(topic, batching_enabled=False)

    def figure(name: str, subscription: str = "") -> float | None:
        for line in http.get("/metrics").text.splitlines():
            if line.startswith(name + "{") and f'topic="{topic}"' in line and subscription in line:
                return float(line.rpartition(" ")[2])
        return None

    assert figure("pulsar_producers_count") == figure("pulsar_subscriptions_count") == 1
    assert (figure("pulsar_consumers_count"), figure("pulsar_storage_size")) == (1, 0)
    while not all(
        figure(name, said)
        for name, said in (
            ("pulsar_rate_in", ""),
            ("pulsar_throughput_out", ""),
            ("pulsar_subscription_msg_rate_out", 'subscription="full"'),
            ("pulsar_subscription_msg_drop_rate", 'subscription="full"'),
        )
    ):
        producer.send(b"some are dropped")
        full.receive(1000)
        producer.send(b"1")
        producer.send(b"2")
    assert figure("pulsar_subscription_back_log", 'subscription="full"') == 0
    full.close()


def test_the_setting_must_be_true_or_false(tmp_path: Path) -> None:
    with pytest.raises(BrokerDidNotStart, match="enable"):
        BrokerProcess(tmp_path / "data", *PULSAR, "--set", "enableNonPersistentTopics=perhaps")
