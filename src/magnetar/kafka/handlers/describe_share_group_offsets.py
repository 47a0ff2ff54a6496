"""DescribeShareGroupOffsets: where share groups are in their partitions, and how much is left (KIP-932, KIP-1226)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.handlers.named_topic import named_topic
from magnetar.kafka.handlers.once import once
from magnetar.kafka.handlers.share_lags import Lags
from magnetar.kafka.handlers.share_offsets import find_group
from magnetar.kafka.shares.state import UNSET, ShareKey
from magnetar.serving.pace import paced
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
    from magnetar.kafka.context import RequestContext
    from magnetar.kafka.shares.states_anywhere import KnownState
    from magnetar.topics.topic import Topic


async def describe_share_group_offsets(
    request: DescribeShareGroupOffsetsRequest, context: RequestContext
) -> DescribeShareGroupOffsetsResponse:
    """Tell of each group; without topics, of all that it reads, or has read."""
    shares = await context.kafka.shares.get()
    groups, known = [], []
    ids: set[str] = set()
    async for asked in paced(once(request.groups)):
        group = DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id)
        groups.append(group)
        try:
            if asked.topics is None:
                find_group(context, asked.group_id)  # most states may be other brokers' to tell of
        except CoordinatorRefused as refused:
            _refuse(group, refused)
        else:
            known.append((asked, group))
            ids.add(asked.group_id)
    try:
        states = await shares.anywhere.of_groups(ids)
    except CoordinatorRefused as refused:
        async for _, group in paced(known):
            _refuse(group, refused)
        return DescribeShareGroupOffsetsResponse(groups=groups)
    lags = Lags(context, shares)
    async for asked, group in paced(known):
        kept = states[asked.group_id]
        try:
            async for wanted in _wanted(asked, context, kept):
                group.topics.append(await _topic(asked.group_id, wanted, kept, lags))
        except CoordinatorRefused as refused:
            group.topics = []
            _refuse(group, refused)
    await lags.fill()
    return DescribeShareGroupOffsetsResponse(groups=groups)


def _refuse(group: DescribeShareGroupOffsetsResponseGroup, refused: CoordinatorRefused) -> None:
    group.error_code, group.error_message = refused.code, str(refused)


class _Wanted(NamedTuple):
    name: str
    topic: Topic | None
    partitions: list[int]


async def _wanted(
    asked: DescribeShareGroupOffsetsRequestGroup, context: RequestContext, states: Iterable[ShareKey]
) -> AsyncIterator[_Wanted]:
    broker = context.kafka.broker
    if asked.topics is not None:
        async for row in paced(asked.topics):
            yield _Wanted(row.topic_name, named_topic(broker, row.topic_name), row.partitions)
        return
    group = find_group(context, asked.group_id)
    found: dict[bytes, set[int]] = {}
    for key in states:
        found.setdefault(key.topic_id, set()).add(key.partition)
    for target in group.targets.values():
        for topic_id, indexes in target.items():
            found.setdefault(topic_id, set()).update(indexes)
    for topic_id, partitions in found.items():
        topic = broker.get_by_id(topic_id)
        if topic is not None:
            yield _Wanted(topic.kafka_name, topic, sorted(partitions))


async def _topic(
    group_id: str, wanted: _Wanted, states: Mapping[ShareKey, KnownState], lags: Lags
) -> DescribeShareGroupOffsetsResponseTopic:
    answer = DescribeShareGroupOffsetsResponseTopic(topic_name=wanted.name)
    if wanted.topic is not None:
        answer.topic_id = wanted.topic.topic_id
    async for index in paced(wanted.partitions):
        row = DescribeShareGroupOffsetsResponsePartition(partition_index=index, start_offset=UNSET)
        answer.partitions.append(row)
        if wanted.topic is None or not 0 <= index < wanted.topic.partitions:
            continue  # nobody has begun there: Kafka says no more of what does not exist
        state = states.get(ShareKey(group_id, wanted.topic.topic_id, index))
        if state is not None:
            row.start_offset, row.leader_epoch = state.start_offset, state.leader_epoch
            if state.start_offset != UNSET:
                lags.want(row, wanted.topic, state)
    return answer
