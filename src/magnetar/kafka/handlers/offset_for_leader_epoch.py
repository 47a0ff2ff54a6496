"""OffsetForLeaderEpoch: where an epoch of leadership ended (KIP-320). One broker leads for good, in one epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.kafka.errors import code_for
from magnetar.kafka.handlers.asked import check_epoch, find_partition
from magnetar.kafka.pace import paced
from magnetar.kafka.partitions.partition import LEADER_EPOCH
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
    """Answer the end of the log for our epoch, and an undefined offset for any other."""
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
        row.error_code = check_epoch(asked.current_leader_epoch)
        if not row.error_code and asked.leader_epoch == LEADER_EPOCH:
            row.leader_epoch, row.end_offset = LEADER_EPOCH, partition.log.high_watermark
    except Exception as error:
        row.error_code = code_for(error)
    return row
