"""A file system of 24 MB fills up under clients of both protocols: all is told, nothing is lost, and it goes on."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pulsar
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.figures.told import scraped, url
from tests.process import BrokerProcess
from tests.waiting import until

VALUE = b"v" * 100_000
_ARGUMENTS = ("--set", "http.listeners=http://127.0.0.1:0", "--set", "pulsar.listeners=pulsar://127.0.0.1:0")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker whose data directory lies in a file system of 24 MB."""
    small = tmp_path / "data"
    small.mkdir()
    mount = shutil.which("mount")
    made = (
        None
        if mount is None
        else subprocess.run(
            (mount, "-t", "tmpfs", "-o", "size=24m", "none", small), capture_output=True, text=True
        )
    )
    if made is None or made.returncode:
        pytest.skip(f"no file system may be mounted here: {made and made.stderr}")
    try:
        with BrokerProcess(small, *_ARGUMENTS) as process:
            yield process
    finally:
        subprocess.run(("umount", "-l", small), check=True)


def fill(broker: BrokerProcess, topic: str) -> tuple[int, set[str]]:
    """Produce until records are refused; return how many were acknowledged, and the last errors' names."""
    acknowledged, errors = 0, set()

    def delivered(error: KafkaError | None, _: object) -> None:
        nonlocal acknowledged
        if error is None:
            acknowledged += 1
        else:
            errors.add(error.name())

    producer = Producer(
        {"bootstrap.servers": broker.address, "enable.idempotence": True, "delivery.timeout.ms": 5000}
        | {"request.timeout.ms": 2000, "linger.ms": 0}
    )
    while not errors:
        producer.produce(topic, VALUE, on_delivery=delivered)
        producer.flush(30)
    return acknowledged, errors


def stored(broker: BrokerProcess, topic: str) -> int:
    """Count a topic's records by reading them."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "reader"})
    place = TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(place, timeout=30)
    consumer.assign([place])
    found = 0
    while found < end:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        assert message.value() == VALUE
        found += 1
    consumer.close()
    return found


def test_a_full_disk_speaks_and_goes_on_once_there_is_room(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    for done in admin.create_topics([NewTopic("orders", 1), NewTopic("small", 1)]).values():
        done.result(30)
    assert httpx.get(url(broker) + "/health").text == "ok"
    acknowledged, errors = fill(broker, "orders")
    assert errors == {"_MSG_TIMED_OUT"}  # KAFKA_STORAGE_ERROR is tried again until the client's time is up
    told = scraped(broker)
    assert told.of("magnetar_disk_refuses_producers") == told.of("magnetar_degraded", reason="disk") == 1
    reserve = told.of("magnetar_disk_reserve_bytes")
    assert 0.5 * reserve < told.of("magnetar_disk_free_bytes") < 1.25 * reserve
    assert sum(told.all("kafka_network_requestmetrics_errors_total", error="KAFKA_STORAGE_ERROR")) > 0
    for path in ("/health", "/ready", "/healthz", "/readyz"):
        answer = httpx.get(url(broker) + path)
        assert answer.status_code == 200
        assert answer.text.startswith("degraded: disk: no room on the disk for producers: ")
    for path in ("/livez", "/admin/v2/brokers/health"):  # Pulsar's own tools take no other word for health
        assert httpx.get(url(broker) + path).text == "ok"

    # What makes room, and what readers need, goes on: groups commit, topics are made and deleted.
    group = Consumer({"bootstrap.servers": broker.address, "group.id": "g", "auto.offset.reset": "earliest"})
    group.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    client = pulsar.Client(broker.pulsar_url)
    reader = client.subscribe("orders", "s", initial_position=pulsar.InitialPosition.Earliest)
    reader.acknowledge(reader.receive(30_000))
    with pytest.raises(pulsar.ProducerBlockedQuotaExceededError):
        client.create_producer("small")
    assert stored(broker, "orders") == acknowledged
    text = broker.log.read_text()
    assert "magnetar.conditions: disk: no room on the disk for producers: " in text
    assert "largest topics: orders " in text
    assert text.count("largest topics") == 1

    admin.delete_topics(["orders"])["orders"].result(30)
    until(lambda: httpx.get(url(broker) + "/health").text == "ok")
    assert "disk: as it should be again" in broker.log.read_text()
    producer = Producer({"bootstrap.servers": broker.address})
    producer.produce("small", VALUE)
    assert producer.flush(30) == 0
    sender = client.create_producer("small")
    sender.send(VALUE)
    client.close()
    assert stored(broker, "small") == 2
    assert group.committed([TopicPartition("small", 0)], timeout=30)[0].error is None
    group.close()


def test_a_producer_of_pulsar_waits_and_its_message_comes_when_there_is_room(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    for done in admin.create_topics([NewTopic("orders", 1), NewTopic("small", 1)]).values():
        done.result(30)
    client = pulsar.Client(broker.pulsar_url)
    sender = client.create_producer("small", send_timeout_millis=0)
    fill(broker, "orders")
    sent: list[pulsar.Result] = []
    sender.send_async(VALUE, lambda result, _: sent.append(result))
    reader = client.subscribe("orders", "s", initial_position=pulsar.InitialPosition.Earliest)
    for _ in range(3):
        reader.acknowledge(reader.receive(30_000))
    assert not sent
    admin.delete_topics(["orders"])["orders"].result(30)
    until(lambda: sent == [pulsar.Result.Ok])
    client.close()
    assert stored(broker, "small") == 1
