"""Pulsar's consumers of a topic that Kafka's producers write transactions to: committed ones whole, nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pulsar
import pytest

from tests.process import BrokerProcess
from tests.transactions.clients import in_transaction, make_topic, producer

TRANSACTIONS, RECORDS = 60, 30
NAMES = (f"pulsar-{number}" for number in count())
SOON_MS, LONG_MS = 300, 60_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    options = "--pulsar", "127.0.0.1:0"
    with BrokerProcess(tmp_path_factory.mktemp("transactions") / "data", *options) as process:
        yield process


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[pulsar.Client]:
    made = pulsar.Client(broker.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield made
    made.close()


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    return make_topic(broker.address, next(NAMES))


def subscribed(
    client: pulsar.Client, topic: str, kind: object = pulsar.ConsumerType.Exclusive
) -> pulsar.Consumer:
    return client.subscribe(
        f"{topic}-partition-0", "s", consumer_type=kind, initial_position=pulsar.InitialPosition.Earliest
    )


def received(consumer: pulsar.Consumer, timeout_ms: int = LONG_MS) -> bytes | None:
    try:
        message = consumer.receive(timeout_ms)
    except pulsar.Timeout:
        return None
    consumer.acknowledge(message)
    return bytes(message.data())


def test_what_is_open_comes_when_it_is_committed_and_never_if_it_is_aborted(
    broker: BrokerProcess, client: pulsar.Client, topic: str
) -> None:
    consumer = subscribed(client, topic)
    made, other = (producer(broker.address, f"{topic}-{each}") for each in "ab")
    made.begin_transaction()
    made.produce(topic, b"open", partition=0)
    assert made.flush(60) == 0
    in_transaction(other, topic, [b"behind"])
    assert received(consumer, SOON_MS) is None
    made.commit_transaction(60)
    assert [received(consumer), received(consumer)] == [b"open", b"behind"]
    in_transaction(made, topic, [b"aborted"], commit=False)
    in_transaction(made, topic, [b"last"])
    assert received(consumer) == b"last"


@pytest.mark.parametrize("kind", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Shared])
def test_a_consumer_gets_exactly_what_was_committed(
    broker: BrokerProcess, client: pulsar.Client, topic: str, kind: object
) -> None:
    made = producer(broker.address, f"{topic}-id")
    committed = []
    for number in range(TRANSACTIONS):
        values = [b"%d:%d" % (number, each) for each in range(RECORDS)]
        in_transaction(made, topic, values, commit=number % 3 != 2)
        committed += values if number % 3 != 2 else []
    consumer = subscribed(client, topic, kind)
    found = [received(consumer) for _ in committed]
    assert found == committed
    assert received(consumer, SOON_MS) is None


def test_a_reader_has_read_all_when_only_markers_and_aborted_messages_are_left(
    broker: BrokerProcess, client: pulsar.Client, topic: str
) -> None:
    made = producer(broker.address, f"{topic}-id")
    in_transaction(made, topic, [b"a", b"b"])
    for _ in range(3):
        in_transaction(made, topic, [b"x"], commit=False)
    reader = client.create_reader(f"{topic}-partition-0", pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(bytes(reader.read_next(LONG_MS).data()))
    assert found == [b"a", b"b"]


@pytest.mark.slow
def test_a_broker_that_begins_with_pulsars_clients_knows_what_was_aborted(tmp_path: object) -> None:
    data = tmp_path / "data"  # type: ignore[operator]
    with BrokerProcess(data, "--pulsar", "127.0.0.1:0") as process:
        topic = make_topic(process.address, "kept")
        made = producer(process.address, "kept-id")
        in_transaction(made, topic, [b"a"])
        in_transaction(made, topic, [b"x"], commit=False)
        in_transaction(made, topic, [b"b"])
        made.begin_transaction()
        made.produce(topic, b"open", partition=0)
        assert made.flush(60) == 0
        process.kill()
    with BrokerProcess(data, "--pulsar", "127.0.0.1:0") as process:
        client = pulsar.Client(process.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        consumer = subscribed(client, topic)
        assert [received(consumer), received(consumer)] == [b"a", b"b"]
        assert received(consumer, SOON_MS) is None
        producer(process.address, "kept-id")  # aborts what the one of before had open
        in_transaction(producer(process.address, "other"), topic, [b"c"])
        assert received(consumer) == b"c"
        client.close()
