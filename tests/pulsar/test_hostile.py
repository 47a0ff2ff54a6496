"""Clients that do not keep to the protocol get Pulsar's own answer or lose their connection; others do not notice."""

from __future__ import annotations

import os
import random
import struct

import pulsar
import pytest

from magnetar.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandAck,
    CommandSubscribe,
    ProducerAccessMode,
    ServerError,
)
from tests.process import BrokerProcess
from tests.pulsar import raw
from tests.pulsar.raw import Raw


@pytest.fixture(autouse=True)
def _nobody_else_notices(pulsar_broker: BrokerProcess, client: pulsar.Client, topic: str) -> object:
    """While and after somebody misbehaves, a good client's messages arrive, and no surprise is in the log."""
    lines = len(pulsar_broker.log_lines())
    yield None
    consumer = client.subscribe(topic, "good")
    client.create_producer(topic).send(b"fine")
    assert consumer.receive(10_000).data() == b"fine"
    assert not [line for line in pulsar_broker.log_lines()[lines:] if "Traceback" in line]


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
        struct.pack(">I", 0),
        struct.pack(">I", 5) + bytes(5),
        struct.pack(">I", 0xFFFFFFFF),
        struct.pack(">I", 64 << 20),
        struct.pack(">II", 10, 100) + bytes(6),
        struct.pack(">II", 10, 6) + b"\xff" * 6,
        struct.pack(">II", 8, 4) + b"\x08\x7f\x12\x00",
        struct.pack(">II", 6, 2) + b"\x08\x03",
    ],
    ids=[
        "http",
        "empty",
        "tiny",
        "huge",
        "large",
        "command-too-long",
        "no-protobuf",
        "unknown",
        "not-for-us",
    ],
)
def test_bytes_that_are_no_frame_end_the_connection(pulsar_broker: BrokerProcess, data: bytes) -> None:
    for connect in (False, True):
        with Raw(pulsar_broker, connect=connect) as client:
            client.send(data)
            assert client.hears_nothing_more()


def test_whoever_does_not_introduce_himself_is_not_heard(pulsar_broker: BrokerProcess, topic: str) -> None:
    with Raw(pulsar_broker, connect=False) as client:
        client.send(raw.frame(raw.producer(topic)))
        assert client.hears_nothing_more()


def test_introducing_oneself_twice_ends_the_connection(pulsar_broker: BrokerProcess) -> None:
    with Raw(pulsar_broker) as client:
        client.send(raw.frame(raw.hello()))
        assert client.hears_nothing_more()


def test_a_message_without_a_producer_ends_the_connection(pulsar_broker: BrokerProcess) -> None:
    with Raw(pulsar_broker) as client:
        client.send(raw.frame(raw.send(), raw.entry()))
        assert client.hears_nothing_more()


def test_a_wrong_checksum_is_refused_and_nothing_is_stored(pulsar_broker: BrokerProcess, topic: str) -> None:
    with Raw(pulsar_broker) as client:
        client.ask(raw.producer(topic))
        damaged = bytearray(raw.entry())
        damaged[-1] ^= 1
        answer = client.ask(raw.send(), bytes(damaged))
        assert (answer.type, answer.send_error.error) == (BaseCommand.SEND_ERROR, ServerError.ChecksumError)
        answer = client.ask(raw.send(sequence_id=1), raw.entry())
        assert answer.type == BaseCommand.SEND_RECEIPT
        assert answer.send_receipt.message_id.entryId == 0


@pytest.mark.parametrize(
    "entry",
    [b"", b"\x0e", b"\x0e\x01", b"\x0e\x01" + bytes(8), struct.pack(">I", 1 << 30), bytes(4), bytes(100)],
)
def test_entries_that_are_none_are_refused(pulsar_broker: BrokerProcess, topic: str, entry: bytes) -> None:
    with Raw(pulsar_broker) as client:
        client.ask(raw.producer(topic))
        assert client.ask(raw.send(), entry).type == BaseCommand.SEND_ERROR


def test_a_batch_cannot_claim_more_messages_than_it_has(pulsar_broker: BrokerProcess, topic: str) -> None:
    with Raw(pulsar_broker) as client:
        client.ask(raw.producer(topic))
        answer = client.ask(raw.send(), raw.entry(b"x" * 20, num_messages_in_batch=1_000_000))
        assert answer.type == BaseCommand.SEND_ERROR


@pytest.mark.parametrize("marked", [{"marker_type": 21}, {"txnid_most_bits": 1}])
def test_what_only_brokers_write_is_refused(
    pulsar_broker: BrokerProcess, topic: str, marked: dict[str, int]
) -> None:
    with Raw(pulsar_broker) as client:
        client.ask(raw.producer(topic))
        command = raw.send()
        if "txnid_most_bits" in marked:
            command.send.txnid_most_bits = 1
        answer = client.ask(command, raw.entry(**marked))
        assert answer.send_error.error == ServerError.NotAllowedError


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("persistent://public/default/", ServerError.InvalidTopicName),
        ("persistent://public", ServerError.InvalidTopicName),
        ("persistent://public/default/a/b/c", ServerError.InvalidTopicName),
        ("non-persistent://public/default/a/b", ServerError.InvalidTopicName),
        ("persistent://public/default/unknown-partition-7", ServerError.TopicNotFound),
        ("persistent://public/__kafka/__consumer_offsets-partition-0", ServerError.NotAllowedError),
        ("\x00", ServerError.InvalidTopicName),
        ("a" * 10_000, ServerError.InvalidTopicName),
    ],
)
def test_topics_that_cannot_be_have_pulsars_numbers(
    pulsar_broker: BrokerProcess, name: str, code: ServerError
) -> None:
    if "__kafka" in name:
        _have_a_group(pulsar_broker)
    with Raw(pulsar_broker) as client:
        answer = client.ask(raw.producer(name))
        assert (answer.type, answer.error.error) == (BaseCommand.ERROR, code)


def _have_a_group(broker: BrokerProcess) -> None:
    """Make Kafka's own topic, which is there once somebody commits."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": broker.address})
    producer.produce("grouped", b"x")
    producer.flush(10)
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "grouped"})
    consumer.commit(offsets=[TopicPartition("grouped", 0, 1)], asynchronous=False)
    consumer.close()


def test_acknowledging_what_is_not_there_is_an_error(pulsar_broker: BrokerProcess, topic: str) -> None:
    with Raw(pulsar_broker) as client:
        client.ask(raw.subscribe(topic))
        assert client.ask(raw.ack(123456, 7)).ackResponse.error == ServerError.MetadataError
        assert client.ask(raw.ack(0, 0, consumer_id=99)).ackResponse.error == ServerError.ConsumerNotFound
        client.ask(raw.producer(topic))
        place = client.ask(raw.send(), raw.entry()).send_receipt.message_id
        assert client.ask(raw.ack(place.ledgerId, 5)).ackResponse.HasField("error")
        assert not client.ask(raw.ack(place.ledgerId, 0)).ackResponse.HasField("error")
        assert not client.ask(raw.ack(place.ledgerId, 0)).ackResponse.HasField("error")


def test_a_shared_subscription_takes_no_cumulative_acknowledgement(
    pulsar_broker: BrokerProcess, topic: str
) -> None:
    with Raw(pulsar_broker) as client:
        client.ask(raw.subscribe(topic, subType=CommandSubscribe.Shared))
        answer = client.ask(raw.ack(1, 1, ack_type=CommandAck.Cumulative))
        assert answer.ackResponse.error == ServerError.NotAllowedError


def test_a_consumer_gets_no_more_than_it_permits(pulsar_broker: BrokerProcess, topic: str) -> None:
    with Raw(pulsar_broker) as client:
        client.ask(raw.producer(topic))
        client.ask(raw.subscribe(topic, consumer_id=2))
        for number in range(5):
            client.ask(raw.send(sequence_id=number), raw.entry(b"%d" % number))
        client.send(raw.frame(raw.flow(2, consumer_id=2)))
        assert [client.hear()[1][-1:] for _ in range(2)] == [b"0", b"1"]
        assert client.ask(raw.ping()).type == BaseCommand.PONG
        client.send(raw.frame(raw.flow(1, consumer_id=2)))
        command, entry = client.hear()
        assert (command.type, entry[-1:]) == (BaseCommand.MESSAGE, b"2")


@pytest.mark.parametrize(
    ("kind", "field", "answer"),
    [
        (BaseCommand.TC_CLIENT_CONNECT_REQUEST, "tcClientConnectRequest", "tcClientConnectResponse"),
        (BaseCommand.NEW_TXN, "newTxn", "newTxnResponse"),
        (BaseCommand.END_TXN, "endTxn", "endTxnResponse"),
    ],
)
def test_transactions_are_refused_with_pulsars_error(
    pulsar_broker: BrokerProcess, kind: BaseCommand.Type, field: str, answer: str
) -> None:
    command = BaseCommand(type=kind)
    getattr(command, field).request_id = 5
    if field == "tcClientConnectRequest":
        command.tcClientConnectRequest.tc_id = 0
    with Raw(pulsar_broker) as client:
        refused = getattr(client.ask(command), answer)
        assert (refused.request_id, refused.error) == (5, ServerError.NotAllowedError)


@pytest.mark.parametrize("pattern", ["(", "(?=a)", "(.{0,9}){0,99}x", "x" * 1000])
def test_a_pattern_that_is_large_or_not_understood_is_not_watched(
    pulsar_broker: BrokerProcess, pattern: str
) -> None:
    command = BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST)
    watch = command.watchTopicList
    watch.request_id, watch.watcher_id, watch.namespace = 1, 1, "public/default"
    watch.topics_pattern = pattern
    with Raw(pulsar_broker) as client:
        assert client.ask(command).error.error == ServerError.NotAllowedError


def test_a_watcher_hears_of_topics_that_come(pulsar_broker: BrokerProcess, topic: str) -> None:
    command = BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST)
    watch = command.watchTopicList
    watch.request_id, watch.watcher_id, watch.namespace = 1, 1, "public/default"
    watch.topics_pattern = f"{topic}-new.*"
    with Raw(pulsar_broker) as client:
        assert list(client.ask(command).watchTopicListSuccess.topic) == []
        update = client.ask(raw.producer(f"{topic}-new"))
        assert list(update.watchTopicUpdate.new_topics) == [f"{topic}-new"]


def test_random_bytes_and_damaged_conversations_harm_nobody(pulsar_broker: BrokerProcess, topic: str) -> None:
    seed = int((os.environ.get("CI") and 7) or random.randrange(1 << 32))
    dice = random.Random(seed)
    sane = [
        raw.frame(raw.producer(topic)),
        raw.frame(raw.subscribe(topic, f"fuzz-{seed}")),
        raw.frame(raw.flow(100)),
        raw.frame(raw.send(), raw.entry()),
        raw.frame(raw.ack(0, 0)),
        raw.frame(raw.ping()),
        raw.frame(raw.hello()),
    ]
    for _ in range(60):
        data = bytearray(b"".join(dice.choices(sane, k=4)))
        for _ in range(dice.randrange(1, 4)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        with Raw(pulsar_broker) as client:
            client.send(bytes(data))
    assert pulsar_broker.is_running, f"seed {seed}"


def test_a_producer_that_waits_for_the_topic_gets_it_when_the_other_goes(
    pulsar_broker: BrokerProcess, topic: str
) -> None:
    with Raw(pulsar_broker) as first, Raw(pulsar_broker) as second:
        first.ask(raw.producer(topic))
        waits = raw.producer(topic, request_id=5)
        waits.producer.producer_access_mode = ProducerAccessMode.WaitForExclusive
        assert not second.ask(waits).producer_success.producer_ready
        close = BaseCommand(type=BaseCommand.CLOSE_PRODUCER)
        close.close_producer.producer_id, close.close_producer.request_id = 1, 2
        assert first.ask(close).type == BaseCommand.SUCCESS
        ready, _ = second.hear()
        assert (ready.producer_success.request_id, ready.producer_success.producer_ready) == (5, True)
        assert second.ask(raw.send(), raw.entry()).type == BaseCommand.SEND_RECEIPT


def test_a_producer_that_gives_up_waiting_does_not_get_the_topic(
    pulsar_broker: BrokerProcess, topic: str
) -> None:
    close = BaseCommand(type=BaseCommand.CLOSE_PRODUCER)
    close.close_producer.producer_id, close.close_producer.request_id = 1, 2
    with Raw(pulsar_broker) as first, Raw(pulsar_broker) as second:
        first.ask(raw.producer(topic))
        waits = raw.producer(topic)
        waits.producer.producer_access_mode = ProducerAccessMode.WaitForExclusive
        second.ask(waits)
        assert second.ask(close).type == BaseCommand.SUCCESS
        assert first.ask(close).type == BaseCommand.SUCCESS
        assert first.ask(raw.producer(topic)).type == BaseCommand.PRODUCER_SUCCESS
        assert second.ask(raw.ping()).type == BaseCommand.PONG


def test_a_consumer_that_does_not_read_costs_little_memory_and_loses_nothing(
    pulsar_broker: BrokerProcess, client: pulsar.Client, topic: str
) -> None:
    with Raw(pulsar_broker) as lazy:
        lazy.ask(raw.subscribe(topic))
        lazy.send(raw.frame(raw.flow(1_000_000)))
        before = pulsar_broker.resident_bytes
        producer = client.create_producer(topic, batching_enabled=False)
        for number in range(600):
            producer.send_async(number.to_bytes(4, "big") * 25_000, None)  # 100 KB each, 60 MB in all
        producer.flush()
        assert pulsar_broker.resident_bytes - before < 30 << 20
        found = [int.from_bytes(lazy.hear()[1][-4:], "big") for _ in range(600)]
        assert found == list(range(600))
