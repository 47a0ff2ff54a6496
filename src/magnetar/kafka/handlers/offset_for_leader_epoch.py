"""OffsetForLeaderEpoch: where an epoch of leadership ended (KIP-320)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.kafka.handlers.asked import check_epoch, find_partition, refusal_of
from magnetar.serving.pace import paced
from magnetar.wire.kafka.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
)
from magnetar.wire.kafka.messages.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from magnetar.wire.kafka.primitives import ZERO_UUID

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    """Answer where each epoch ended: the last one at what can be read; one that has not come yet has no offset."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    await _answer_one(topic.topic, each, context) async for each in paced(topic.partitions)
                ],
            )
            async for topic in paced(request.topics)
        ]
    )


async def _answer_one(name: str, asked: OffsetForLeaderPartition, context: RequestContext) -> EpochEndOffset:
    row = EpochEndOffset(partition=asked.partition)
    try:
        partition = await find_partition(context, name, ZERO_UUID, asked.partition)
        row.error_code = check_epoch(asked.current_leader_epoch, partition)
        if not row.error_code:
            row.leader_epoch, row.end_offset = partition.epochs.end_of(
                asked.leader_epoch, partition.log.high_watermark
            )
    except Exception as error:
        row.error_code = refusal_of(name, row.partition, error)
    return row
