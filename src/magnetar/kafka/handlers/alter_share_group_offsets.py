"""AlterShareGroupOffsets: an empty share group begins elsewhere, whatever it was done with (KIP-932).

A group that is not there is made, as in Kafka, so that it can be told where to begin before anybody joins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.handlers.named_topic import named_topic
from magnetar.kafka.handlers.share_offsets import check_empty, moving_subscription
from magnetar.kafka.shares.state import ShareKey
from magnetar.serving.pace import paced
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.alter_share_group_offsets_request import AlterShareGroupOffsetsRequest
from magnetar.wire.kafka.messages.alter_share_group_offsets_response import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def alter_share_group_offsets(
    request: AlterShareGroupOffsetsRequest, context: RequestContext
) -> AlterShareGroupOffsetsResponse:
    """Answer for each partition once it is durable."""
    shares = await context.kafka.shares.get()
    try:
        if not request.group_id:
            raise CoordinatorRefused(ErrorCode.INVALID_GROUP_ID, "Group id must not be empty.")
        check_empty(await context.kafka.groups.make_share_group(request.group_id))
    except CoordinatorRefused as refused:
        return AlterShareGroupOffsetsResponse(error_code=refused.code, error_message=str(refused))
    answers = []
    async for asked in paced(request.topics):
        topic = named_topic(context.kafka.broker, asked.topic_name)
        answer = AlterShareGroupOffsetsResponseTopic(topic_name=asked.topic_name)
        answers.append(answer)
        if topic is not None:
            answer.topic_id = topic.topic_id
        async for wanted in paced(asked.partitions):
            row = AlterShareGroupOffsetsResponsePartition(partition_index=wanted.partition_index)
            answer.partitions.append(row)
            try:
                if topic is None or not 0 <= wanted.partition_index < topic.partitions:
                    raise CoordinatorRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                if wanted.start_offset < 0:
                    raise CoordinatorRefused(ErrorCode.INVALID_REQUEST, "The offset must not be negative.")
                key = ShareKey(request.group_id, topic.topic_id, wanted.partition_index)
                index, offset = wanted.partition_index, wanted.start_offset
                async with moving_subscription(context, request.group_id, topic, index, offset):
                    await shares.begin_at(key, offset)
            except CoordinatorRefused as refused:
                row.error_code, row.error_message = refused.code, str(refused)
    return AlterShareGroupOffsetsResponse(responses=answers)
