"""Topics that were ended: nothing more comes in, by whatever protocol, and what is there is read to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pulsar
import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import KafkaError
from confluent_kafka import Producer as KafkaProducer
from pulsar import ConsumerType, InitialPosition

from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand, CommandAck, CommandSubscribe, ServerError
from tests.process import BrokerProcess
from tests.pulsar import raw
from tests.pulsar.conftest import PULSAR, connect, serving

WAIT_MS = 20_000
ROOT = "/admin/v2/persistent/public/default"


@pytest.fixture(scope="module")
def pulsar_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with serving(tmp_path_factory.mktemp("ended")) as process:
        yield process


@pytest.fixture
def http(pulsar_broker: BrokerProcess) -> Iterator[httpx.Client]:
    with admin(pulsar_broker) as made:
        yield made


def admin(broker: BrokerProcess) -> httpx.Client:
    return httpx.Client(base_url=f"http://{broker.served['http'][0]}", timeout=30)


def path_of(topic: str) -> str:
    return f"{ROOT}/{topic.rpartition('/')[2]}"


def test_producers_are_refused_and_all_is_read(client: pulsar.Client, http: httpx.Client, topic: str) -> None:
    producer = client.create_producer(topic, batching_enabled=False, send_timeout_millis=WAIT_MS)
    sent = [producer.send(b"%d" % number) for number in range(3)]
    ended = http.post(f"{path_of(topic)}/terminate")
    last = {"ledgerId": sent[-1].ledger_id(), "entryId": 2, "partitionIndex": -1}
    assert ended.json() == last | {"batchIndex": -1, "batchSize": 0}
    assert http.post(f"{path_of(topic)}/terminate").json() == ended.json(), "once more changes nothing"
    with pytest.raises(pulsar.PulsarException, match="TopicTerminated"):
        producer.send(b"late")
    with pytest.raises(pulsar.PulsarException, match="TopicTerminated"):
        client.create_producer(topic)
    consumer = client.subscribe(topic, "s", initial_position=InitialPosition.Earliest)
    assert [consumer.receive(WAIT_MS).data() for _ in range(3)] == [b"0", b"1", b"2"]
    assert http.get(f"{path_of(topic)}/internalStats").json()["state"] == "Terminated"


@pytest.mark.parametrize("kind", [CommandSubscribe.Exclusive, CommandSubscribe.Shared])
def test_consumers_are_told_when_they_have_had_everything(
    pulsar_broker: BrokerProcess, http: httpx.Client, topic: str, kind: int
) -> None:
    with raw.Raw(pulsar_broker) as client:
        client.ask(raw.producer(topic))
        client.ask(raw.subscribe(topic, subType=kind))
        receipts = [client.ask(raw.send(sequence_id=number), raw.entry(b"m")) for number in range(2)]
        assert http.post(f"{path_of(topic)}/terminate").status_code == 200
        assert client.hear()[0].type == BaseCommand.CLOSE_PRODUCER
        refused = client.ask(raw.producer(topic, producer_id=2, request_id=5))
        assert (refused.error.request_id, refused.error.error) == (5, ServerError.TopicTerminatedError)
        places = [each.send_receipt.message_id for each in receipts]
        first, last = (
            raw.ack(each.ledgerId, each.entryId, ack_type=CommandAck.Individual) for each in places
        )
        assert client.ask(first).type == BaseCommand.ACK_RESPONSE
        said = [client.ask(last), client.hear()[0]]
        assert {each.type for each in said} == {BaseCommand.ACK_RESPONSE, BaseCommand.REACHED_END_OF_TOPIC}
        assert {each.reachedEndOfTopic.consumer_id for each in said} == {0, 1}
        client.ask(raw.subscribe(topic, "late", consumer_id=3))
        assert client.hear()[0].reachedEndOfTopic.consumer_id == 3, "who begins behind the end has had it all"
        client.ask(raw.subscribe(topic, "early", consumer_id=4, initialPosition=CommandSubscribe.Earliest))
        assert client.ask(raw.ping()).type == BaseCommand.PONG, "there are two messages for that one"


def test_kafkas_producers_are_refused_and_its_consumers_read(
    pulsar_broker: BrokerProcess, http: httpx.Client, client: pulsar.Client, topic: str
) -> None:
    client.create_producer(topic).send(b"the only one")
    http.post(f"{path_of(topic)}/terminate")
    name = topic.rpartition("/")[2]
    told: list[KafkaError | None] = []
    producer = KafkaProducer({"bootstrap.servers": pulsar_broker.address})
    producer.produce(name, b"late", on_delivery=lambda error, _: told.append(error))
    assert producer.flush(30) == 0
    assert [error and error.code() for error in told] == [KafkaError.POLICY_VIOLATION]
    consumer = KafkaConsumer(
        {"bootstrap.servers": pulsar_broker.address, "group.id": name, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([name])
    (message,) = consumer.consume(1, timeout=30)
    assert message.value() == b"the only one"
    consumer.close()


def test_partitions_end_together(client: pulsar.Client, http: httpx.Client, topic: str) -> None:
    path = path_of(topic)
    assert http.put(f"{path}/partitions", json=2).status_code == 204
    producer = client.create_producer(topic, send_timeout_millis=WAIT_MS)
    producer.send(b"one")
    assert http.post(f"{path}/terminate").status_code == 405
    ended = http.post(f"{path}/terminate/partitions").json()
    assert {number: each["partitionIndex"] for number, each in ended.items()} == {"0": 0, "1": 1}
    assert sorted(each["entryId"] for each in ended.values()) == [-1, 0]
    with pytest.raises(pulsar.PulsarException, match="TopicTerminated"):
        producer.send(b"late")
    assert http.post(f"{path_of(topic + 'no')}/terminate").status_code == 404
    http.put(path_of(topic + "1"))
    assert http.post(f"{path_of(topic + '1')}/terminate/partitions").status_code == 405


def test_a_crash_does_not_begin_it_again(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, topic: str
) -> None:
    broker = start_broker(tmp_path / "data", *PULSAR, "--http", "127.0.0.1:0")
    client = connect(broker)
    client.create_producer(topic).send(b"kept")
    with admin(broker) as http:
        ended = http.post(f"{path_of(topic)}/terminate").json()
    broker.kill()
    client.close()
    broker = start_broker(tmp_path / "data", *PULSAR, "--http", "127.0.0.1:0")
    client = connect(broker)
    with pytest.raises(pulsar.PulsarException, match="TopicTerminated"):
        client.create_producer(topic)
    consumer = client.subscribe(topic, "s", ConsumerType.Shared, initial_position=InitialPosition.Earliest)
    assert consumer.receive(WAIT_MS).data() == b"kept"
    with admin(broker) as http:
        assert http.post(f"{path_of(topic)}/terminate").json() == ended
        consumer.close()
        assert http.delete(path_of(topic)).status_code == 204
    client.create_producer(topic).send(b"another topic of that name")
    client.close()
