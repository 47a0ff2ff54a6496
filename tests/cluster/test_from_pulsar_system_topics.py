"""``magnetar migrate from-pulsar``: topics' own policies, and what KoP keeps of groups, hold after the takeover.

A real broker of Pulsar's writes the policies. There is no KoP to be had from Maven: what its coordinators send is sent
by Pulsar's own Java client, the facts laid out as in KoP's ``GroupMetadataConstants``.
"""

from __future__ import annotations

import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError

import pulsar
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from magnetar.records.batch import TRANSACTIONAL, PlainRecord, encode_batch
from magnetar.records.control import marker_batch
from tests.cluster.brokers import BrokerProcess, bootstrap
from tests.cluster.pulsar_broker import INDEXED, PulsarBroker, release
from tests.cluster.rest import ask
from tests.cluster.servers import Cluster, class_path, java
from tests.cluster.test_from_pulsar import migrate, places, quiet

class_path()  # skips the module where BookKeeper cannot be run
from kazoo.client import KazooClient  # noqa: E402

from magnetar.doctor.ledgers_cluster import ClusterPlace  # noqa: E402
from magnetar.ledger.formats.info import decode_info  # noqa: E402
from magnetar.migrate import from_pulsar_commands as commands  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
_OFFSETS = "public/__kafka/__consumer_offsets"
RECORDS = 20_000
RATE = {"dispatchThrottlingRateInMsg": 500, "dispatchThrottlingRateInByte": 100_000, "ratePeriodInSecond": 2}
OWN: dict[str, Any] = {
    "retention": {"retentionTimeInMinutes": 90, "retentionSizeInMB": 70},
    "messageTTL?messageTTL=3600": None,
    "publishRate": {"publishThrottlingRateInMsg": 4000, "publishThrottlingRateInByte": 900_000},
    "dispatchRate": {**RATE, "relativeToPublishRate": True},
    "subscriptionDispatchRate": {**RATE, "relativeToPublishRate": False},
    "subscribeRate": {"subscribeThrottlingRatePerConsumer": 7, "ratePeriodInSecond": 11},
    "compactionThreshold": 5_000_000,
    "deduplicationEnabled": True,
    "deduplicationSnapshotInterval": 60,
    "maxProducers": 1,
    "maxConsumers": 5,
    "maxConsumersPerSubscription": 4,
    "maxSubscriptionsPerTopic": 6,
    "maxUnackedMessagesOnConsumer": 1500,
    "maxUnackedMessagesOnSubscription": 2500,
    "maxMessageSize": 300_000,
    "schemaCompatibilityStrategy": "FORWARD_TRANSITIVE",
    "schemaValidationEnforced": True,
    "delayedDelivery": {"active": True, "tickTime": 2000, "maxDeliveryDelayInMillis": 60_000},
    "persistence": {
        "bookkeeperEnsemble": 2,
        "bookkeeperWriteQuorum": 2,
        "bookkeeperAckQuorum": 1,
        "managedLedgerMaxMarkDeleteRate": 3.0,
    },
    "inactiveTopicPolicies": {
        "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
        "maxInactiveDurationSeconds": 4000,
        "deleteWhileInactive": False,
    },
    "autoSubscriptionCreation": {"allowAutoSubscriptionCreation": False},
    "subscriptionTypesEnabled": ["Exclusive", "Shared"],
}
QUOTAS = {
    "destination_storage": {"limitSize": 7_000_000, "limitTime": -1, "policy": "producer_exception"},
    "message_age": {"limitSize": -1, "limitTime": 4000, "policy": "consumer_backlog_eviction"},
}
"""What is set for one topic, by the admin REST's paths."""


class Servers(NamedTuple):
    cluster: Cluster
    ours: BrokerProcess
    pulsars: PulsarBroker


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    release()
    directory = tmp_path_factory.mktemp("from-pulsar-topics")
    cluster = Cluster(directory / "cluster", bookies=2)
    ours = BrokerProcess(cluster, directory, 1)
    pulsars = PulsarBroker(cluster, directory, **INDEXED)
    try:
        cluster.start()
        pulsars.prepare()
        yield Servers(cluster, ours, pulsars)
    finally:
        pulsars.end()
        ours.end()
        cluster.kill()


def topic(name: str, what: str = "") -> str:
    return f"persistent/public/default/{name}/{what}".removesuffix("/")


def told(broker: PulsarBroker | BrokerProcess, name: str) -> dict[str, Any]:
    """Return what a broker says of a topic's own policies."""
    found = {}
    for path in [*OWN, "backlogQuotaMap"]:
        short = path.partition("?")[0]
        if short != "subscriptionTypesEnabled":
            found[short] = (
                broker.ask("GET", topic(name, short))
                if isinstance(broker, PulsarBroker)
                else ask(broker, "GET", topic(name, short))
            )
    quotas = found["backlogQuotaMap"]
    found["backlogQuotaMap"] = {
        kind: {key: quota.get(key) for key in ("limitSize", "limitTime", "policy")}
        for kind, quota in (quotas or {}).items()
    }
    found["schemaValidationEnforced"] = (
        found["schemaValidationEnforced"] or None
    )  # Pulsar says false for nothing
    delayed = found["delayedDelivery"]
    if delayed:
        found["delayedDelivery"] = {key: delayed[key] for key in OWN["delayedDelivery"]}
    persistence = found["persistence"]
    if persistence:
        found["persistence"] = {key: persistence[key] for key in OWN["persistence"]}
    return {key: None if value in (b"", {}) else value for key, value in found.items()}


def set_all(broker: PulsarBroker, name: str) -> None:
    for path, value in OWN.items():
        broker.ask("PUT" if path == "schemaCompatibilityStrategy" else "POST", topic(name, path), value)
    for kind, quota in QUOTAS.items():
        broker.ask("POST", topic(name, f"backlogQuota?backlogQuotaType={kind}"), quota)


def patiently(is_so: Any) -> None:
    while not is_so():
        time.sleep(0.2)


def text(value: str) -> bytes:
    return struct.pack(">h", len(value.encode())) + value.encode()


def offset_key(group: str, name: str, partition: int) -> bytes:
    return struct.pack(">h", 1) + text(group) + text(name) + struct.pack(">i", partition)


def offset_record(group: str, name: str, partition: int, offset: int) -> PlainRecord:
    now_ms = int(time.time() * 1000)
    value = struct.pack(">hq", 1, offset) + text("") + struct.pack(">qq", now_ms, now_ms + 1000)
    return PlainRecord(offset_key(group, f"persistent://public/default/{name}", partition), value, (), now_ms)


def group_record(group: str) -> PlainRecord:
    """A group with one member, in KoP's version 0."""
    member = text("m-1") + text("c") + text("/127.0.0.1") + struct.pack(">iii", 10_000, 0, 0)
    value = struct.pack(">h", 0) + text("consumer") + struct.pack(">i", 3) + text("range") + text("m-1")
    key = struct.pack(">h", 2) + text(group)
    return PlainRecord(key, value + struct.pack(">i", 1) + member, (), int(time.time() * 1000))


def partition_of(group: str, partitions: int) -> int:
    """The hash of Java's strings modulo their number, as KoP has it; Kafka takes the hash's absolute value."""
    found = 0
    for each in group.encode("utf-16-be")[1::2]:
        found = (31 * found + each) & 0xFFFFFFFF
    return (found - (1 << 32) if found >> 31 else found) % partitions


def send_as_kop(broker: PulsarBroker, lines: list[tuple[str, bytes, bytes]]) -> None:
    said = "".join(f"{name} {key.hex() or '-'} {value.hex()}\n" for name, key, value in lines)
    program = Path(__file__).with_name("KopMessages.java")
    command = [java(), "-cp", f"{release() / 'lib'}/*", str(program), broker.service_url]
    done = subprocess.run(command, input=said, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def commits(group: str, partitions: int, *batches: bytes) -> list[tuple[str, bytes, bytes]]:
    """Return messages of a group; all commits have the one key that KoP gives them."""
    where = f"persistent://{_OFFSETS}-partition-{partition_of(group, partitions)}"
    return [(where, offset_key(group, "", -1), each) for each in batches]


def ledgers_of(cluster: Cluster, path: str) -> list[int]:
    zookeeper = KazooClient(f"{cluster.hosts}/house")
    zookeeper.start()
    value, _ = zookeeper.get(f"/managed-ledgers/{path}")
    zookeeper.stop()
    zookeeper.close()
    return [each.ledger_id for each in decode_info(value).ledgers]


def send(url: str, numbers: range) -> None:
    client = pulsar.Client(url)
    producer = client.create_producer(
        "persistent://public/default/read", batching_enabled=True, block_if_queue_full=True
    )
    failed: list[Any] = []
    for number in numbers:
        producer.send_async(
            b"%d" % number, lambda result, _: failed.append(result) if result != pulsar.Result.Ok else None
        )
    producer.flush()
    client.close()
    assert not failed


def kops(cluster: Cluster) -> dict[str, bytes]:
    """Return the nodes of the topics that KoP's coordinators keep."""
    zookeeper = KazooClient(f"{cluster.hosts}/house")
    zookeeper.start()
    found = {}
    for root in ("/admin/partitioned-topics", "/managed-ledgers"):
        folder = f"{root}/public/__kafka/persistent"
        for name in zookeeper.get_children(folder):
            if name.startswith(("__consumer_offsets", "__transaction_state")):
                found[f"{folder}/{name}"] = zookeeper.get(f"{folder}/{name}")[0]
    zookeeper.stop()
    zookeeper.close()
    return found


def write_policies(servers: Servers) -> None:
    cluster, _, pulsars = servers
    pulsars.ask("PUT", topic("many/partitions"), 2)
    for name in ("own", "changed", "none"):
        pulsars.ask("PUT", topic(name))
    set_all(pulsars, "own")
    pulsars.ask("POST", topic("many", "retention"), {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1})
    pulsars.ask("POST", topic("changed", "maxProducers"), 2)
    pulsars.ask("POST", topic("none", "maxProducers"), 2)
    # What was compacted and let go of is in the compacted ledger alone.
    events = "public/default/persistent/__change_events"
    before = ledgers_of(cluster, events)
    pulsars.ask("PUT", topic("__change_events", "compaction"))
    patiently(lambda: pulsars.ask("GET", topic("__change_events", "compaction"))["status"] == "SUCCESS")
    pulsars.ask("PUT", topic("__change_events", "unload"))
    pulsars.ask("POST", topic("changed", "maxProducers"), 3)
    patiently(lambda: not set(before) & set(ledgers_of(cluster, events)))
    pulsars.ask("DELETE", topic("none", "maxProducers"))
    pulsars.ask("POST", topic("changed", "maxConsumers"), 9)


def test_policies_and_groups_hold_after_the_takeover(servers: Servers) -> None:
    cluster, ours, pulsars = servers
    where = places(cluster)
    pulsars.start()
    write_policies(servers)
    own, changed, many = (told(pulsars, each) for each in ("own", "changed", "many"))
    assert own["maxProducers"] == 1
    assert all(value is not None for value in own.values()), own

    send(pulsars.service_url, range(RECORDS))
    pulsars.ask("PUT", "namespaces/public/__kafka")
    pulsars.ask("PUT", "persistent/public/__kafka/__consumer_offsets/partitions", 8)
    pulsars.ask("PUT", "persistent/public/__kafka/__transaction_state/partitions", 8)
    plain = [encode_batch([offset_record("g", "read", 0, offset)]) for offset in (100, 700)]
    other = encode_batch([offset_record("g", "many", 1, 5), offset_record("g", "many", 0, 6)])
    pending = [
        encode_batch(
            [offset_record("t", "read", 0, offset)],
            attributes=TRANSACTIONAL,
            producer_id=number,
            producer_epoch=0,
            base_sequence=0,
        )
        for number, offset in ((7, 900), (8, 950), (9, 990))
    ]
    ends = [
        marker_batch(number, 0, 0, committed=committed, coordinator_epoch=0)
        for number, committed in ((7, True), (8, False))
    ]
    group = encode_batch([group_record("g")])
    gone = encode_batch([offset_record("gone", "read", 0, 1)._replace(value=None)])
    first = encode_batch([offset_record("gone", "read", 0, 1)])
    send_as_kop(
        pulsars,
        [
            *commits("g", 8, group, *plain, other),
            *commits("t", 8, *pending),
            *((where, b"", value) for where, _, value in commits("t", 8, *ends)),
            *commits("gone", 8, first, gone),
            *commits("elsewhere", 8, encode_batch([offset_record("elsewhere", "read", 0, 42)])),
        ],
    )

    # While Pulsar serves, the newest of it is seen too, and nobody is disturbed.
    found = migrate("--check", "--metadata", where[0], "--bookkeeper", where[1])
    assert found["is_possible"], found["findings"]
    policies = {each["topic"].rpartition("/")[2]: each for each in found["policies_of_pulsar"]}
    assert set(policies) == {"own", "changed", "many"}
    assert set(policies["changed"]["policies"]) == {"maxProducerPerTopic", "maxConsumerPerTopic"}
    assert policies["own"]["not_honoured"] == ["subscriptionTypesEnabled"]
    assert any("subscriptionTypesEnabled of own" in each["what"] for each in found["findings"])
    groups = {each["group"]: each["offsets"] for each in found["groups_of_kop"]}
    assert groups == {"g": 3, "t": 1, "elsewhere": 1}
    pulsars.ask("POST", topic("changed", "maxConsumers"), 10)
    changed["maxConsumers"] = 10
    pulsars.end()
    of_kop = kops(cluster)
    assert len(of_kop) > 8

    taken = commands.take(ClusterPlace(*where), quiet)
    assert (taken.is_possible, taken.policies_moved, taken.groups_moved) == (True, 3, 3)
    again = commands.take(ClusterPlace(*where), quiet)
    assert (again.is_possible, again.policies_moved, again.groups_moved) == (True, 0, 0)
    ours.start()
    assert told(ours, "own") == own
    assert told(ours, "changed") == changed
    assert told(ours, "many") == many
    assert all(value is None for value in told(ours, "none").values())
    holds(ours)
    goes_on(ours)
    ask(ours, "POST", topic("changed", "maxConsumers"), 11)
    ours.end()
    commands.take(ClusterPlace(*where), quiet)  # what was set here since is not replaced

    ours.start()
    assert told(ours, "changed")["maxConsumers"] == 11
    ours.end()
    commands.back(ClusterPlace(*where), quiet)
    assert kops(cluster) == of_kop
    pulsars.start()
    assert told(pulsars, "own") == own
    assert told(pulsars, "changed") == changed
    pulsars.end()


def holds(ours: BrokerProcess) -> None:
    """Policies are in force, and not told only."""
    client = pulsar.Client(f"pulsar://127.0.0.1:{ours.pulsar}")
    schema = pulsar.schema.AvroSchema(None, schema_definition={"type": "record", "name": "A", "fields": []})
    one = client.create_producer("persistent://public/default/own", schema=schema)
    with pytest.raises(pulsar.PulsarException):
        client.create_producer("persistent://public/default/own", schema=schema)
    one.close()
    with pytest.raises(pulsar.PulsarException):  # schemaValidationEnforced
        client.create_producer("persistent://public/default/own")
    client.close()
    with pytest.raises(HTTPError):
        ask(ours, "PUT", topic("own", "maxMessageSize"), 1 << 40)


def committed_by(admin: AdminClient, group: str) -> list[TopicPartition]:
    while True:
        (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        try:
            return list(future.result().topic_partitions)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.COORDINATOR_LOAD_IN_PROGRESS:
                raise
            time.sleep(0.2)


def goes_on(ours: BrokerProcess) -> None:
    """Kafka's consumers begin where their groups were with KoP."""
    admin = AdminClient({"bootstrap.servers": bootstrap([ours])})
    committed: dict[tuple[str, str, int], int] = {}
    for group in ("g", "t", "gone", "elsewhere"):
        committed |= {(group, each.topic, each.partition): each.offset for each in committed_by(admin, group)}
    assert committed == {
        ("g", "read", 0): 700,
        ("g", "many", 1): 5,
        ("g", "many", 0): 6,
        ("t", "read", 0): 900,
        ("elsewhere", "read", 0): 42,
    }
    consumer = Consumer(
        {"bootstrap.servers": bootstrap([ours]), "group.id": "g", "auto.offset.reset": "error"}
    )
    consumer.subscribe(["read"])
    found: list[int] = []
    while len(found) < RECORDS - 700:
        for each in consumer.consume(500, 1):
            assert not each.error(), each.error()
            found.append(int(each.value()))
    assert found == list(range(700, RECORDS))
    consumer.commit(offsets=[TopicPartition("read", 0, RECORDS)], asynchronous=False)
    consumer.close()


NAMES = ("plain", "a b", "50% off", "grün", "a+b", "a:b", "x~y", "st*r", "(p)&q")
SUBSCRIPTION = "ü %+:~* "
WITH_A_SLASH = "s/1"
"""With transactions on, Pulsar makes a topic's name of the topic's and this: the former has to be plain."""
EACH = 500


def worked(url: str, name: str, numbers: range) -> None:
    """Subscribe, send, and acknowledge the first half of what was sent."""
    client = pulsar.Client(url)
    if name.endswith("plain"):
        client.subscribe(f"persistent://public/default/{name}", WITH_A_SLASH)
    consumer = client.subscribe(f"persistent://public/default/{name}", SUBSCRIPTION + name)
    producer = client.create_producer(f"persistent://public/default/{name}", block_if_queue_full=True)
    for number in numbers:
        producer.send_async(b"%d" % number, lambda *_: None)
    producer.flush()
    for number in numbers[: len(numbers) // 2]:
        each = consumer.receive(60_000)
        assert int(each.data()) == number
        consumer.acknowledge(each)
    client.close()


def rest_of(url: str, name: str, numbers: range, partition: str = "") -> None:
    """See that the subscription is where it was left, and acknowledge half of it."""
    client = pulsar.Client(url)
    consumer = client.subscribe(f"persistent://public/default/{name}{partition}", SUBSCRIPTION + name)
    for place, number in enumerate(numbers):
        each = consumer.receive(60_000)
        assert int(each.data()) == number
        if place < len(numbers) // 2:
            consumer.acknowledge(each)
    with pytest.raises(pulsar.Timeout):
        consumer.receive(100)
    client.close()


def nodes(cluster: Cluster) -> dict[str, list[str]]:
    """Return the managed ledgers of a namespace with their cursors, by their names in paths."""
    zookeeper = KazooClient(f"{cluster.hosts}/house")
    zookeeper.start()
    root = "/managed-ledgers/public/default/persistent"
    zookeeper.ensure_path(root)
    found = {name: sorted(zookeeper.get_children(f"{root}/{name}")) for name in zookeeper.get_children(root)}
    zookeeper.stop()
    zookeeper.close()
    return found


def of_new(topic: str, cursors: list[str]) -> list[str]:
    """Return the cursors of the topic whose name begins with ``new``: one ends with the topic's name."""
    return sorted(
        each.removesuffix(topic) + f"new-{topic}" if each.endswith(topic) else each for each in cursors
    )


def test_names_are_the_same_bytes_in_paths(servers: Servers) -> None:
    cluster, ours, pulsars = servers
    where = places(cluster)
    pulsars.start()
    known = nodes(cluster)
    for name in NAMES:
        worked(pulsars.service_url, name, range(EACH))
    pulsars.end()
    theirs = {
        topic: cursors
        for topic, cursors in nodes(cluster).items()
        if topic not in known and topic[:2] != "__"
    }
    assert len(theirs) == len(NAMES)

    taken = commands.take(ClusterPlace(*where), quiet)
    assert taken.is_possible, taken.findings
    ours.start()
    url = f"pulsar://127.0.0.1:{ours.pulsar}"
    for name in NAMES:
        rest_of(url, name, range(EACH // 2, EACH))
        worked(url, f"new-{name}", range(EACH))
    ours.end()
    made = {topic: cursors for topic, cursors in nodes(cluster).items() if topic.startswith("new")}
    assert made == {f"new-{topic}-partition-0": of_new(topic, cursors) for topic, cursors in theirs.items()}

    commands.back(ClusterPlace(*where), quiet)
    pulsars.start()
    for name in NAMES:
        rest_of(pulsars.service_url, name, range(EACH // 2 + EACH // 4, EACH))
        rest_of(pulsars.service_url, f"new-{name}", range(EACH // 2, EACH), "-partition-0")
    pulsars.end()
