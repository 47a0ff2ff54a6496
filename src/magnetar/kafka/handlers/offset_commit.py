"""OffsetCommit: keep how far a group has read; by topic id since version 10 (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.coordinators.facts import Committer, OffsetCommit
from magnetar.kafka.handlers.noted_offsets import noted_offsets
from magnetar.node.broker import Broker
from magnetar.serving.pace import paced
from magnetar.wire.kafka.messages.offset_commit_request import OffsetCommitRequest, OffsetCommitRequestTopic
from magnetar.wire.kafka.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def offset_commit(request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse:
    """Answer when the offsets are durable; those of unknown topics and partitions are refused one by one."""
    rows: list[OffsetCommitResponsePartition] = []
    commits: list[OffsetCommit] = []
    answers = [
        await _topic(context.kafka.broker, topic, rows, commits) async for topic in paced(request.topics)
    ]
    if commits:
        who = Committer(
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            request.retention_time_ms,
        )
        try:
            codes = await context.kafka.groups.commit(request.group_id, who, commits, context.api_version)
        except CoordinatorRefused as refused:
            codes = [refused.code] * len(rows)
        async for row, code in paced(zip(rows, codes, strict=True)):
            row.error_code = code
    return OffsetCommitResponse(topics=answers)


async def _topic(
    broker: Broker,
    asked: OffsetCommitRequestTopic,
    rows: list[OffsetCommitResponsePartition],
    commits: list[OffsetCommit],
) -> OffsetCommitResponseTopic:
    partitions = await noted_offsets(broker, asked, OffsetCommitResponsePartition, rows, commits)
    return OffsetCommitResponseTopic(name=asked.name, topic_id=asked.topic_id, partitions=partitions)
