"""``pulsar-admin broker-stats``, and messages that are looked at: names and shapes that Pulsar's admin clients read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pulsar
import pytest
from confluent_kafka import Producer

from tests.process import BrokerProcess
from tests.rest.test_admin import path_of
from tests.waiting import until

ROOT = "/admin/v2/broker-stats"


@pytest.fixture
def client(house: BrokerProcess) -> Iterator[pulsar.Client]:
    client = pulsar.Client(house.pulsar_url, logger=None)
    yield client
    client.close()


def headers_of(http: httpx.Client, topic: str) -> dict[str, str]:
    """Return the headers of a topic's first message by the names as they were sent, letter by letter."""
    ledger = http.get(f"{path_of(topic)}/internalStats").json()["ledgers"][0]["ledgerId"]
    answer = http.get(f"{path_of(topic)}/ledger/{ledger}/entry/0")
    assert answer.status_code == 200, answer.text
    return {name.decode(): text.decode() for name, text in answer.headers.raw}


def test_names_of_a_messages_headers_are_pulsars_own(http: httpx.Client, client: pulsar.Client) -> None:
    producer = client.create_producer("looked-at", batching_enabled=False, producer_name="p")
    producer.send(
        b"value",
        properties={"a": "b", "Two": "é"},
        partition_key="k",
        ordering_key="o",
        event_timestamp=12345,
    )
    found = headers_of(http, "looked-at")
    assert json.loads(found["X-Pulsar-PROPERTY"]) == {"a": "b", "Two": "é"}
    assert {name: text for name, text in found.items() if name.startswith("X-Pulsar-")}.items() >= {
        "X-Pulsar-PROPERTY-a": "b",
        "X-Pulsar-partition-key": "k",
        "X-Pulsar-Base64-ordering-key": "bw==",
        "X-Pulsar-event-time": "1970-01-01T00:00:12.345Z",
        "X-Pulsar-producer-name": "p",
        "X-Pulsar-sequence-id": "0",
        "X-Pulsar-Is-Encrypted": "false",
        "X-Pulsar-txn-uncommitted": "false",
    }.items()


@pytest.mark.parametrize("compression", [pulsar.CompressionType.NONE, pulsar.CompressionType.LZ4])
def test_a_batch_has_its_size_in_bytes(
    http: httpx.Client, client: pulsar.Client, compression: pulsar.CompressionType
) -> None:
    topic = f"batch-of-{compression.name}"
    producer = client.create_producer(
        topic, batching_enabled=True, compression_type=compression, batching_max_publish_delay_ms=1000
    )
    for number in range(3):
        producer.send_async(b"hello world " * 20 + b"%d" % number, None)
    producer.flush()
    found = headers_of(http, topic)
    size = int(found["X-Pulsar-batch-size"])
    content = http.get(f"{path_of(topic)}/examinemessage", params={"initialPosition": "earliest"}).content
    assert found["X-Pulsar-num-batch-message"] == "3"
    if compression == pulsar.CompressionType.NONE:
        assert size == len(content) + 10  # magic, checksum, and the metadata's size
    else:
        assert 10 < size < len(content)
        assert found["X-Pulsar-compression"] == "LZ4"
        assert int(found["X-Pulsar-uncompressed-size"]) == len(content)


def test_what_a_transaction_left_open_or_aborted_says_so(http: httpx.Client, house: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": house.address, "transactional.id": "looked-at"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("of-a-transaction", b"v", partition=0)
    assert producer.flush(30) == 0
    assert headers_of(http, "of-a-transaction")["X-Pulsar-txn-uncommitted"] == "true"
    producer.abort_transaction(30)
    # Markers are written after the answer.
    until(lambda: headers_of(http, "of-a-transaction")["X-Pulsar-txn-uncommitted"] == "false")
    assert headers_of(http, "of-a-transaction")["X-Pulsar-txn-aborted"] == "true"


def test_open_topics_stand_below_their_bundle(http: httpx.Client, client: pulsar.Client) -> None:
    name = "persistent://public/default/counted"
    consumer = client.subscribe("counted", "s")
    producer = client.create_producer("counted", batching_enabled=False)
    for _ in range(3):
        producer.send(b"v")
    bundles: dict[str, Any] = http.get(f"{ROOT}/topics").json()["public/default"]
    (found,) = [by_kind["persistent"][name] for by_kind in bundles.values() if name in by_kind["persistent"]]
    assert all(hashes.count("_") == 1 and hashes.startswith("0x") for hashes in bundles)
    assert (found["producerCount"], found["msgInCount"]) == (1, 3)
    assert found["subscriptions"]["s"]["msgBacklog"] == 3
    assert [each["producerName"] for each in found["publishers"]] == [producer.producer_name()]
    consumer.close()


def test_monitoring_metrics_are_grouped_by_their_dimensions(http: httpx.Client) -> None:
    rows = http.get(f"{ROOT}/metrics").json()
    assert all(set(row) == {"metrics", "dimensions"} and row["metrics"] for row in rows)
    texts = [json.dumps(row["dimensions"], sort_keys=True) for row in rows]
    assert len(set(texts)) == len(texts)
    together = {name: value for row in rows for name, value in row["metrics"].items()}
    assert together["process_resident_memory_bytes"] > 1 << 20
    assert not any("topic" in row["dimensions"] for row in rows)
    assert http.get(f"{ROOT}/mbeans").json() == []


def test_a_load_report_is_local_broker_data(
    http: httpx.Client, house: BrokerProcess, client: pulsar.Client
) -> None:
    producer = client.create_producer("reported")
    found = http.get(f"{ROOT}/load-report").json()
    assert found["loadReportType"] == "LocalBrokerData"
    assert found["pulsarServiceUrl"] == house.pulsar_url
    assert found["numTopics"] >= 1
    assert found["numProducers"] >= 1
    assert found["numBundles"] == len(found["bundles"]) >= 1
    producer.close()
