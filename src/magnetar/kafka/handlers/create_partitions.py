"""CreatePartitions: a topic gets more partitions; what it has stays where it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.cluster.ownership import Ownership
from magnetar.kafka.errors import REFUSALS, code_for
from magnetar.kafka.handlers.assignments import PartRefused, check_assignment
from magnetar.kafka.handlers.mutations import mutation_quota
from magnetar.node.broker import Broker
from magnetar.serving.pace import firsts, paced
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from magnetar.wire.kafka.messages.create_partitions_response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext
    from magnetar.kafka.quotas.managers import MutationQuota

_FIRST_STRICT = 3
"""From this version on a client whose quota is used up is told so by an error (KIP-599)."""


async def create_partitions(
    request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    """Grow each topic to ``count`` partitions in all, or with ``validate_only`` say whether that could be."""
    named, again = await firsts(request.topics, lambda topic: topic.name)
    quota = mutation_quota(context, _FIRST_STRICT)
    results = [
        await _grown(
            context.kafka.broker, topic, quota, twice=name in again, validate_only=request.validate_only
        )
        async for name, topic in paced(named.items())
    ]
    wait_ms = 0 if quota is None else quota.wait_ms()
    return CreatePartitionsResponse(results=results, throttle_time_ms=wait_ms)


async def _grown(
    broker: Broker,
    topic: CreatePartitionsTopic,
    quota: MutationQuota | None,
    *,
    twice: bool,
    validate_only: bool,
) -> CreatePartitionsTopicResult:
    answer = CreatePartitionsTopicResult(name=topic.name)
    try:
        if twice:
            raise PartRefused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        more = topic.count - broker.growable_topic(topic.name, topic.count).partitions
        _check_assignments(topic, more, broker.cluster.ownership)
        if quota is not None:
            quota.take(more)
        if not validate_only:
            await broker.grow_topic(topic.name, topic.count)
    except PartRefused as refused:
        answer.error_code, answer.error_message = refused.code, str(refused)
    except REFUSALS as error:
        answer.error_code, answer.error_message = code_for(error), str(error)
    return answer


def _check_assignments(topic: CreatePartitionsTopic, more: int, ownership: Ownership) -> None:
    if topic.assignments is None:
        return
    given = len(topic.assignments)
    if given != more:
        message = (
            f"Attempted to add {more} additional partition(s), but only {given} assignment(s) were specified."
        )
        raise PartRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    for row in topic.assignments:
        check_assignment(row.broker_ids, ownership)
