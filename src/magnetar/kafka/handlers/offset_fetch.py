"""OffsetFetch: how far groups have read; many groups since version 8, by topic id since version 10."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.coordinators.facts import Committed
from magnetar.kafka.coordinators.groups import Offsets
from magnetar.kafka.coordinators.pending import Name
from magnetar.kafka.handlers.named_topic import named_topic
from magnetar.kafka.handlers.once import once
from magnetar.node.broker import Broker
from magnetar.serving.pace import paced
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
_LIBRDKAFKAS = frozenset({7, 9})
"""The versions that librdkafka asks in; Sarama, which looks at rows first, asks in 8 and in those below 7."""
_ELSEWHERE = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_NOTHING = Committed(-1)
_UNSTABLE = Committed(-1)
"""In the place of what a transaction that is still open may change."""


async def offset_fetch(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    """Answer with what is committed durably, -1 where nothing is.

    Who asks for ``require_stable`` is told UNSTABLE_OFFSET_COMMIT of what an open transaction has committed too, and
    asks again (KIP-447): whoever takes over a partition would else begin before records that the transaction of its
    owner before is just about to have read.
    """
    stable = request.require_stable
    if context.api_version >= _FIRST_WITH_GROUPS:
        return OffsetFetchResponse(
            groups=[await _group(asked, stable, context) async for asked in paced(once(request.groups))]
        )
    return await _old_answer(await _group(await _as_group(request), stable, context))


async def _group(
    asked: OffsetFetchRequestGroup, stable: bool, context: RequestContext
) -> OffsetFetchResponseGroup:
    broker = context.kafka.broker
    try:
        offsets = await context.kafka.groups.fetch(
            asked.group_id,
            lambda kept, pending: _taken(broker, asked, kept, pending if stable else ()),
            asked.member_id or "",
            asked.member_epoch,
        )
    except CoordinatorRefused as refused:
        return OffsetFetchResponseGroup(
            group_id=asked.group_id,
            error_code=refused.code,
            topics=await _refused_rows(asked, refused.code, context.api_version),
        )
    if asked.topics is None:
        topics = await _all_topics(broker, offsets, by_id=context.api_version >= _FIRST_WITH_IDS)
    else:
        topics = [await _topic(broker, topic, offsets) async for topic in paced(asked.topics)]
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)


async def _refused_rows(
    asked: OffsetFetchRequestGroup, code: ErrorCode, version: int
) -> list[OffsetFetchResponseTopics]:
    """Return the rows beside a group's error: before version 2 there is no other place for it, later Kafka sends none.

    But without rows librdkafka's consumer looks for the coordinator and does not ask it, ever, so it never fetches
    (confluentinc/librdkafka#5586, open). In Kafka coordinators hardly move; here bundles do. Whoever looks at the
    group's error first does not see them.
    """
    if version >= _FIRST_WITH_GROUP_ERROR:
        if version not in _LIBRDKAFKAS or code not in _ELSEWHERE:
            return []
        code = ErrorCode.UNSTABLE_OFFSET_COMMIT
    return [
        OffsetFetchResponseTopics(
            name=topic.name,
            partitions=[_row(p, _NOTHING, code) async for p in paced(topic.partition_indexes)],
        )
        async for topic in paced(asked.topics or ())
    ]


def _taken(
    broker: Broker, asked: OffsetFetchRequestGroup, offsets: Offsets, pending: Iterable[Name]
) -> Offsets:
    """Return what is committed now of the topics asked for, and is not ``pending`` as well: it is written into rows
    while others have their turns.
    """
    names: Iterable[str] = offsets
    if asked.topics is not None and len(asked.topics) < len(offsets):
        names = (_name_and_id(broker, topic)[0] for topic in asked.topics)
    taken = {name: dict(offsets[name]) for name in names if name in offsets}
    for _, topic, partition in pending:
        if asked.topics is not None or partition in taken.get(topic, ()):
            taken.setdefault(topic, {})[partition] = _UNSTABLE
    return taken


async def _all_topics(broker: Broker, offsets: Offsets, *, by_id: bool) -> list[OffsetFetchResponseTopics]:
    answers = []
    async for name, kept in paced(offsets.items()):
        topic = named_topic(broker, name)
        if topic is None and by_id:
            # A topic that is gone has no id to be told by.
            continue
        topic_id = ZERO_UUID if topic is None else topic.topic_id
        rows = [
            _row(partition, committed)
            async for partition, committed in paced(kept.items())
            if _is_of(committed, topic_id)
        ]
        answers.append(OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=rows))
    return answers


async def _topic(
    broker: Broker, asked: OffsetFetchRequestTopics, offsets: Offsets
) -> OffsetFetchResponseTopics:
    answer = OffsetFetchResponseTopics(name=asked.name, topic_id=asked.topic_id)
    name, topic_id = _name_and_id(broker, asked)
    code = ErrorCode.NONE if name else ErrorCode.UNKNOWN_TOPIC_ID
    kept = offsets.get(name, {}) if name else {}
    async for partition in paced(asked.partition_indexes):
        committed = kept.get(partition, _NOTHING)
        answer.partitions.append(
            _row(partition, committed if _is_of(committed, topic_id) else _NOTHING, code)
        )
    return answer


def _name_and_id(broker: Broker, asked: OffsetFetchRequestTopics) -> tuple[str, bytes]:
    """Return what a topic's offsets are kept by; no name if it is asked for by an id that there is not."""
    topic = named_topic(broker, asked.name, asked.topic_id)
    return (asked.name, ZERO_UUID) if topic is None else (topic.kafka_name, topic.topic_id)


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
        error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT if committed is _UNSTABLE else code,
    )


async def _as_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = request.topics
    return OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            async for topic in paced(topics)
        ],
    )


async def _old_answer(group: OffsetFetchResponseGroup) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name, partitions=[_old_row(row) async for row in paced(topic.partitions)]
            )
            async for topic in paced(group.topics)
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
