"""OffsetFetch: how far groups have read; many groups since version 8, by topic id since version 10."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.broker.core import Broker
from magnetar.kafka.coordinators.facts import Committed
from magnetar.kafka.coordinators.groups import Offsets
from magnetar.kafka.coordinators.refused import CoordinatorRefused
from magnetar.kafka.handlers.named_topic import named_topic
from magnetar.kafka.pace import paced
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from magnetar.wire.kafka.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from magnetar.wire.kafka.primitives import ZERO_UUID

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

_FIRST_WITH_GROUPS = 8
_FIRST_WITH_GROUP_ERROR = 2
_FIRST_WITH_IDS = 10
_NOTHING = Committed(-1)


async def offset_fetch(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    """Answer with what is committed durably, -1 where nothing is; so ``require_stable`` asks for nothing more."""
    if context.api_version >= _FIRST_WITH_GROUPS:
        return OffsetFetchResponse(
            groups=[await _group(asked, context) async for asked in paced(request.groups)]
        )
    return _old_answer(await _group(_as_group(request), context), request, context.api_version)


async def _group(asked: OffsetFetchRequestGroup, context: RequestContext) -> OffsetFetchResponseGroup:
    broker = context.kafka.broker

    def read(offsets: Offsets) -> list[OffsetFetchResponseTopics]:
        if asked.topics is None:
            return _all_topics(broker, offsets, by_id=context.api_version >= _FIRST_WITH_IDS)
        return [_topic(broker, topic, offsets) for topic in asked.topics]

    try:
        topics = await context.kafka.groups.fetch(
            asked.group_id, read, asked.member_id or "", asked.member_epoch
        )
    except CoordinatorRefused as refused:
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=refused.code)
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)


def _all_topics(broker: Broker, offsets: Offsets, *, by_id: bool) -> list[OffsetFetchResponseTopics]:
    answers = []
    for name, kept in offsets.items():
        topic = named_topic(broker, name)
        if topic is None and by_id:
            # A topic that is gone has no id to be told by.
            continue
        topic_id = ZERO_UUID if topic is None else topic.topic_id
        rows = [
            _row(partition, committed) for partition, committed in kept.items() if _is_of(committed, topic_id)
        ]
        answers.append(OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=rows))
    return answers


def _topic(broker: Broker, asked: OffsetFetchRequestTopics, offsets: Offsets) -> OffsetFetchResponseTopics:
    answer = OffsetFetchResponseTopics(name=asked.name, topic_id=asked.topic_id)
    topic = named_topic(broker, asked.name, asked.topic_id)
    if topic is None and not asked.name:
        answer.partitions = [
            _row(partition, _NOTHING, ErrorCode.UNKNOWN_TOPIC_ID) for partition in asked.partition_indexes
        ]
        return answer
    name, topic_id = (asked.name, ZERO_UUID) if topic is None else (topic.kafka_name, topic.topic_id)
    kept = offsets.get(name, {})
    for partition in asked.partition_indexes:
        committed = kept.get(partition, _NOTHING)
        answer.partitions.append(_row(partition, committed if _is_of(committed, topic_id) else _NOTHING))
    return answer


def _is_of(committed: Committed, topic_id: bytes) -> bool:
    """Whether it was committed for this topic, and not for one of the same name that was deleted since."""
    return topic_id == ZERO_UUID or committed.topic_id in (topic_id, ZERO_UUID)


def _row(
    partition: int, committed: Committed, code: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=code,
    )


def _as_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = request.topics
    return OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else [OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes) for t in topics],
    )


def _old_answer(
    group: OffsetFetchResponseGroup, request: OffsetFetchRequest, version: int
) -> OffsetFetchResponse:
    if group.error_code and version < _FIRST_WITH_GROUP_ERROR:
        # There is no place for the group's error but each partition.
        group.topics = [
            OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[_row(p, _NOTHING, ErrorCode(group.error_code)) for p in topic.partition_indexes],
            )
            for topic in request.topics or ()
        ]
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(name=topic.name, partitions=[_old_row(row) for row in topic.partitions])
            for topic in group.topics
        ],
    )


def _old_row(row: OffsetFetchResponsePartitions) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=row.partition_index,
        committed_offset=row.committed_offset,
        committed_leader_epoch=row.committed_leader_epoch,
        metadata=row.metadata,
        error_code=row.error_code,
    )
