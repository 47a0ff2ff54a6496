"""How much of a partition one answer holds depends on what the client says it is (decision 12)."""

from __future__ import annotations

import pytest

from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from tests.hostile.client import Wire, fetch, produce
from tests.process import BrokerProcess

BATCH = encode_batch([PlainRecord(None, bytes(60_000), [], 0, 0)])


@pytest.mark.parametrize(
    ("software", "most"), [("", 512 << 10), ("librdkafka", 512 << 10), ("apache-kafka-java", 1 << 20)]
)
def test_the_java_client_gets_as_much_as_it_asks_for_by_default(
    broker: BrokerProcess, software: str, most: int
) -> None:
    topic = f"sizes-{software or 'none'}"
    with Wire(broker.host_and_port) as wire:
        if software:
            wire.ask(ApiVersionsRequest(client_software_name=software, client_software_version="4.3.1"), 3)
        topics = [MetadataRequestTopic(name=topic)]
        wire.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=True), 12)
        for _ in range(25):
            assert produce(wire, topic, BATCH).error_code == 0
        size = len(fetch(wire, topic, 0).records)
    assert most - len(BATCH) < size <= most


def test_a_bound_counts_what_travels_and_not_what_is_stored_beside_it(broker: BrokerProcess) -> None:
    """Two batches fit a bound of their size, and one fits where a byte is missing (kafkajs's suite fetches so)."""
    batch = encode_batch([PlainRecord(b"test", b"test", [], 0, 0)])
    with Wire(broker.host_and_port) as wire:
        topics = [MetadataRequestTopic(name="bounds")]
        wire.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=True), 12)
        for _ in range(3):
            assert produce(wire, "bounds", batch).error_code == 0
        for most, count in ((1, 1), (2 * len(batch) - 1, 1), (2 * len(batch), 2), (3 * len(batch), 3)):
            assert len(fetch(wire, "bounds", 0, partition_max_bytes=most).records) == count * len(batch)
