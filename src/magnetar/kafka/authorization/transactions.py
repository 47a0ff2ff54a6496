"""Requests about transactions.

Pulsar's grants name no transactional ids: whoever may produce anywhere may have one, but none that has a transaction
open over topics that it may not write to. Kafka's ACLs name them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from magnetar.broker.auth import Right
from magnetar.kafka.authorization.checks import Checks
from magnetar.kafka.authorization.groups import DENIED as GROUP_DENIED
from magnetar.kafka.authorization.topics import DENIED as TOPIC_DENIED
from magnetar.kafka.authorization.topics import split
from magnetar.kafka.coordinators.refused import CoordinatorRefused
from magnetar.kafka.pace import paced
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from magnetar.wire.kafka.messages.add_partitions_to_txn_request import AddPartitionsToTxnTopic
from magnetar.wire.kafka.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from magnetar.wire.kafka.messages.describe_transactions_response import TransactionState
from magnetar.wire.kafka.messages.end_txn_response import EndTxnResponse
from magnetar.wire.kafka.messages.init_producer_id_response import InitProducerIdResponse
from magnetar.wire.kafka.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from magnetar.wire.kafka.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext
    from magnetar.kafka.route import Handler

DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
FIRST_OF_BROKERS = 4
"""Versions of AddPartitionsToTxn from here on name many transactions, and are asked by brokers."""
CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def may_write_as(transactional_id: str, context: RequestContext, checks: Checks) -> bool:
    """WRITE on a transactional id."""
    if not checks.transacts(transactional_id):
        return False
    try:
        found = (await context.kafka.transactions.get()).describe(transactional_id)
    except CoordinatorRefused:
        return True
    internal = context.kafka.groups.topic
    return all(checks.writes(topic) for topic in {each.topic for each in found.partitions} - {internal})


async def may_see(transactional_id: str, context: RequestContext, checks: Checks) -> bool:
    """DESCRIBE on a transactional id."""
    return (
        checks.operates()
        or checks.sees_transaction(transactional_id)
        or (
            checks.finds_transaction(transactional_id)  # no ACL forbids it
            and await may_write_as(transactional_id, context, checks)
        )
    )


async def init_producer_id(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    """IDEMPOTENT_WRITE on the cluster, or WRITE on the transactional id."""
    if request.transactional_id:
        allowed, code = await may_write_as(request.transactional_id, context, checks), DENIED
    else:
        allowed, code = checks.produces_somewhere(), CLUSTER_DENIED
    if allowed:
        return await answer(request, context)
    return InitProducerIdResponse(error_code=code, producer_epoch=-1)


async def add_partitions_to_txn(
    request: Any, context: RequestContext, checks: Checks, answer: Handler
) -> Any:
    """WRITE on the transactional id, and on each topic; for brokers CLUSTER_ACTION."""
    if context.api_version >= FIRST_OF_BROKERS:
        if checks.on_cluster(Right.act_for_cluster):
            return await answer(request, context)
        return AddPartitionsToTxnResponse(error_code=CLUSTER_DENIED)
    topics = request.v3_and_below_topics
    if not await may_write_as(request.v3_and_below_transactional_id, context, checks):
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_refused_topics(topics, DENIED))
    allowed, denied = await split(topics, lambda topic: checks.writes(topic.name))
    if not denied:
        return await answer(request, context)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            *_refused_topics(allowed, ErrorCode.OPERATION_NOT_ATTEMPTED),
            *_refused_topics(denied, TOPIC_DENIED),
        ]
    )


async def add_offsets_to_txn(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    """WRITE on the transactional id, READ on the group."""
    if not await may_write_as(request.transactional_id, context, checks):
        return AddOffsetsToTxnResponse(error_code=DENIED)
    if not checks.uses(request.group_id):
        return AddOffsetsToTxnResponse(error_code=GROUP_DENIED)
    return await answer(request, context)


async def end_txn(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    """WRITE on the transactional id."""
    if not await may_write_as(request.transactional_id, context, checks):
        return EndTxnResponse(error_code=DENIED)
    return await answer(request, context)


async def txn_offset_commit(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    """WRITE on the transactional id, READ on the group, and READ on each topic."""
    code, denied = TOPIC_DENIED, request.topics
    if not await may_write_as(request.transactional_id, context, checks):
        code, request.topics = DENIED, []
    elif not checks.uses(request.group_id):
        code, request.topics = GROUP_DENIED, []
    else:
        request.topics, denied = await split(
            request.topics, lambda topic: checks.reads(topic.name, topic.topic_id, request.group_id)
        )
    response = await answer(request, context)
    response.topics += [
        TxnOffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                async for each in paced(topic.partitions)
            ],
        )
        async for topic in paced(denied)
    ]
    return response


async def write_txn_markers(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    """CLUSTER_ACTION or ALTER on the cluster."""
    if checks.on_cluster(Right.act_for_cluster) or checks.on_cluster(Right.alter_cluster):
        return await answer(request, context)
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=each.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=CLUSTER_DENIED)
                            async for index in paced(topic.partition_indexes)
                        ],
                    )
                    async for topic in paced(each.topics)
                ],
            )
            async for each in paced(request.markers)
        ]
    )


async def describe_transactions(
    request: Any, context: RequestContext, checks: Checks, answer: Handler
) -> Any:
    """DESCRIBE on each transactional id; of its topics, those that may be seen."""
    allowed: list[str] = []
    denied: list[str] = []
    async for each in paced(request.transactional_ids):
        (allowed if await may_see(each, context, checks) else denied).append(each)
    request.transactional_ids = allowed
    response = await answer(request, context)
    async for each in paced(response.transaction_states):
        each.topics = [topic for topic in each.topics if checks.sees(topic.topic)]
    response.transaction_states += [
        TransactionState(error_code=DENIED, transactional_id=each) async for each in paced(denied)
    ]
    return response


async def list_transactions(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    """Of all transactional ids, those that may be seen."""
    response = await answer(request, context)
    if not checks.operates():
        response.transaction_states = [
            each
            async for each in paced(response.transaction_states)
            if await may_see(each.transactional_id, context, checks)
        ]
    return response


def _refused_topics(
    topics: Iterable[AddPartitionsToTxnTopic], code: ErrorCode
) -> list[AddPartitionsToTxnTopicResult]:
    """Return the same answer for each partition."""
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
