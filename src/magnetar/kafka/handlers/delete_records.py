"""DeleteRecords: let go of everything before an offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.kafka.errors import code_for
from magnetar.kafka.handlers.asked import find_partition
from magnetar.serving.pace import paced
from magnetar.topics.topic import Topic
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.delete_records_request import DeleteRecordsPartition, DeleteRecordsRequest
from magnetar.wire.kafka.messages.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from magnetar.wire.kafka.primitives import ZERO_UUID

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

_HIGH_WATERMARK = -1


async def delete_records(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    """Trim each partition and tell where it begins now."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    await _delete_one(topic.name, each, context) async for each in paced(topic.partitions)
                ],
            )
            async for topic in paced(request.topics)
        ]
    )


async def _delete_one(
    name: str, asked: DeleteRecordsPartition, context: RequestContext
) -> DeleteRecordsPartitionResult:
    row = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=-1)
    try:
        partition = await find_partition(context, name, ZERO_UUID, asked.partition_index)
        row.error_code = _refusal(partition.topic)
        if row.error_code:
            return row
        log = partition.log
        await log.trim(log.high_watermark if asked.offset == _HIGH_WATERMARK else asked.offset)
        row.low_watermark = log.log_start_offset
    except Exception as error:
        row.error_code = code_for(error)
    return row


def _refusal(topic: Topic) -> ErrorCode:
    """Say why nobody may delete records of the topic: the coordinators' own, or only ever compacted."""
    if topic.internal:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    only_compacted = topic.config.compacted and "delete" not in topic.config.cleanup_policy
    if topic.config.is_migrating:
        return ErrorCode.NONE  # it begins where the other cluster's begins
    return ErrorCode.POLICY_VIOLATION if only_compacted else ErrorCode.NONE
