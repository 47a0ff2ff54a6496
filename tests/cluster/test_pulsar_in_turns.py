"""A real broker of Pulsar's and ours, one after the other on the same bookies: each opens what the other left.

Topics are served by one of the two at a time: the one ends, the other begins.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pulsar
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.records.entry import Entry, decode_entry
from tests.cluster.brokers import BrokerProcess, bootstrap
from tests.cluster.pulsar_broker import INDEXED, PulsarBroker, release
from tests.cluster.rest import ask
from tests.cluster.servers import Cluster, class_path
from tests.pulsar.raw import Raw, flow, frame, hello, subscribe

class_path()  # skips the module where BookKeeper cannot be run
pytestmark = [pytest.mark.slow]
PARTITIONS = 4
EACH = 1000
SINGLE = 400
CODECS = {
    "none": pulsar.CompressionType.NONE,
    "lz4": pulsar.CompressionType.LZ4,
    "zlib": pulsar.CompressionType.ZLib,
    "zstd": pulsar.CompressionType.ZSTD,
    "snappy": pulsar.CompressionType.SNAPPY,
}
TOPIC = "persistent://public/default/{}"
PATIENCE_MS = 60_000
KEPT = {"retentionTimeInMinutes": 600, "retentionSizeInMB": 512}


class Servers(NamedTuple):
    cluster: Cluster
    ours: BrokerProcess
    pulsars: PulsarBroker


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    release()
    cluster = Cluster(tmp_path / "cluster", bookies=2)
    ours = BrokerProcess(cluster, tmp_path, 1)
    pulsars = PulsarBroker(cluster, tmp_path, **INDEXED)
    try:
        cluster.start()
        yield Servers(cluster, ours, pulsars)
    finally:
        pulsars.end()
        ours.end()
        cluster.kill()


class Message(NamedTuple):
    """What a reader is to find of one."""

    value: bytes
    key: str
    properties: dict[str, str]


def message(who: str, number: int) -> Message:
    body = f"{who} {number} ".encode() * 8
    return Message(body, f"{who}-{number % 97}", {"who": who, "number": str(number)})


def send_all(url: str, topic: str, who: str, *, batched: bool = True) -> dict[bytes, Message]:
    """Send in each of Pulsar's codecs; return what was acknowledged."""
    sent: dict[bytes, Message] = {}
    failed: list[Any] = []
    client = pulsar.Client(url)
    for codec, compression in CODECS.items():
        producer = client.create_producer(
            TOPIC.format(topic),
            compression_type=compression,
            batching_enabled=batched,
            batching_max_publish_delay_ms=5,
            block_if_queue_full=True,
        )
        for number in range(EACH if batched else SINGLE):
            made = message(f"{who}-{codec}", number)
            sent[made.value] = made

            def done(result: pulsar.Result, _: object) -> None:
                if result != pulsar.Result.Ok:
                    failed.append(result)

            producer.send_async(made.value, done, partition_key=made.key, properties=made.properties)
        producer.flush()
        producer.close()
    client.close()
    assert not failed
    return sent


def read_all(url: str, topic: str, wanted: dict[bytes, Message]) -> None:
    """A stock client gets every message once, whole, each key's in the order in which they were sent."""
    client = pulsar.Client(url)
    consumer = client.subscribe(
        TOPIC.format(topic), f"reader-of-{url}", initial_position=pulsar.InitialPosition.Earliest
    )
    found = [consumer.receive(PATIENCE_MS) for _ in wanted]
    client.close()
    got = {each.data(): Message(each.data(), each.partition_key(), each.properties()) for each in found}
    assert got == wanted
    latest: dict[str, int] = {}
    for each in found:
        number = int(each.properties()["number"])
        assert latest.get(each.partition_key(), -1) < number
        latest[each.partition_key()] = number


def half_acknowledged(url: str, topic: str, name: str, sent: int) -> int:
    """Acknowledge a third of a subscription's messages one by one; return how many."""
    client = pulsar.Client(url)
    consumer = subscription(client, topic, name)
    acknowledged = 0
    for _ in range(sent):
        each = consumer.receive(PATIENCE_MS)
        if int(each.properties()["number"]) % 3 == 0:
            consumer.acknowledge(each)
            acknowledged += 1
    client.close()
    return acknowledged


def subscription(client: pulsar.Client, topic: str, name: str) -> pulsar.Consumer:
    return client.subscribe(
        TOPIC.format(topic),
        name,
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
        batch_index_ack_enabled=True,
        negative_ack_redelivery_delay_ms=100,
    )


def gets_the_rest(url: str, topic: str, name: str, wanted: dict[bytes, Message], acknowledged: int) -> None:
    """Who goes on with the subscription gets what was not acknowledged, and nothing else."""
    client = pulsar.Client(url)
    consumer = subscription(client, topic, name)
    found = [consumer.receive(PATIENCE_MS).data() for _ in range(len(wanted) - acknowledged)]
    with pytest.raises(pulsar.Timeout):
        consumer.receive(1000)
    client.close()
    assert sorted(found) == sorted(
        each.value for each in wanted.values() if int(each.properties["number"]) % 3 != 0
    )


def entries_of(broker: PulsarBroker, topic: str, messages: int) -> list[Entry]:
    """Return a partition's entries as Pulsar's broker sends them, with what it notes of each (PIP-90)."""
    address = SimpleNamespace(served={"pulsar": [f"127.0.0.1:{broker.pulsar}"]})
    found: list[Entry] = []
    broker.ask("GET", f"persistent/public/default/{topic}/internalStats")  # has the topic be opened
    with Raw(address, connect=False) as raw:  # type: ignore[arg-type]
        raw.patience(PATIENCE_MS / 1000)
        greeting = hello()
        greeting.connect.feature_flags.supports_broker_entry_metadata = True
        raw.ask(greeting)
        asked = subscribe(TOPIC.format(topic), "raw", durable=False)
        asked.subscribe.start_message_id.ledgerId = asked.subscribe.start_message_id.entryId = -1 & (
            2**64 - 1
        )
        assert raw.ask(asked).type == asked.SUCCESS
        raw.send(frame(flow(10 * messages)))
        seen = 0
        while seen < messages:
            command, data = raw.hear()
            if command.type == command.MESSAGE:
                found.append(decode_entry(data))
                seen += found[-1].message.num_messages_in_batch
    return found


def has_one_index(broker: PulsarBroker, topic: str, partitions: dict[int, int]) -> None:
    """In each partition Pulsar finds one index that counts messages, from 0 on and without a hole."""
    for partition, messages in partitions.items():
        expected = 0
        for each in entries_of(broker, f"{topic}-partition-{partition}", messages):
            assert each.base_offset == expected
            expected = each.broker.index + 1
        assert expected == messages


def offsets(ours: BrokerProcess, topic: str) -> dict[int, int]:
    """Return where each partition ends for Kafka's clients."""
    consumer = Consumer({"bootstrap.servers": bootstrap([ours]), "group.id": "ends"})
    ends = {
        number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=60)
        for number in range(PARTITIONS)
    }
    consumer.close()
    assert all(low == 0 for low, _ in ends.values())
    return {number: high for number, (_, high) in ends.items()}


def kafka_reads(ours: BrokerProcess, topic: str, wanted: dict[bytes, Message]) -> None:
    """A stock consumer of Kafka's gets every message once, with all offsets from 0 on."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap([ours]), "group.id": "g", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: dict[bytes, Message] = {}
    next_offset = dict.fromkeys(range(PARTITIONS), 0)
    while len(found) < len(wanted):
        for each in consumer.consume(1000, 1):
            assert not each.error()
            assert each.offset() == next_offset[each.partition()]
            next_offset[each.partition()] += 1
            headers = {name: value.decode() for name, value in each.headers() or ()}
            found[each.value()] = Message(each.value(), (each.key() or b"").decode(), headers)
    consumer.close()
    assert found == wanted
    assert next_offset == offsets(ours, topic)


def magnetar(*arguments: str) -> Any:
    """Run one of our commands and return its JSON."""
    command = [str(Path(sys.executable).parent / "magnetar"), *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def produce_as_kafka(ours: BrokerProcess, topic: str, who: str) -> dict[bytes, Message]:
    """Write as a stock producer of Kafka's."""
    producer = Producer({"bootstrap.servers": bootstrap([ours]), "compression.type": "lz4", "linger.ms": 5})
    sent = {}
    for number in range(EACH):
        made = message(who, number)
        sent[made.value] = made
        producer.produce(topic, made.value, key=made.key, headers=list(made.properties.items()))
        producer.poll(0)
    assert producer.flush(60) == 0
    return sent


def test_a_pulsar_broker_opens_what_we_wrote(servers: Servers) -> None:
    ours, pulsars = servers.ours, servers.pulsars
    ours.start()
    url = f"pulsar://127.0.0.1:{ours.pulsar}"
    admin = AdminClient({"bootstrap.servers": bootstrap([ours])})
    topics = [NewTopic(name, PARTITIONS, config={"entry.format": "pulsar"}) for name in ("both", "single")]
    for made in admin.create_topics(topics).values():
        made.result()
    ask(ours, "POST", "namespaces/public/default/messageTTL", 86_400)
    ask(ours, "POST", "namespaces/public/default/retention", KEPT)
    wanted = send_all(url, "both", "ours") | produce_as_kafka(ours, "both", "kafka")
    single = send_all(url, "single", "ours", batched=False)
    acknowledged = half_acknowledged(url, "single", "half", len(single))
    ends, singles = offsets(ours, "both"), offsets(ours, "single")
    assert sum(ends.values()) == len(wanted) == (len(CODECS) + 1) * EACH
    ours.end()

    pulsars.start()
    assert {TOPIC.format("both"), TOPIC.format("single")} <= set(
        pulsars.ask("GET", "persistent/public/default/partitioned")
    )
    assert pulsars.ask("GET", "namespaces/public/default/messageTTL") == 86_400
    found = pulsars.ask("GET", "namespaces/public/default/retention")
    assert {name: found[name] for name in KEPT} == KEPT
    has_one_index(pulsars, "both", ends)
    read_all(pulsars.service_url, "both", wanted)
    gets_the_rest(pulsars.service_url, "single", "half", single, acknowledged)
    wanted |= send_all(pulsars.service_url, "both", "pulsars")
    inside = json.loads(pulsars.admin("topics", "stats-internal", TOPIC.format("single-partition-0")))
    assert "half" in inside["cursors"]
    assert inside["numberOfEntries"] == singles[0]
    seen = magnetar("cluster", "status", "--metadata", f"zk:{servers.cluster.hosts}/house")
    assert [each["node_id"] for each in seen["brokers"]] == [-1]
    pulsars.end()

    ours.start()
    kafka_reads(ours, "both", wanted)
    read_all(url, "both", wanted)


def test_we_open_what_a_pulsar_broker_wrote(servers: Servers) -> None:
    ours, pulsars = servers.ours, servers.pulsars
    pulsars.prepare()
    pulsars.start()
    for name in ("both", "single"):
        pulsars.ask("PUT", f"persistent/public/default/{name}/partitions", PARTITIONS)
    pulsars.ask("POST", "namespaces/public/default/messageTTL", 86_400)
    pulsars.ask("POST", "namespaces/public/default/retention", KEPT)
    wanted = send_all(pulsars.service_url, "both", "pulsars")
    single = send_all(pulsars.service_url, "single", "pulsars", batched=False)
    in_batches = half_acknowledged(pulsars.service_url, "both", "half", len(wanted))
    one_by_one = half_acknowledged(pulsars.service_url, "single", "half", len(single))
    pulsars.end()

    ours.start()
    url = f"pulsar://127.0.0.1:{ours.pulsar}"
    assert ask(ours, "GET", "namespaces/public/default/messageTTL") == 86_400
    assert ask(ours, "GET", "namespaces/public/default/retention") == KEPT
    kafka_reads(ours, "both", wanted)
    read_all(url, "both", wanted)
    gets_the_rest(url, "both", "half", wanted, in_batches)
    gets_the_rest(url, "single", "half", single, one_by_one)
    wanted |= send_all(url, "both", "ours")
    ends = offsets(ours, "both")
    ours.end()

    pulsars.start()
    has_one_index(pulsars, "both", ends)
    read_all(pulsars.service_url, "both", wanted)
