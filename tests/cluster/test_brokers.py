"""Brokers of one cluster, each a process, with stock clients: what one leaves the others take."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka.admin import KafkaAdminClient

from tests.cli.operator import Operator
from tests.cluster.brokers import (
    PARTITIONS,
    BrokerProcess,
    Load,
    bootstrap,
    check,
    leaders,
    make_topic,
    until_shared,
)
from tests.cluster.rest import ask
from tests.cluster.servers import Cluster, class_path, free_port
from tests.transactions.copying import Copier, end, read_until, wait_for_more

class_path()  # skips the module where BookKeeper cannot be run
pytestmark = [pytest.mark.slow]


@pytest.fixture(scope="module")
def pair(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    directory = tmp_path_factory.mktemp("brokers")
    brokers = [BrokerProcess(cluster, directory, number) for number in (1, 2)]
    for each in brokers:
        each.start()
    yield brokers
    for each in brokers:
        each.end()


def test_all_see_one_cluster_and_share_its_partitions(pair: list[BrokerProcess]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap(pair)})
    make_topic(admin, "shared")
    until_shared(admin, "shared")
    seen = []
    for each in pair:
        alone = AdminClient({"bootstrap.servers": bootstrap([each])})
        metadata = alone.list_topics("shared", timeout=10)
        brokers = {(broker.id, broker.port) for broker in metadata.brokers.values()}
        seen.append((brokers, metadata.controller_id, leaders(alone, "shared")))
    assert seen[0] == seen[1]
    assert seen[0][0] == {(each.number, each.kafka) for each in pair}
    load = Load(bootstrap(pair[:1]), "shared")
    load.wait_for_more(2000)
    load.end()
    check(load, bootstrap(pair[1:]), "shared")


def test_pulsars_clients_are_led_to_the_owner_and_read_what_kafkas_wrote(pair: list[BrokerProcess]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap(pair)})
    make_topic(admin, "both")
    producer = Producer({"bootstrap.servers": bootstrap(pair)})
    for number in range(400):
        producer.produce("both", b"%d" % number, partition=number % PARTITIONS)
    producer.flush()
    for each in pair:
        client = pulsar.Client(
            f"pulsar://127.0.0.1:{each.pulsar}", logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        )
        consumer = client.subscribe(
            "both", f"through-{each.number}", initial_position=pulsar.InitialPosition.Earliest
        )
        found = {int(consumer.receive(30_000).data()) for _ in range(400)}
        assert found == set(range(400))
        client.close()


def test_what_was_made_through_one_broker_the_other_serves_at_once(pair: list[BrokerProcess]) -> None:
    """Metadata tell brokers of each other's topics soon; who asks before that is not told that there are none."""
    first, second = pair
    client = pulsar.Client(
        f"pulsar://127.0.0.1:{second.pulsar}", logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    unlike = []
    for number in range(200):
        topic = f"persistent://public/default/at-once-{number}"
        ask(first, "PUT", f"{topic.replace('://', '/')}/partitions", 3)
        told = client.get_topic_partitions(topic)
        if told != [f"{topic}-partition-{partition}" for partition in range(3)]:
            unlike.append(told)
    client.close()
    assert unlike == []


def filled(pair: list[BrokerProcess], topic: str, value: bytes) -> AdminClient:
    """Make a topic of which both brokers have partitions, with a record in each."""
    admin = AdminClient({"bootstrap.servers": bootstrap(pair)})
    make_topic(admin, topic)
    until_shared(admin, topic)
    producer = Producer({"bootstrap.servers": bootstrap(pair)})
    for number in range(PARTITIONS):
        producer.produce(topic, value, partition=number)
    assert producer.flush(60) == 0
    return admin


def test_each_broker_tells_the_sizes_of_what_it_has(pair: list[BrokerProcess]) -> None:
    admin = filled(pair, "sizes", bytes(10_000))
    by_kafka_python = KafkaAdminClient(bootstrap_servers=bootstrap(pair).split(","))
    led = leaders(admin, "sizes")
    told: dict[tuple[int, int], int] = {}
    for node in (each.number for each in pair):
        (answer,) = by_kafka_python.describe_log_dirs(["sizes"], brokers=[node])
        for topic in (topic for directory in answer["log_dirs"] for topic in directory["topics"]):
            sizes = {each["partition_index"]: each["partition_size"] for each in topic["partitions"]}
            told |= {(node, partition): size for partition, size in sizes.items()}
    assert sorted(told) == sorted((leader, partition) for partition, leader in led.items())
    assert min(told.values()) > 10_000


def test_what_a_killed_broker_owned_is_served_by_the_other(
    pair: list[BrokerProcess], record_property: pytest.RecordProperty
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap(pair)})
    make_topic(admin, "killed")
    until_shared(admin, "killed")
    load = Load(bootstrap(pair), "killed")
    load.wait_for_more(2000)
    load.longest_silence_s = 0.0
    pair[1].end(signal.SIGKILL)
    alone = AdminClient({"bootstrap.servers": bootstrap(pair[:1])})
    while set(leaders(alone, "killed").values()) != {1}:
        time.sleep(0.05)
    load.wait_for_more(4000)
    pair[1].start()
    until_shared(admin, "killed")
    load.wait_for_more(4000)
    load.end()
    record_property("longest silence s", round(load.longest_silence_s, 2))
    check(load, bootstrap(pair), "killed")


def test_a_broker_that_ends_in_order_hands_over(
    pair: list[BrokerProcess], record_property: pytest.RecordProperty
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap(pair)})
    make_topic(admin, "ended")
    until_shared(admin, "ended")
    load = Load(bootstrap(pair), "ended")
    load.wait_for_more(2000)
    load.longest_silence_s = 0.0
    pair[0].end()
    load.wait_for_more(4000)
    record_property("longest silence s", round(load.longest_silence_s, 2))
    pair[0].start()
    until_shared(admin, "ended")
    load.wait_for_more(4000)
    load.end()
    check(load, bootstrap(pair), "ended")


def test_a_broker_that_stood_still_for_longer_than_its_session_harms_nothing(
    pair: list[BrokerProcess],
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap(pair)})
    make_topic(admin, "paused")
    until_shared(admin, "paused")
    load = Load(bootstrap(pair), "paused")
    load.wait_for_more(2000)
    pair[1].send(signal.SIGSTOP)
    alone = AdminClient({"bootstrap.servers": bootstrap(pair[:1])})
    while set(leaders(alone, "paused").values()) != {1}:
        time.sleep(0.05)
    load.wait_for_more(2000)
    pair[1].send(signal.SIGCONT)
    load.wait_for_more(4000)
    until_shared(admin, "paused")
    load.wait_for_more(4000)
    load.end()
    check(load, bootstrap(pair), "paused")


def test_transactions_span_brokers_one_of_which_is_killed(
    pair: list[BrokerProcess], record_property: pytest.RecordProperty
) -> None:
    """Partitions, offsets and transactions are each coordinated by either broker, whoever has the partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap(pair)})
    for topic in ("transacted", "copied"):
        make_topic(admin, topic)
        until_shared(admin, topic)
    load = Load(bootstrap(pair), "transacted")
    copiers = [Copier(bootstrap(pair), "transacted", "copied", number) for number in range(3)]
    for each in copiers:
        each.start()
    load.wait_for_more(4000)
    wait_for_more(copiers, 20)
    pair[1].end(signal.SIGKILL)
    load.wait_for_more(4000)
    pair[1].start()
    until_shared(admin, "copied")
    load.wait_for_more(4000)
    load.end()
    assert load.failures == []
    found = read_until(bootstrap(pair), "copied", PARTITIONS, load.count(), copiers)
    end(copiers)
    record_property("committed", sum(each.committed for each in copiers))
    record_property("aborted", sum(each.aborted for each in copiers))
    record_property("errors", [each.errors for each in copiers])
    assert [[int(value) for value in each] for each in found] == load.acknowledged
    assert sum(each.aborted for each in copiers) > 0  # one may have got no part, or hung


def test_a_second_broker_of_the_same_number_says_so(
    pair: list[BrokerProcess], cluster: Cluster, tmp_path: Path
) -> None:
    twin = BrokerProcess(cluster, tmp_path, 1)
    process = twin.begin()
    assert process.wait() == 1
    assert "another broker of cluster house has the number 1" in twin.log.read_text()


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("cluster.name=other", "holds the metadata of cluster house, not of 'other'"),
        (
            "bookkeeper.jars=/nowhere",
            "BookKeeper's jars are not in /nowhere: run `magnetar bookkeeper install`",
        ),
        ("bookkeeper.ack.quorum=3", "none may be larger than the one before"),
        ("metadata.url=zk:host", "'host' is not HOST:PORT"),
    ],
)
def test_what_cannot_be_is_said(
    pair: list[BrokerProcess], cluster: Cluster, tmp_path: Path, setting: str, said: str
) -> None:
    broker = BrokerProcess(cluster, tmp_path, 3, setting)
    assert broker.begin().wait() == 1
    assert said in broker.log.read_text()


def asked(cluster: Cluster, command: str) -> dict[str, Any]:
    """Return what ``magnetar cluster`` says of the cluster to a program."""
    magnetar = str(Path(sys.executable).parent / "magnetar")
    where = [
        "--metadata",
        f"zk:{cluster.hosts}/house",
        "--bookkeeper",
        f"zk+hierarchical://{cluster.hosts}/ledgers",
    ]
    done = subprocess.run([magnetar, "cluster", command, *where, "--json"], capture_output=True, text=True)
    assert done.stdout, done.stderr
    return dict(json.loads(done.stdout))


def kinds(cluster: Cluster) -> set[str]:
    return {each["kind"] for each in asked(cluster, "doctor")["findings"]} - {"unowned"}


def test_the_status_says_what_kafkas_metadata_say(pair: list[BrokerProcess], cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap(pair)})
    make_topic(admin, "status")
    until_shared(admin, "status")
    found = asked(cluster, "status")
    assert found["names"] == ["house"]
    metadata = admin.list_topics("status", timeout=10)
    assert [each["node_id"] for each in found["brokers"] if each["is_controller"]] == [metadata.controller_id]
    assert {each["node_id"] for each in found["brokers"]} == {each.number for each in pair}
    for each in found["brokers"]:
        (kafka,) = [at["address"] for at in each["endpoints"] if at["listener"] == "PLAINTEXT"]
        assert kafka == f"127.0.0.1:{metadata.brokers[each['node_id']].port}"
        assert each["bundles"] == sum(bundle["owner"] == each["node_id"] for bundle in found["bundles"]) > 0
        assert abs(each["clock_ms"]) < 2000
        assert each["quorums"] == {"ensemble": 2, "writeQuorum": 2, "ackQuorum": 2}
    assert [each["state"] for each in found["bookies"]] == ["writable"] * 3
    assert [each["mode"] for each in found["zookeeper"]] == ["standalone"]
    assert kinds(cluster) == set()


def test_why_asks_the_broker_that_knows(pair: list[BrokerProcess]) -> None:
    """Whichever is named: only a partition's owner knows it, and only a group's coordinator the group."""
    led = leaders(filled(pair, "why", b"x"), "why")
    consumer = Consumer({"bootstrap.servers": bootstrap(pair), "group.id": "why-group"})
    consumer.commit(
        offsets=[TopicPartition("why", each, 1) for each in range(PARTITIONS)], asynchronous=False
    )
    for broker in pair:
        operator = Operator(bootstrap([broker]))
        for partition in range(PARTITIONS):
            assert operator.run("why", f"why-{partition}", "--json").value["reason"] in ("moving", "idle")
            (ledger,) = operator.run("ledger", "list", f"why-{partition}", "--json").value["ledgers"]
            assert ledger["last_offset"] == 0
        told = operator.run("why", "group", "why-group", "--json").value
        assert told["reason"] in ("elsewhere", "no-members"), "by how long ago the commit was"
        home = {node for each, node in led.items() if "of broker" not in told["facts"][f"why-{each}"]}
        assert len(home) == 1, "only of its own partitions the coordinator knows more"
        for each, node in led.items():
            assert node in home or f"committed 1 of broker {node}," in told["facts"][f"why-{each}"]
    consumer.close()


def test_the_doctor_sees_lost_bookies_and_a_broker_that_tells_nonsense(
    pair: list[BrokerProcess], cluster: Cluster
) -> None:
    from kazoo.client import KazooClient

    twin = {
        "nodeId": 1,
        "endpoints": {"PLAINTEXT": ["127.0.0.1", free_port()]},
        "brokerVersionString": "0.0.1",
        "lastUpdate": int(time.time() * 1000) - 60_000,
    }
    zookeeper = KazooClient(cluster.hosts)
    zookeeper.start(60)
    zookeeper.create("/house/loadbalance/brokers/twin:1", json.dumps(twin).encode(), ephemeral=True)
    assert kinds(cluster) == {"broker-id", "unreachable", "versions", "clock"}
    zookeeper.stop()
    cluster.bookies[0].kill()
    while "bookie-lost" not in kinds(cluster):  # ZooKeeper keeps its session for a while
        time.sleep(0.2)
    assert {"bookie-lost", "bookies-spare"} <= kinds(cluster)
    cluster.bookies[0].start()
    while kinds(cluster) - {"under-replicated"}:
        time.sleep(0.2)


def test_too_few_bookies_are_an_error_that_is_tried_again(
    pair: list[BrokerProcess], cluster: Cluster
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap(pair)})
    make_topic(admin, "few")
    load = Load(bootstrap(pair), "few")
    load.wait_for_more(1000)
    for each in cluster.bookies[:2]:
        each.kill()
    time.sleep(3)
    for each in cluster.bookies[:2]:
        each.start()
    load.wait_for_more(2000)
    load.end()
    check(load, bootstrap(pair), "few")


def test_a_file_that_names_no_cluster_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("clusterName=c\n")
    magnetar = str(Path(sys.executable).parent / "magnetar")
    done = subprocess.run([magnetar, "broker", "--config", str(config)], capture_output=True, text=True)
    assert done.returncode == 2
    assert "metadataStoreUrl=zk:HOST:PORT/PATH" in done.stderr
