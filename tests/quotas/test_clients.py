"""Stock clients over their quotas: they are told so, wait, and lose nothing; an operator sets quotas by the command."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer

from magnetar.cli.app import run_app
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest
from tests.hostile.client import Wire
from tests.process import BrokerProcess
from tests.quotas.asking import alter, entry

COUNT = 20_000
VALUE = 200  # bytes


@pytest.fixture
def broker(start_broker: Callable[..., BrokerProcess], tmp_path: Path) -> BrokerProcess:
    """Quotas go by two windows of a second instead of eleven, so that nobody waits for long."""
    windows = ("--set", "quota.window.num=2", "--set", "quota.window.size.seconds=1")
    return start_broker(tmp_path / "data", *windows, "--set", "group.initial.rebalance.delay.ms=0")


def quota(capsys: pytest.CaptureFixture[str], broker: BrokerProcess, *arguments: str) -> Any:
    """Return what the command prints, which must end well."""
    capsys.readouterr()
    assert run_app(["quota", *arguments, "-b", broker.address, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_librdkafka_is_told_and_waits(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    rates = "producer_byte_rate=2000000", "consumer_byte_rate=1000000"
    quota(capsys, broker, "set", "--client", "loud", *rates)
    waits: dict[str, list[float]] = {"loud": [], "quiet": []}
    for client_id, told in waits.items():
        producer = Producer(
            {
                "bootstrap.servers": broker.address,
                "client.id": client_id,
                "batch.size": 32_000,
                "throttle_cb": lambda event, told=told: told.append(event.throttle_time),
            }
        )
        for number in range(COUNT):
            producer.produce(client_id, number.to_bytes(VALUE, "big"))
            producer.poll(0)
        assert producer.flush(120) == 0
    assert max(waits["loud"]) > 0
    assert waits["quiet"] == []
    for client_id, told in waits.items():
        told.clear()
        consumer = Consumer(
            {
                "bootstrap.servers": broker.address,
                "client.id": client_id,
                "group.id": client_id,
                "auto.offset.reset": "earliest",
                "fetch.message.max.bytes": 64_000,
                "throttle_cb": lambda event, told=told: told.append(event.throttle_time),
            }
        )
        consumer.subscribe([client_id])
        seen: list[int] = []
        while len(seen) < COUNT:
            for message in consumer.consume(1000, 1):
                assert message.error() is None
                seen.append(int.from_bytes(message.value(), "big"))
        consumer.close()
        assert seen == list(range(COUNT))
    assert max(waits["loud"]) > 0
    assert waits["quiet"] == []


def longest_wait_ms(client: KafkaProducer | KafkaConsumer) -> float:
    groups = client.metrics().values()
    return max(group["throttle-time-max"] for group in groups if "throttle-time-max" in group)


def test_kafka_python_waits_and_loses_nothing(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    few = COUNT // 20
    # A batch alone is more than the quota, so that it does not matter how fast the client is.
    rates = "producer_byte_rate=50000", "consumer_byte_rate=100000"
    quota(capsys, broker, "set", "--user-defaults", *rates)  # nobody says who it is: that is a user, too
    producer = KafkaProducer(bootstrap_servers=broker.address, batch_size=100_000, linger_ms=1000)
    for number in range(few):
        producer.send("t", number.to_bytes(VALUE, "big"))
    producer.flush()
    throttled = longest_wait_ms(producer)
    producer.close()
    assert throttled > 0
    consumer = KafkaConsumer(
        "t", bootstrap_servers=broker.address, auto_offset_reset="earliest", max_partition_fetch_bytes=64_000
    )
    seen = [int.from_bytes(next(consumer).value, "big") for _ in range(few)]
    throttled = longest_wait_ms(consumer)
    consumer.close()
    assert seen == list(range(few))
    assert throttled > 0


def test_an_address_that_connects_too_often_is_let_wait(broker: BrokerProcess) -> None:
    """Two windows of a second, ten connections a second: ten come in, and those after them are closed unheard."""
    with Wire(broker.host_and_port) as wire:
        wire.ask(alter(entry({"ip": "127.0.0.1"}, connection_creation_rate=10.0)))
        others = [Wire(broker.host_and_port) for _ in range(60)]
        served = 0
        for each in others:
            try:
                each.ask(MetadataRequest(topics=[]))
            except ConnectionError:
                continue
            served += 1
        assert 0 < served < 60
        wire.ask(alter(entry({"ip": "127.0.0.1"}, connection_creation_rate=None)))
        for each in others:
            each.close()
        with Wire(broker.host_and_port) as after:
            assert after.ask(MetadataRequest(topics=[])).brokers


def test_the_command(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    assert quota(capsys, broker, "list") == []
    alice = {
        "entity": {"user": "alice"},
        "quotas": {"producer_byte_rate": 1048576.0, "request_percentage": 12.5},
    }
    said = quota(
        capsys, broker, "set", "--user", "alice", "request_percentage=12.5", "producer_byte_rate=1048576"
    )
    assert said == [alice]
    both = {"entity": {"user": None, "client-id": "app"}, "quotas": {"consumer_byte_rate": 5.0}}
    arguments = ("--user-defaults", "--client", "app")
    assert quota(capsys, broker, "set", *arguments, "consumer_byte_rate=5") == [both]
    quota(capsys, broker, "set", "--ip-defaults", "connection_creation_rate=100000")
    assert quota(capsys, broker, "list") == [
        {"entity": {"ip": None}, "quotas": {"connection_creation_rate": 100000.0}},
        both,
        alice,
    ]
    assert run_app(["quota", "list", "-b", broker.address]) == 0
    text = capsys.readouterr().out
    assert "any other user, client-id app" in text
    assert "1048576" in text
    left = quota(capsys, broker, "delete", "--user", "alice", "request_percentage")
    assert left == [{"entity": {"user": "alice"}, "quotas": {"producer_byte_rate": 1048576.0}}]
    assert quota(capsys, broker, "delete", *arguments) == []
    for wrong, why in (
        (["set", "--user", "bob", "producer_byte_rate=0"], "must be greater than 0"),
        (["set", "--user", "bob", "bytes=1"], "Invalid configuration key bytes"),
        (["set", "--user", "bob", "producer_byte_rate=fast"], "is no quota"),
        (["set", "producer_byte_rate=1"], "whose quotas?"),
        (["set", "--user", "bob", "--user-defaults", "producer_byte_rate=1"], "which user"),
        (
            ["set", "--ip", "10.0.0.1", "--user", "bob", "producer_byte_rate=1"],
            "Invalid quota entity combination",
        ),
        (["delete", "--user", "bob"], "there is no quota of user bob"),
        (["delete", "--user", "alice", "request_percentage"], "there is no request_percentage"),
    ):
        assert run_app(["quota", *wrong, "-b", broker.address]) != 0
        assert why in capsys.readouterr().err
    assert len(quota(capsys, broker, "list")) == 2


def test_who_waits_to_be_closed_is_not_heard(broker: BrokerProcess) -> None:
    with Wire(broker.host_and_port) as wire:
        wire.ask(alter(entry({"ip": None}, connection_creation_rate=1.0)))
        wires = [socket.create_connection(broker.host_and_port) for _ in range(20)]
        for each in wires:
            each.sendall(b"\x7f\xff\xff\xff nothing that Kafka says")
        closed = 0
        for each in wires:
            each.settimeout(30)
            try:
                closed += each.recv(1) == b""
            except ConnectionError:
                closed += 1
            each.close()
        assert closed == 20
        wire.ask(alter(entry({"ip": None}, connection_creation_rate=None)))
    heard = [line for line in broker.log_lines() if "closed:" in line]
    assert len(heard) < 5, "those that came in say something that cannot be; the others were not read"
