"""DeleteTopics: by name, or since version 6 by id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from magnetar.kafka.errors import REFUSALS, code_for
from magnetar.kafka.handlers.assignments import PartRefused
from magnetar.kafka.handlers.mutations import mutation_quota
from magnetar.node.broker import Broker
from magnetar.serving.pace import paced
from magnetar.topics.topic import Topic
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.delete_topics_request import DeleteTopicsRequest
from magnetar.wire.kafka.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from magnetar.wire.kafka.primitives import ZERO_UUID

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext
    from magnetar.kafka.quotas.managers import MutationQuota

_FIRST_STRICT = 5
"""From this version on a client whose quota is used up is told so by an error (KIP-599)."""


async def delete_topics(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    """Delete each topic with all that it holds; when the answer comes, its name is free again.

    What is asked for twice stays. A topic that is named and whose id is given, too, is answered once, by its name.
    """
    broker = context.kafka.broker
    times: Counter[tuple[str | None, bytes]] = Counter()
    async for topic in paced(request.topics):
        times[topic.name, topic.topic_id] += 1
    if not request.topics:
        async for name in paced(request.topic_names):
            times[name, ZERO_UUID] += 1
    ids = {topic_id async for name, topic_id in paced(times) if name is None}
    both = ids & await _named_ids(broker, times) if ids else ids
    quota = mutation_quota(context, _FIRST_STRICT)
    answers = [
        await _delete(broker, quota, name, topic_id, twice=count > 1, both=both)
        async for (name, topic_id), count in paced(times.items())
        if name is not None or topic_id not in both
    ]
    wait_ms = 0 if quota is None else quota.wait_ms()
    return DeleteTopicsResponse(responses=answers, throttle_time_ms=wait_ms)


async def _named_ids(broker: Broker, wanted: Iterable[tuple[str | None, bytes]]) -> set[bytes]:
    topics = [
        _by_name(broker, name)
        async for name, topic_id in paced(wanted)
        if name is not None and topic_id == ZERO_UUID
    ]
    return {topic.topic_id for topic in topics if topic is not None}


async def _delete(
    broker: Broker,
    quota: MutationQuota | None,
    name: str | None,
    topic_id: bytes,
    *,
    twice: bool,
    both: set[bytes],
) -> DeletableTopicResult:
    answer = DeletableTopicResult(name=name, topic_id=topic_id)
    try:
        if twice:
            raise PartRefused(
                ErrorCode.INVALID_REQUEST, f"Duplicate topic {'id' if name is None else 'name'}."
            )
        answer.name, answer.topic_id = _found(broker, name, topic_id)
        if answer.topic_id in both:
            message = "The provided topic name maps to an ID that was already supplied."
            raise PartRefused(ErrorCode.INVALID_REQUEST, message)
        if quota is not None:
            quota.take(broker.topic(answer.name).partitions)
        await broker.delete_topic(answer.name)
    except PartRefused as refused:
        answer.error_code, answer.error_message = refused.code, str(refused)
    except REFUSALS as error:
        answer.error_code, answer.error_message = code_for(error), str(error)
    return answer


def _found(broker: Broker, name: str | None, topic_id: bytes) -> tuple[str, bytes]:
    """Return the name (as asked for) and the id of what is to be deleted; raise `PartRefused`."""
    if name is not None and topic_id != ZERO_UUID:
        raise PartRefused(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if name is None and topic_id == ZERO_UUID:
        raise PartRefused(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    topic = broker.get_by_id(topic_id) if name is None else _by_name(broker, name)
    if topic is None or not broker.visible(topic):
        code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise PartRefused(code, "This server does not host this topic.")
    if not broker.settings.topics.delete_topic_enable:
        raise PartRefused(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    if topic.internal:
        # The coordinators' memory would go with it.
        raise PartRefused(ErrorCode.POLICY_VIOLATION, f"{topic.kafka_name} is the coordinators' own.")
    return name or topic.kafka_name, topic.topic_id


def _by_name(broker: Broker, name: str) -> Topic | None:
    try:
        return broker.get(name)
    except REFUSALS:
        return None
