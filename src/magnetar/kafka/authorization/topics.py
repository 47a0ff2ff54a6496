"""Requests about topics: those that the asker may not touch are answered here, the others by their handler."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from magnetar.auth import Right
from magnetar.kafka.authorization import operations
from magnetar.kafka.authorization.checks import FEW_TOPICS, Checks
from magnetar.kafka.operations import NOT_ASKED
from magnetar.records.batch import is_transactional
from magnetar.serving.pace import paced
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.delete_topics_response import DeletableTopicResult
from magnetar.wire.kafka.messages.metadata_response import MetadataResponseTopic
from magnetar.wire.kafka.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from magnetar.wire.kafka.primitives import ZERO_UUID

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext
    from magnetar.kafka.route import Handler

T = TypeVar("T")
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
MESSAGE = "Topic authorization failed."
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NOT_THERE = "This server does not host this topic."
NO_TRANSACTION = (
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    "Transactional Id authorization failed.",
)


async def split(rows: Iterable[T], allowed: Callable[[T], bool]) -> tuple[list[T], list[T]]:
    """Return the rows that are allowed, and the others."""
    yes: list[T] = []
    no: list[T] = []
    async for row in paced(rows):
        (yes if allowed(row) else no).append(row)
    return yes, no


async def produce(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    """WRITE on each topic, and on the transactional id of transactional batches, without which none is taken.

    A client that wants no answer learns of a refusal by losing its connection. Brokers may write to the dead-letter
    queues of share groups, for each other.
    """
    transactional_id = request.transactional_id
    if (
        transactional_id is not None
        and not checks.transacts_here(transactional_id)
        and await _is_transactional(request)
    ):
        return await _refuse_batches(
            ProduceResponse(responses=[]), request, request.topic_data, NO_TRANSACTION
        )
    async for topic in paced(request.topic_data):
        if not checks.writes(topic.name, topic.topic_id):
            break
    else:
        if transactional_id is None:
            checks.remember_written(request.topic_data[:FEW_TOPICS])
        return await answer(request, context)
    for_cluster = checks.on_cluster(Right.act_for_cluster)
    allowed, denied = await split(
        request.topic_data,
        lambda topic: (
            checks.writes(topic.name, topic.topic_id)
            or (for_cluster and checks.takes_dead_letters(topic.name, topic.topic_id))
        ),
    )
    request.topic_data = allowed
    response = await answer(request, context) if allowed else ProduceResponse(responses=[])
    return await _refuse_batches(response, request, denied, (DENIED, MESSAGE)) if denied else response


async def _is_transactional(request: Any) -> bool:
    async for topic in paced(request.topic_data):
        async for each in paced(topic.partition_data):
            if each.records is not None and is_transactional(each.records):
                return True
    return False


async def _refuse_batches(
    response: Any, request: Any, topics: list[Any], why: tuple[ErrorCode, str]
) -> ProduceResponse:
    """Add refusals to an answer; where none is wanted, end the connection."""
    code, message = why
    if not request.acks:
        raise ConnectionAbortedError(f"acks=0, and {topics[0].name}: {message}")
    response.responses += [
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[
                PartitionProduceResponse(
                    index=each.index, error_code=code, error_message=message, base_offset=-1
                )
                async for each in paced(topic.partition_data)
            ],
        )
        async for topic in paced(topics)
    ]
    return response  # type: ignore[no-any-return]


async def metadata(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    """DESCRIBE on each topic; of all topics, the handler shows those that may be seen.

    One that is named by its id is as if it were not there.
    """
    asks_for_all = request.topics is None or (context.api_version == 0 and not request.topics)
    denied: list[Any] = []
    if not asks_for_all:
        allowed, denied = await split(request.topics, lambda topic: checks.sees(*_answered(topic)))
        if request.allow_auto_topic_creation:
            allowed, more = await split(allowed, lambda topic: _may_be_made(topic.name, context, checks))
            denied += more
        # Version 0 would take no topics for all of them.
        request.topics = allowed or ([] if context.api_version else None)
    response = await answer(request, context)
    if not asks_for_all and not request.topics:
        response.topics = []
    response.topics += [_hidden(topic) async for topic in paced(denied)]
    async for topic in paced(response.topics):
        if topic.topic_authorized_operations != NOT_ASKED:
            topic.topic_authorized_operations = operations.of_topic(checks, topic.name)
    if response.cluster_authorized_operations != NOT_ASKED:
        response.cluster_authorized_operations = operations.of_cluster(checks)
    return response


def _may_be_made(name: str | None, context: RequestContext, checks: Checks) -> bool:
    """CREATE on a topic that is not there and would be made, or on the cluster."""
    broker = context.kafka.broker
    if not name or checks.named(name) is None or broker.get(name) is not None:
        return True
    return not broker.settings.topics.auto_create_topics_enable or checks.creates_unasked(name)


def _answered(topic: Any) -> tuple[str | None, bytes]:
    """Return name and id of the topic that the answer is about: where both are given, the id alone counts."""
    return (None if topic.topic_id != ZERO_UUID else topic.name), topic.topic_id


def _hidden(topic: Any) -> MetadataResponseTopic:
    if topic.name is None or topic.topic_id != ZERO_UUID:
        return MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic.topic_id
        )
    return MetadataResponseTopic(error_code=DENIED, name=topic.name)


async def delete_topics(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    """DELETE on each topic, by name or by id; of one that is not there, who may DESCRIBE it is told so."""
    request.topic_names, names = await split(request.topic_names, checks.deletes)
    request.topics, rows = await split(
        request.topics, lambda topic: checks.deletes(topic.name, topic.topic_id)
    )
    response = await answer(request, context)

    def is_missing(name: str | None) -> bool:
        return name is not None and checks.sees(name) and context.kafka.broker.get(name) is None

    hidden = [(name, ZERO_UUID) async for name in paced(names)]
    hidden += [(row.name, row.topic_id) async for row in paced(rows)]
    response.responses += [
        DeletableTopicResult(name=name, error_code=UNKNOWN, error_message=NOT_THERE)
        if topic_id == ZERO_UUID and is_missing(name)
        else DeletableTopicResult(name=name, topic_id=topic_id, error_code=DENIED, error_message=MESSAGE)
        async for name, topic_id in paced(hidden)
    ]
    return response
