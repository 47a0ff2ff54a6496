"""Topic compaction with Pulsar's own client: readers of what is compacted, message ids, TableView, the admin REST."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pulsar
import pytest

from tests.process import BrokerProcess
from tests.pulsar.conftest import connect, serving


@pytest.fixture(scope="module")
def pulsar_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = ("brokerServiceCompactionMonitorIntervalInSeconds=1", "log.cleaner.backoff.ms=200")
    with serving(tmp_path_factory.mktemp("compaction"), *settings) as process:
        yield process


def ask(broker: BrokerProcess, method: str, topic: str, path: str, body: object = None) -> Any:
    place = topic.replace("://", "/")
    request = urllib.request.Request(
        f"http://{broker.served['http'][0]}/admin/v2/{place}/{path}",
        None if body is None else json.dumps(body).encode(),
        {"Content-Type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(request) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def compact(broker: BrokerProcess, topic: str) -> None:
    while True:
        try:
            ask(broker, "PUT", topic, "compaction")
            break
        except urllib.error.HTTPError as error:
            if error.code != 409:  # one runs already
                raise
            time.sleep(0.05)
    wait_for_compaction(broker, topic)


def wait_for_compaction(broker: BrokerProcess, topic: str) -> None:
    while (found := ask(broker, "GET", topic, "compaction"))["status"] in ("RUNNING", "NOT_RUN"):
        time.sleep(0.05)
    assert found == {"status": "SUCCESS", "lastError": ""}


def read(
    client: pulsar.Client, topic: str, start: object = pulsar.MessageId.earliest, *, compacted: bool = True
):
    reader = client.create_reader(topic, start, is_read_compacted=compacted)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(10_000))
    reader.close()
    return found


def pairs(messages: list[pulsar.Message]) -> list[tuple[str, bytes]]:
    return [(message.partition_key(), message.data()) for message in messages]


@pytest.mark.parametrize("batching", [False, True])
def test_a_compacted_reader_gets_the_newest_of_each_key(
    pulsar_broker: BrokerProcess, client: pulsar.Client, topic: str, batching: bool
) -> None:
    producer = client.create_producer(topic, batching_enabled=batching, batching_max_publish_delay_ms=50)
    ids: dict[tuple[str, bytes], list[pulsar.MessageId]] = {}
    for number in range(20):
        key, value = f"k{number % 4}", b"v%d" % number
        producer.send_async(
            value,
            lambda result, where, what=(key, value): ids.setdefault(what, []).append(where),
            partition_key=key,
        )
    producer.flush()
    producer.send(b"", partition_key="k1")  # deletes
    compact(pulsar_broker, topic)
    assert pairs(read(client, topic)) == [("k0", b"v16"), ("k2", b"v18"), ("k3", b"v19")]
    assert len(read(client, topic, compacted=False)) == 21, "the history stays"
    for message in read(client, topic):
        (sent,) = ids[message.partition_key(), message.data()]
        got = message.message_id()
        assert (got.ledger_id(), got.entry_id(), got.batch_index()) == (
            sent.ledger_id(), sent.entry_id(), sent.batch_index(),
        )  # fmt: skip
    producer.send(b"new", partition_key="k2")
    assert pairs(read(client, topic)) == [("k0", b"v16"), ("k2", b"v18"), ("k3", b"v19"), ("k2", b"new")]
    compact(pulsar_broker, topic)
    assert pairs(read(client, topic)) == [("k0", b"v16"), ("k3", b"v19"), ("k2", b"new")]


def test_a_deletion_at_the_end_leaves_no_reader_waiting(
    pulsar_broker: BrokerProcess, client: pulsar.Client, topic: str
) -> None:
    producer = client.create_producer(topic)
    producer.send(b"1", partition_key="a")
    producer.send(b"", partition_key="a")
    compact(pulsar_broker, topic)
    assert read(client, topic) == []
    assert ask(pulsar_broker, "GET", topic, "internalStats")["compactedLedger"]["entries"] == 0


def test_a_subscription_goes_on_behind_what_it_acknowledged(
    pulsar_broker: BrokerProcess, client: pulsar.Client, topic: str
) -> None:
    producer = client.create_producer(topic)
    options = {"is_read_compacted": True, "initial_position": pulsar.InitialPosition.Earliest}
    client.subscribe(topic, "s", **options).close()
    for number in range(12):
        producer.send(b"%d" % number, partition_key=f"k{number % 5}")
    compact(pulsar_broker, topic)
    consumer = client.subscribe(topic, "s", **options)
    got = []
    for _ in range(5):
        message = consumer.receive(10_000)
        got.append(message.data())
        consumer.acknowledge(message)
    assert got == [b"7", b"8", b"9", b"10", b"11"]
    consumer.close()
    stats = ask(pulsar_broker, "GET", topic, "stats")
    while stats["subscriptions"]["s"]["msgBacklog"]:  # what was compacted away is nobody's to acknowledge
        stats = ask(pulsar_broker, "GET", topic, "stats")
    assert stats["compaction"]["lastCompactionRemovedEventCount"] == 7
    producer.send(b"12", partition_key="k0")
    consumer = client.subscribe(topic, "s", **options)
    assert consumer.receive(10_000).data() == b"12"
    consumer.seek(pulsar.MessageId.earliest)
    assert [consumer.receive(10_000).data() for _ in range(6)] == [b"7", b"8", b"9", b"10", b"11", b"12"]
    consumer.close()


def test_a_reader_begins_where_it_is_told(
    pulsar_broker: BrokerProcess, client: pulsar.Client, topic: str
) -> None:
    producer = client.create_producer(topic)
    ids = [producer.send(b"%d" % number, partition_key=f"k{number % 3}") for number in range(9)]
    compact(pulsar_broker, topic)
    assert [message.data() for message in read(client, topic, ids[2])] == [b"6", b"7", b"8"], "compacted away"
    assert [message.data() for message in read(client, topic, ids[6])] == [b"7", b"8"]
    assert read(client, topic, pulsar.MessageId.latest) == []


def test_only_one_consumer_may_read_what_is_compacted(client: pulsar.Client, topic: str) -> None:
    with pytest.raises(pulsar.PulsarException):
        client.subscribe(topic, "s", pulsar.ConsumerType.Shared, is_read_compacted=True)


def test_a_table_view_holds_the_newest_values(
    pulsar_broker: BrokerProcess, client: pulsar.Client, topic: str
) -> None:
    producer = client.create_producer(topic)
    for number in range(10):
        producer.send(b"v%d" % number, partition_key=f"k{number % 3}")
    producer.send(b"", partition_key="k0")
    compact(pulsar_broker, topic)
    view = client.create_table_view(topic)
    assert {key: view.get(key) for key in ("k0", "k1", "k2")} == {"k0": None, "k1": b"v7", "k2": b"v8"}
    producer.send(b"again", partition_key="k0")
    while view.get("k0") is None:
        time.sleep(0.01)
    assert (view.get("k0"), len(view)) == (b"again", 3)
    view.close()


def test_a_threshold_begins_it(pulsar_broker: BrokerProcess, client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    assert ask(pulsar_broker, "GET", topic, "compactionThreshold") is None
    ask(pulsar_broker, "POST", topic, "compactionThreshold", 500)
    assert ask(pulsar_broker, "GET", topic, "compactionThreshold") == 500
    for number in range(20):
        producer.send(b"%d" % number, partition_key="k")
    wait_for_compaction(pulsar_broker, topic)
    ask(pulsar_broker, "DELETE", topic, "compactionThreshold")
    while pairs(read(client, topic)) != [("k", b"19")]:  # it may have begun before the last was sent
        compact(pulsar_broker, topic)
    inside = ask(pulsar_broker, "GET", topic, "internalStats")
    assert inside["compactedLedger"]["entries"] == 1
    assert inside["cursors"]["__compaction"]["markDeletePosition"] == inside["lastConfirmedEntry"]


def test_messages_without_a_key_go(pulsar_broker: BrokerProcess, client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    producer.send(b"keyless")
    producer.send(b"1", partition_key="a")
    compact(pulsar_broker, topic)
    assert pairs(read(client, topic)) == [("a", b"1")]


@pytest.mark.slow
def test_what_is_compacted_is_there_after_a_crash(
    client: pulsar.Client, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("crash")
    topic = "persistent://public/default/crashed"
    with serving(home) as process:
        mine = connect(process)
        producer = mine.create_producer(topic)
        for number in range(10):
            producer.send(b"%d" % number, partition_key=f"k{number % 2}")
        compact(process, topic)
        process.kill()
        mine.close()
    with serving(home) as process:
        mine = connect(process)
        assert pairs(read(mine, topic)) == [("k0", b"8"), ("k1", b"9")]
        mine.close()
