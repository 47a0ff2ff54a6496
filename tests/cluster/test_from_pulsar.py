"""``magnetar migrate from-pulsar``: a cluster of a real broker of Pulsar's is served here, and by Pulsar's again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pulsar
import pytest
from confluent_kafka import Consumer, TopicPartition

from magnetar.admin.errors import Declined
from magnetar.doctor.cluster_doctor import Severity
from magnetar.migrate.pulsar_schema_ledgers import decode_locator, hash_of
from magnetar.pulsar.schemas import decode_versions
from tests.cluster.brokers import BrokerProcess, bootstrap
from tests.cluster.pulsar_broker import INDEXED, PulsarBroker, release
from tests.cluster.rest import ask
from tests.cluster.servers import Cluster, class_path

class_path()  # skips the module where BookKeeper cannot be run
from kazoo.client import KazooClient  # noqa: E402

from magnetar.doctor.ledgers_cluster import ClusterPlace  # noqa: E402
from magnetar.migrate import from_pulsar_commands as commands  # noqa: E402

pytestmark = [pytest.mark.slow]
TOPIC = "persistent://public/default/{}"
MANY = 3000
PATIENCE_MS = 60_000


def row(*more: str) -> dict[str, Any]:
    """Return a version of one record; what is added has a default."""
    added = [{"name": each, "type": "string", "default": ""} for each in more]
    fields = [{"name": "name", "type": "string"}, {"name": "number", "type": "int"}, *added]
    return {"type": "record", "name": "Row", "fields": fields}


FIRST, SECOND, THIRD = row(), row("more"), row("more", "yet")


class Servers(NamedTuple):
    cluster: Cluster
    ours: BrokerProcess
    pulsars: PulsarBroker
    plain: PulsarBroker
    """As released: it writes no index."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    release()
    directory = tmp_path_factory.mktemp("from-pulsar")
    cluster = Cluster(directory / "cluster", bookies=2)
    ours = BrokerProcess(cluster, directory, 1)
    pulsars = PulsarBroker(cluster, directory, **INDEXED)
    plain = PulsarBroker(cluster, directory, acknowledgmentAtBatchIndexLevelEnabled="true")
    try:
        cluster.start()
        yield Servers(cluster, ours, pulsars, plain)
    finally:
        plain.end()
        pulsars.end()
        ours.end()
        cluster.kill()


def migrate(*arguments: str, status: int = 0) -> dict[str, Any]:
    """Run the command as people do; return its JSON, or the error's."""
    magnetar = Path(sys.executable).parent / "magnetar"
    command = [str(magnetar), "migrate", "from-pulsar", "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == status, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout or done.stderr)
    return found


def places(cluster: Cluster) -> tuple[str, str]:
    """Return where metadata and bookies are, as Pulsar's settings have it."""
    return f"zk:{cluster.hosts}/house", f"zk+hierarchical://{cluster.hosts}/ledgers"


def quiet(done: int, steps: int) -> None:
    assert done <= steps


def send(url: str, topic: str, kind: dict[str, Any], numbers: range) -> None:
    client = pulsar.Client(url)
    producer = client.create_producer(
        TOPIC.format(topic),
        schema=pulsar.schema.AvroSchema(None, schema_definition=kind),
        batching_enabled=True,
        block_if_queue_full=True,
    )
    extra = {each["name"]: "x" for each in kind["fields"][2:]}
    failed: list[Any] = []
    for number in numbers:
        producer.send_async(
            {"name": f"n{number}", "number": number, **extra},
            lambda result, _: failed.append(result) if result != pulsar.Result.Ok else None,
        )
    producer.flush()
    client.close()
    assert not failed


def subscribed(client: pulsar.Client, topic: str) -> pulsar.Consumer:
    return client.subscribe(
        TOPIC.format(topic),
        "half",
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
        schema=pulsar.schema.AvroSchema(None, schema_definition=FIRST),
        batch_index_ack_enabled=True,
    )


def received(url: str, topic: str, count: int, *, acknowledged: range) -> list[int]:
    """Receive so many of a subscription, acknowledge some of them, and see that there are no more."""
    client = pulsar.Client(url)
    consumer = subscribed(client, topic)
    found = []
    for _ in range(count):
        each = consumer.receive(PATIENCE_MS)
        found.append(each.value()["number"])
        if each.value()["number"] in acknowledged:
            consumer.acknowledge(each)
    with pytest.raises(pulsar.Timeout):
        consumer.receive(500)
    client.close()
    return sorted(found)


def kafkas(ours: BrokerProcess, topic: str, count: int) -> list[int]:
    """Return the offsets that a stock consumer of Kafka's finds."""
    consumer = Consumer({"bootstrap.servers": bootstrap([ours]), "group.id": "g"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []
    while len(found) < count:
        for each in consumer.consume(1000, 1):
            assert not each.error()
            found.append(each.offset())
    consumer.close()
    return found


def schemas(broker: Any, topic: str) -> list[tuple[int, str, str]]:
    """Return versions, kinds and definitions that a broker tells of."""
    path = f"schemas/public/default/{topic}/schemas"
    found = broker.ask("GET", path) if isinstance(broker, PulsarBroker) else ask(broker, "GET", path)
    return [(each["version"], each["type"], each["data"]) for each in found["getSchemaResponses"]]


def assert_hashes_are_pulsars(cluster: Cluster, topic: str) -> None:
    """What versions that are made here would be known by is what Pulsar gave its own."""
    zookeeper = KazooClient(f"{cluster.hosts}/house")
    zookeeper.start()
    kept, _ = zookeeper.get(f"/magnetar/from-pulsar/schemas/public/default/{topic}")
    taken, _ = zookeeper.get(f"/schemas/public/default/{topic}")
    zookeeper.stop()
    zookeeper.close()
    places, versions = decode_locator(kept, topic), decode_versions(topic, taken)
    assert [each.hash for each in places] == [hash_of(each) for each in versions]


def test_a_cluster_of_pulsars_is_taken_over_and_given_back(servers: Servers) -> None:
    cluster, ours, pulsars, plain = servers
    where = places(cluster)
    pulsars.prepare()
    pulsars.start()
    pulsars.ask("PUT", "persistent/public/default/many/partitions", 2)
    send(pulsars.service_url, "single", FIRST, range(MANY))
    send(pulsars.service_url, "single", SECOND, range(MANY, 2 * MANY))
    send(pulsars.service_url, "many", FIRST, range(10))
    everything = list(range(2 * MANY))
    thirds = range(0, 2 * MANY, 3)
    assert received(pulsars.service_url, "single", 2 * MANY, acknowledged=thirds) == everything
    versions = schemas(pulsars, "single")
    assert len(versions) == 2

    # While Pulsar serves, nobody is fenced, and nothing taken.
    found = migrate("--check", "--metadata", where[0], "--bookkeeper", where[1])
    states = {each["topic"].rpartition("/")[2]: each["state"] for each in found["topics"]}
    assert states["single"] == "to be moved"
    assert states["many-partition-0"] == "served"
    assert found["is_possible"]
    assert found["schemas_of_pulsar"] == 2
    with pytest.raises(Declined, match="live"):
        commands.take(ClusterPlace(*where), quiet)
    send(pulsars.service_url, "single", SECOND, range(2 * MANY, 2 * MANY + 10))
    pulsars.end()

    taken = commands.take(ClusterPlace(*where), quiet)
    assert (taken.is_possible, taken.topics_moved, taken.schemas_moved) == (True, 1, 2)
    again = commands.take(ClusterPlace(*where), quiet)
    assert (again.is_possible, again.topics_moved, again.schemas_moved) == (True, 0, 0)
    ours.start()
    url = f"pulsar://127.0.0.1:{ours.pulsar}"
    assert schemas(ours, "single") == versions
    assert kafkas(ours, "single", 2 * MANY + 10) == list(range(2 * MANY + 10))
    assert_hashes_are_pulsars(cluster, "single")
    left = [*(each for each in everything if each not in thirds), *range(2 * MANY, 2 * MANY + 10)]
    fifths = range(1, 2 * MANY, 5)
    assert received(url, "single", len(left), acknowledged=fifths) == left
    send(url, "single", THIRD, range(2 * MANY + 10, 3 * MANY))
    send(url, "new", FIRST, range(10))
    versions = schemas(ours, "single")
    assert len(versions) == 3
    with pytest.raises(Declined, match="live"):
        commands.back(ClusterPlace(*where), quiet)
    ours.end()

    given = commands.back(ClusterPlace(*where), quiet)
    assert (given.topics_moved, given.schemas_moved, given.cursors_moved) == (1, 3, 1)
    again = commands.back(ClusterPlace(*where), quiet)
    assert (again.topics_moved, again.schemas_moved, again.cursors_moved) == (0, 0, 0)
    plain.start()
    assert schemas(plain, "single") == versions
    assert plain.ask("GET", "persistent/public/default/single/partitions")["partitions"] == 0
    left = [each for each in left if each not in fifths] + list(range(2 * MANY + 10, 3 * MANY))
    assert received(plain.service_url, "single", len(left), acknowledged=range(0)) == left
    send(plain.service_url, "single", THIRD, range(1))  # a schema that was made here is known there
    assert schemas(plain, "single") == versions
    assert len(schemas(plain, "new")) == 1
    plain.end()

    # That broker wrote no index: what it wrote cannot be given offsets, and nothing is changed.
    refused = commands.take(ClusterPlace(*where), quiet)
    assert (refused.is_possible, refused.topics_moved, refused.schemas_moved) == (False, 0, 0)
    assert {each.kind for each in refused.findings if each.severity is Severity.error} == {"no-index"}
    assert {each.topic: each.state for each in refused.topics}["public/default/single"] == "blocked"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--check", "--metadata", "etcd:http://127.0.0.1:2379"], "etcd"),
        (["--check", "--metadata", "zk:nowhere"], "HOST:PORT"),
        (["--metadata", "zk:127.0.0.1:1/house"], "one of --check, --take and --back"),
        (["--take", "--back", "--metadata", "zk:127.0.0.1:1/house"], "one of --check, --take and --back"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: list[str], words: str) -> None:
    assert words in migrate(*arguments, status=2)["error"]["message"]
