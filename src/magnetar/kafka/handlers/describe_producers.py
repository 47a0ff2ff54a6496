"""DescribeProducers (KIP-664): the producers that a partition remembers, and where their open transactions begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.kafka.errors import code_for
from magnetar.kafka.handlers.asked import find_partition
from magnetar.serving.pace import paced
from magnetar.wire.kafka.messages.describe_producers_request import DescribeProducersRequest
from magnetar.wire.kafka.messages.describe_producers_response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from magnetar.wire.kafka.primitives import ZERO_UUID

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

_NONE = -1


async def describe_producers(
    request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    """Return each partition's producers: id, epoch, last sequence, when (ms) they were last heard of, their
    transaction.

    A partition is told of once, however often it is asked for: small requests must not get endless answers.
    """
    asked: dict[str, dict[int, None]] = {}
    async for topic in paced(request.topics):
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=name,
                partitions=[await _partition(context, name, index) async for index in paced(indexes)],
            )
            async for name, indexes in paced(asked.items())
        ]
    )


async def _partition(context: RequestContext, name: str, index: int) -> PartitionResponse:
    row = PartitionResponse(partition_index=index)
    try:
        context.kafka.broker.naming.parse(name)
        partition = await find_partition(context, name, ZERO_UUID, index)
    except Exception as error:
        row.error_code, row.error_message = code_for(error), str(error)
    else:
        opened = partition.producers.transactions.open()
        row.active_producers = [
            ProducerState(
                producer_id=producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.batches[-1].last_sequence if producer.batches else _NONE,
                last_timestamp=producer.latest_ms,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=opened.get(producer_id, _NONE),
            )
            async for producer_id, producer in paced(list(partition.producers.active()))
        ]
    return row
