"""Requests about share groups, and what is kept of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from magnetar.kafka.authorization.checks import Checks
from magnetar.kafka.authorization.groups import DENIED, MESSAGE
from magnetar.kafka.authorization.topics import DENIED as TOPIC_DENIED
from magnetar.kafka.authorization.topics import MESSAGE as TOPIC_MESSAGE
from magnetar.kafka.authorization.topics import split
from magnetar.serving.pace import paced
from magnetar.wire.kafka.messages import (
    describe_share_group_offsets_response,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext
    from magnetar.kafka.route import Handler


# What brokers ask of each other: CLUSTER_ACTION on the cluster.


# Offsets.


async def describe_share_group_offsets(
    request: Any, context: RequestContext, checks: Checks, answer: Handler
) -> Any:
    """DESCRIBE on each group, and on each topic; of all topics, those that may be seen."""
    kind = describe_share_group_offsets_response
    request.groups, denied = await split(request.groups, lambda group: checks.sees_group(group.group_id))
    all_topics = {group.group_id for group in request.groups if group.topics is None}
    response = await answer(request, context)
    async for group in paced(response.groups):
        seen, hidden = await split(group.topics, lambda topic: checks.sees(topic.topic_name))
        group.topics = seen
        if group.group_id in all_topics:
            continue
        async for topic in paced(hidden):
            async for row in paced(topic.partitions):
                row.start_offset, row.lag, row.leader_epoch = -1, -1, 0
                row.error_code, row.error_message = TOPIC_DENIED, TOPIC_MESSAGE
            group.topics.append(topic)
    response.groups += [
        kind.DescribeShareGroupOffsetsResponseGroup(
            group_id=group.group_id, error_code=DENIED, error_message=MESSAGE
        )
        async for group in paced(denied)
    ]
    return response
