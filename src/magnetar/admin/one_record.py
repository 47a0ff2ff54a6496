"""One record read, or produced, by Kafka's own requests: for whom has no client at hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from magnetar.admin.cluster import ClusterAdmin
from magnetar.admin.errors import Invalid, NotThere
from magnetar.admin.refusals import check
from magnetar.records.batch import Header, PlainRecord, batches, decode_records, encode_batch
from magnetar.records.key_partition import partition_of
from magnetar.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.fetch_response import FetchResponse
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from magnetar.wire.kafka.messages.metadata_response import MetadataResponse, MetadataResponseTopic
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from magnetar.wire.kafka.messages.produce_response import ProduceResponse

_TIMEOUT_MS = 30_000
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Produced:
    """The place of a record."""

    topic: str
    partition: int
    offset: int


def produce_one(
    cluster: ClusterAdmin,
    topic: str,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
    time_ms: int,
    partition: int | None = None,
) -> Produced:
    """Append one record, and return where it is once it is acknowledged as the topic's flush policy has it.

    ``partition`` None is by the key, as Kafka's own producers choose, or without a key by the time.
    """
    found = _topic(cluster, topic)
    count = len(found.partitions)
    if partition is not None and partition >= count:
        raise Invalid(f"topic {topic} has no partition {partition}", f"It has {count}, counted from 0.")
    index = partition_of(key, count, time_ms) if partition is None else partition
    batch = encode_batch([PlainRecord(key, value, [Header(*each) for each in headers], time_ms)])
    asked = TopicProduceData(
        name=topic,
        topic_id=found.topic_id,
        partition_data=[PartitionProduceData(index=index, records=memoryview(batch))],
    )
    (told,) = cluster.ask_leaders(
        [(topic, index)],
        lambda _: ProduceRequest(acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=[asked]),
        ProduceResponse,
    )
    row = told.responses[0].partition_responses[0]
    check(row.error_code, row.error_message, f"{topic}-{index}")
    return Produced(topic, index, row.base_offset)


def read_one(cluster: ClusterAdmin, topic: str, partition: int, offset: int) -> PlainRecord:
    """Return the record at an offset as Kafka consumers get it; raise `NotThere`."""
    found = _topic(cluster, topic)
    row = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=_MOST_BYTES)
    request = FetchRequest(
        max_bytes=_MOST_BYTES,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, topic_id=found.topic_id, partitions=[row])],
    )
    (told,) = cluster.ask_leaders([(topic, partition)], lambda _: request, FetchResponse)
    check(told.error_code, None, f"{topic}-{partition}")
    answered = told.responses[0].partitions[0]
    check(answered.error_code, None, f"{topic}-{partition}")
    records = answered.records or b""
    assert not isinstance(records, list)
    for header, batch in batches(records):
        if header.last_offset >= offset and not header.is_control:
            record = next((each for each in decode_records(batch) if each.offset == offset), None)
            if record is not None:
                return record
        if header.last_offset >= offset:
            break
    raise NotThere(
        f"{topic}-{partition} holds no record at offset {offset}", "It may have been compacted away."
    )


def _topic(cluster: ClusterAdmin, name: str) -> MetadataResponseTopic:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    found = cluster.ask(request, MetadataResponse).topics[0]
    check(found.error_code, None, f"topic {name}")
    return found
