"""DescribeShareGroupOffsets: where share groups are in their partitions, and how much is left (KIP-932, KIP-1226)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, NamedTuple

from magnetar.kafka.coordinators.refused import CoordinatorRefused
from magnetar.kafka.errors import code_for
from magnetar.kafka.handlers.named_topic import named_topic
from magnetar.kafka.handlers.share_offsets import find_group
from magnetar.kafka.pace import paced
from magnetar.kafka.shares.state import UNSET, ShareKey
from magnetar.wire.kafka.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from magnetar.wire.kafka.messages.describe_share_group_offsets_response import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from magnetar.broker.topic import Topic
    from magnetar.kafka.context import RequestContext
    from magnetar.kafka.shares.shares import Shares


async def describe_share_group_offsets(
    request: DescribeShareGroupOffsetsRequest, context: RequestContext
) -> DescribeShareGroupOffsetsResponse:
    """Tell of each group; without topics, of all that it reads, or has read."""
    shares = await context.kafka.shares.get()
    await shares.states.loaded()
    groups = []
    async for asked in paced(request.groups):
        group = DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id)
        groups.append(group)
        try:
            async for wanted in _wanted(asked, context, shares):
                group.topics.append(await _topic(asked.group_id, wanted, context, shares))
        except CoordinatorRefused as refused:
            group.topics, group.error_code, group.error_message = [], refused.code, str(refused)
    return DescribeShareGroupOffsetsResponse(groups=groups)


class _Wanted(NamedTuple):
    name: str
    topic: Topic | None
    partitions: list[int]


async def _wanted(
    asked: DescribeShareGroupOffsetsRequestGroup, context: RequestContext, shares: Shares
) -> AsyncIterator[_Wanted]:
    broker = context.kafka.broker
    if asked.topics is not None:
        async for row in paced(asked.topics):
            yield _Wanted(row.topic_name, named_topic(broker, row.topic_name), row.partitions)
        return
    group = find_group(context, asked.group_id)
    found: dict[bytes, set[int]] = {}
    for key in shares.states.of_group(asked.group_id):
        found.setdefault(key.topic_id, set()).add(key.partition)
    for target in group.targets.values():
        for topic_id, indexes in target.items():
            found.setdefault(topic_id, set()).update(indexes)
    for topic_id, partitions in found.items():
        topic = broker.get_by_id(topic_id)
        if topic is not None:
            yield _Wanted(topic.kafka_name, topic, sorted(partitions))


async def _topic(
    group_id: str, wanted: _Wanted, context: RequestContext, shares: Shares
) -> DescribeShareGroupOffsetsResponseTopic:
    answer = DescribeShareGroupOffsetsResponseTopic(topic_name=wanted.name)
    if wanted.topic is not None:
        answer.topic_id = wanted.topic.topic_id
    async for index in paced(wanted.partitions):
        row = DescribeShareGroupOffsetsResponsePartition(partition_index=index, start_offset=UNSET)
        answer.partitions.append(row)
        if wanted.topic is None or not 0 <= index < wanted.topic.partitions:
            continue  # nobody has begun there: Kafka says no more of what does not exist
        try:
            await _fill(row, ShareKey(group_id, wanted.topic.topic_id, index), wanted.topic, context, shares)
        except CoordinatorRefused as refused:
            row.error_code, row.error_message = refused.code, str(refused)
        except Exception as error:
            row.error_code = code_for(error)
    return answer


async def _fill(
    row: DescribeShareGroupOffsetsResponsePartition,
    key: ShareKey,
    topic: Topic,
    context: RequestContext,
    shares: Shares,
) -> None:
    state = shares.states.find(key)
    if state is None:
        return
    row.start_offset, row.leader_epoch = state.start_offset, state.leader_epoch
    if state.start_offset != UNSET:
        log = (await context.kafka.partitions.get(topic, key.partition)).log
        row.lag = max(log.high_watermark - state.start_offset - max(state.complete, 0), 0)
