"""``magnetar.testing``: a real broker inside a test, by stock clients of both protocols."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from magnetar.base.errors import InvalidConfig
from magnetar.testing import AsyncBroker, Broker, Record
from tests.waiting import until


def grouped(broker: Broker, topic: str, group: str, wanted: int) -> list[bytes | None]:
    """Read by a group that is new, and commit."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    values: list[bytes | None] = []

    def done() -> bool:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            values.append(message.value())
        return len(values) >= wanted

    until(done, 0)
    consumer.commit(asynchronous=False)
    consumer.close()
    return values


def test_both_protocols_and_the_registry_are_served() -> None:
    with Broker() as broker:
        broker.produce(
            "orders", "a", Record("b", key="k", headers=(("h", b"1"),), timestamp=1_700_000_000_000)
        )
        assert grouped(broker, "orders", "g", 2) == [b"a", b"b"]
        assert broker.committed("g") == {("orders", 0): 2}
        first, second = broker.records("orders")
        assert (first.value, first.partition, first.offset) == (b"a", 0, 0)
        assert second == Record(b"b", b"k", (("h", b"1"),), 0, 1, 1_700_000_000_000)
        client = pulsar.Client(broker.pulsar_url, logger=None)
        reader = client.create_reader("orders", pulsar.MessageId.earliest)
        assert [reader.read_next(30_000).data() for _ in range(2)] == [b"a", b"b"]
        client.close()
        assert httpx.get(f"{broker.http_url}/health").status_code == 200
        assert httpx.get(f"{broker.schema_registry_url}/subjects").json() == []


def test_nothing_is_left_behind() -> None:
    with Broker() as broker:  # whatever is made once for all brokers is made now
        broker.produce("t", "v")
        directory = broker.data
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with Broker() as broker:
            broker.produce("t", "v")
    assert not directory.exists()
    until(lambda: threading.active_count() <= threads)
    until(lambda: len(os.listdir("/proc/self/fd")) <= descriptors)


def test_a_restart_keeps_records_and_addresses(tmp_path: Path) -> None:
    with Broker(data=tmp_path / "kept") as broker:
        broker.produce("t", "before")
        addresses = broker.bootstrap_servers, broker.pulsar_url, broker.http_url, broker.schema_registry_url
        broker.restart()
        assert addresses == (
            broker.bootstrap_servers,
            broker.pulsar_url,
            broker.http_url,
            broker.schema_registry_url,
        )
        broker.produce("t", "after")
        assert [record.value for record in broker.records("t")] == [b"before", b"after"]
    assert (tmp_path / "kept").exists()


def test_a_reset_leaves_a_clean_broker() -> None:
    with Broker() as broker:
        broker.produce("t", "v")
        grouped(broker, "t", "g", 1)
        broker.reset()
        assert broker.committed("g") == {}
        broker.create_topic("t", 3, cleanup_policy="compact")
        assert broker.records("t") == []


def test_settings_have_their_effect_and_wrong_ones_are_refused() -> None:
    with Broker({"num.partitions": 3}) as broker:
        broker.produce("t", *(Record("v", partition=each) for each in range(3)))
        assert [record.partition for record in broker.records("t")] == [0, 1, 2]
    with pytest.raises(InvalidConfig, match=r"num\.partition"):
        Broker({"num.partition": 3})


def test_a_broker_that_does_not_run_says_so() -> None:
    broker = Broker()
    with pytest.raises(RuntimeError, match="does not run"):
        _ = broker.bootstrap_servers
    with broker, pytest.raises(RuntimeError, match="faults=True"):
        broker.cut()
    with pytest.raises(RuntimeError, match="does not run"):
        broker.restart()


def test_records_of_open_transactions_are_not_read() -> None:
    with Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("t", b"open")
        producer.flush(30)
        assert broker.records("t") == []
        assert [record.value for record in broker.records("t", isolation="read_uncommitted")] == [b"open"]
        producer.abort_transaction(30)


def test_clients_get_over_a_cut_and_wait_through_a_pause() -> None:
    with Broker(faults=True) as broker:
        answers: list[Any] = []
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "reconnect.backoff.max.ms": 100})

        def send(value: bytes) -> None:
            producer.produce("t", value, on_delivery=lambda error, _: answers.append(error))

        send(b"first")
        assert producer.flush(60) == 0
        broker.cut()
        send(b"second")
        assert producer.flush(60) == 0
        broker.pause()
        send(b"third")
        assert producer.flush(1) == 1, "it was acknowledged while nothing passed"
        broker.resume()
        assert producer.flush(60) == 0
        broker.restart()
        send(b"fourth")
        assert producer.flush(60) == 0
        assert answers == [None] * 4
        client = pulsar.Client(broker.pulsar_url, logger=None)
        reader = client.create_reader("t", pulsar.MessageId.earliest)
        values = [reader.read_next(30_000).data() for _ in range(4)]
        client.close()
        assert values == [b"first", b"second", b"third", b"fourth"]


def test_what_is_not_acknowledged_in_time_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magnetar.testing.broker.TIMEOUT_S", 1.0)
    with Broker({"message.max.bytes": 1000}, faults=True) as broker:
        with pytest.raises(KafkaException, match=r"MSG_SIZE_TOO_LARGE|too large"):
            broker.produce("t", b"x" * 5000)
        broker.pause()
        with pytest.raises((KafkaException, TimeoutError)):
            broker.produce("t", b"small")
        broker.resume()


async def test_on_the_tests_own_loop(magnetar_async: AsyncBroker) -> None:
    await magnetar_async.create_topic("t", 2)
    await magnetar_async.produce("t", Record("a", partition=0), Record("b", partition=1))
    assert [(each.partition, each.value) for each in await magnetar_async.records("t")] == [
        (0, b"a"),
        (1, b"b"),
    ]
    await magnetar_async.restart()
    assert len(await magnetar_async.records("t")) == 2
    await magnetar_async.reset()
    assert await magnetar_async.committed("none") == {}
