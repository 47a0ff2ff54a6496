"""DeleteShareGroupOffsets: an empty share group forgets topics; it begins anew should it read them again (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.handlers.named_topic import named_topic
from magnetar.kafka.handlers.share_offsets import find_empty_group
from magnetar.serving.pace import paced
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.delete_share_group_offsets_request import DeleteShareGroupOffsetsRequest
from magnetar.wire.kafka.messages.delete_share_group_offsets_response import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def delete_share_group_offsets(
    request: DeleteShareGroupOffsetsRequest, context: RequestContext
) -> DeleteShareGroupOffsetsResponse:
    """Answer for each topic once it is durably forgotten."""
    shares = await context.kafka.shares.get()
    try:
        find_empty_group(context, request.group_id)
        kept = list(await shares.anywhere.of_group(request.group_id))
    except CoordinatorRefused as refused:
        return DeleteShareGroupOffsetsResponse(error_code=refused.code, error_message=str(refused))
    answers = []
    async for asked in paced(request.topics):
        topic = named_topic(context.kafka.broker, asked.topic_name)
        answer = DeleteShareGroupOffsetsResponseTopic(topic_name=asked.topic_name)
        answers.append(answer)
        if topic is None:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            continue
        answer.topic_id = topic.topic_id
        try:
            for key in kept:
                if key.topic_id == topic.topic_id:
                    await shares.anywhere.delete(key)
                    shares.forget(key)
        except CoordinatorRefused as refused:
            answer.error_code, answer.error_message = refused.code, str(refused)
    return DeleteShareGroupOffsetsResponse(responses=answers)
