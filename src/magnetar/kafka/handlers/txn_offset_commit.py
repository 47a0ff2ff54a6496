"""TxnOffsetCommit: offsets that count when their transaction is committed; by topic id since version 6 (KIP-1319)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.base.errors import BrokerError
from magnetar.coordination.decision import Transaction
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.coordinators.facts import Committer, OffsetCommit
from magnetar.kafka.handlers.noted_offsets import noted_offsets
from magnetar.kafka.handlers.transactional import EPOCH_BUMPED, OF_OFFSETS
from magnetar.kafka.transactions.decider import ProducerIdAndEpoch
from magnetar.kafka.transactions.metadata import TransactionPartition
from magnetar.metadata import MetadataError
from magnetar.serving.pace import paced
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
)
from magnetar.wire.kafka.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

_FIRST_WITH_ABORTABLE, _FIRST_THAT_ADDS = 4, 5
_LATEST_COMMIT = 10


async def txn_offset_commit(
    request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse:
    """Answer when the offsets are durable, and pending; those of unknown topics are refused one by one."""
    rows: list[TxnOffsetCommitResponsePartition] = []
    commits: list[OffsetCommit] = []
    answers = [await _topic(context, topic, rows, commits) async for topic in paced(request.topics)]
    if commits:
        try:
            codes = await _commit(request, commits, context)
        except CoordinatorRefused as refused:
            codes = [_as_told(refused.code, context.api_version)] * len(rows)
        for row, code in zip(rows, codes, strict=True):
            row.error_code = code
    return TxnOffsetCommitResponse(topics=answers)


async def _commit(
    request: TxnOffsetCommitRequest, commits: list[OffsetCommit], context: RequestContext
) -> list[ErrorCode]:
    groups = context.kafka.groups
    name = request.transactional_id
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    where = TransactionPartition(groups.topic, groups.partition_of(request.group_id))
    admission = await context.kafka.transactions.admission()
    try:
        # The broker that coordinates the transaction takes no partition of a topic that is not there.
        await context.kafka.broker.create_internal(groups.topic)
    except (BrokerError, MetadataError):
        raise CoordinatorRefused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) from None
    try:
        # Without a wait from here to the group's decision: none of a transaction that has ended may come to it.
        code = await admission.admit(
            name, producer, where, EPOCH_BUMPED, adds=context.api_version >= _FIRST_THAT_ADDS
        )
    except CoordinatorRefused as refused:
        raise CoordinatorRefused(OF_OFFSETS.get(refused.code, refused.code)) from None
    if code is not ErrorCode.NONE:
        raise CoordinatorRefused(code)
    who = Committer(request.member_id, request.group_instance_id, request.generation_id_or_member_epoch)
    return await groups.commit(
        request.group_id, who, commits, _LATEST_COMMIT, tell=False, transaction=Transaction(*producer)
    )


def _as_told(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _FIRST_WITH_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    return code


async def _topic(
    context: RequestContext,
    asked: TxnOffsetCommitRequestTopic,
    rows: list[TxnOffsetCommitResponsePartition],
    commits: list[OffsetCommit],
) -> TxnOffsetCommitResponseTopic:
    partitions = await noted_offsets(
        context.kafka.broker, asked, TxnOffsetCommitResponsePartition, rows, commits
    )
    return TxnOffsetCommitResponseTopic(name=asked.name, topic_id=asked.topic_id, partitions=partitions)
