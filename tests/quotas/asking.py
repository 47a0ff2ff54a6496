"""What tests of quotas say to a broker: set them, and requests that use them up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.wire.kafka.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from magnetar.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)


def entry(entity: Mapping[str, str | None], **quotas: float | None) -> EntryData:
    """Return one entity's change; None takes a quota away."""
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()],
    )


def alter(*entries: EntryData, validate_only: bool = False) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)


def produce(topic: str, values: Sequence[bytes], *, acks: int = -1) -> ProduceRequest:
    """Return a Produce of one batch to partition 0."""
    batch = encode_batch([PlainRecord(None, value, [], 0, number) for number, value in enumerate(values)])
    data = PartitionProduceData(index=0, records=batch)
    return ProduceRequest(
        acks=acks, timeout_ms=9, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )


def fetch(
    topic: str, offset: int, *, session_id: int = 0, session_epoch: int = -1, wait_ms: int = 0
) -> FetchRequest:
    """Return a Fetch of partition 0."""
    ask = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=16 << 10)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=50 << 20,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic=topic, partitions=[ask])],
    )
