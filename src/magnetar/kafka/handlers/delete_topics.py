"""DeleteTopics: by name, or since version 6 by id."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from magnetar.broker.core import Broker
from magnetar.broker.topic import Topic
from magnetar.kafka.handlers.assignments import Refused
from magnetar.kafka.handlers.broker_errors import REFUSALS, broker_code
from magnetar.kafka.pace import paced
from magnetar.kafka.wire.errors import ErrorCode
from magnetar.kafka.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from magnetar.kafka.wire.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

_NO_ID = bytes(16)


async def delete_topics(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    """Delete each topic with all that it holds; when the answer comes, its name is free again."""
    wanted = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    times = Counter((topic.name, topic.topic_id) for topic in wanted)
    answers = [
        await _delete(context.kafka.broker, name, topic_id, twice=count > 1)
        async for (name, topic_id), count in paced(times.items())
    ]
    return DeleteTopicsResponse(responses=answers)


async def _delete(broker: Broker, name: str | None, topic_id: bytes, *, twice: bool) -> DeletableTopicResult:
    answer = DeletableTopicResult(name=name, topic_id=topic_id)
    try:
        if twice:
            raise Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        answer.name, answer.topic_id = _found(broker, name, topic_id)
        await broker.delete_topic(answer.name)
    except Refused as refused:
        answer.error_code, answer.error_message = refused.code, str(refused)
    except REFUSALS as error:
        answer.error_code, answer.error_message = broker_code(error), str(error)
    return answer


def _found(broker: Broker, name: str | None, topic_id: bytes) -> tuple[str, bytes]:
    """Give the name (as asked for) and the id of what is to be deleted; raise `Refused`."""
    if name is not None and topic_id != _NO_ID:
        raise Refused(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if name is None and topic_id == _NO_ID:
        raise Refused(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    topic = broker.get_by_id(topic_id) if name is None else _by_name(broker, name)
    if topic is None or not broker.visible(topic):
        code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise Refused(code, "This server does not host this topic.")
    if not broker.settings.delete_topic_enable:
        raise Refused(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    if topic.internal:
        # The coordinators' memory would go with it.
        raise Refused(ErrorCode.POLICY_VIOLATION, f"{topic.kafka_name} is the coordinators' own.")
    return name or topic.kafka_name, topic.topic_id


def _by_name(broker: Broker, name: str) -> Topic | None:
    try:
        return broker.get(name)
    except REFUSALS:
        return None
