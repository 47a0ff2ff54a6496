"""DeleteRecords: let go of everything before an offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.kafka.errors import code_for
from magnetar.kafka.handlers.asked import NO_ID, find_partition
from magnetar.kafka.wire.errors import ErrorCode
from magnetar.kafka.wire.messages.delete_records_request import DeleteRecordsPartition, DeleteRecordsRequest
from magnetar.kafka.wire.messages.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

_HIGH_WATERMARK = -1


async def delete_records(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    """Trim each partition and tell where it begins now."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[await _delete_one(topic.name, each, context) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )


async def _delete_one(
    name: str, asked: DeleteRecordsPartition, context: RequestContext
) -> DeleteRecordsPartitionResult:
    row = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=-1)
    try:
        partition = await find_partition(context, name, NO_ID, asked.partition_index)
        if "delete" not in partition.topic.config.cleanup_policy:
            row.error_code = ErrorCode.POLICY_VIOLATION
            return row
        log = partition.log
        log.trim(log.visible_offset if asked.offset == _HIGH_WATERMARK else asked.offset)
        row.low_watermark = log.first_offset
    except Exception as error:
        row.error_code = code_for(error)
    return row
