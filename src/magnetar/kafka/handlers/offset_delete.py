"""OffsetDelete: forget what a group committed for topics that none of its members reads (KIP-496)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.coordinators.offsets import TopicPartition
from magnetar.kafka.handlers.named_topic import known_topic
from magnetar.serving.pace import paced
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.offset_delete_request import OffsetDeleteRequest
from magnetar.wire.kafka.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def offset_delete(request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    """Answer for each partition; where the group itself stands against it, only with that."""
    rows: list[OffsetDeleteResponsePartition] = []
    wanted: list[TopicPartition] = []
    answers = []
    async for asked in paced(request.topics):
        topic = await known_topic(context.kafka.broker, asked.name)
        answer = OffsetDeleteResponseTopic(name=asked.name)
        answers.append(answer)
        async for partition in paced(asked.partitions):
            row = OffsetDeleteResponsePartition(partition_index=partition.partition_index)
            answer.partitions.append(row)
            if topic is None or not 0 <= partition.partition_index < topic.partitions:
                row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                rows.append(row)
                wanted.append((topic.kafka_name, partition.partition_index))
    if not request.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    try:
        codes = await context.kafka.groups.delete_offsets(request.group_id, wanted)
    except CoordinatorRefused as refused:  # also of who names no topic that there is
        return OffsetDeleteResponse(error_code=refused.code)
    for row, code in zip(rows, codes, strict=True):
        row.error_code = code
    return OffsetDeleteResponse(topics=answers)
