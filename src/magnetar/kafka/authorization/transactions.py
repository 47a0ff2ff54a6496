"""Requests about transactions.

Pulsar's grants name no transactional ids: whoever may produce anywhere may have one, but none that is another role's,
or that has a transaction open over topics that it may not write to. Kafka's ACLs name them, and for whom they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from magnetar.auth import Right
from magnetar.kafka.authorization.checks import Checks
from magnetar.kafka.authorization.topics import DENIED as TOPIC_DENIED
from magnetar.kafka.authorization.topics import split
from magnetar.serving.pace import paced
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.add_partitions_to_txn_request import AddPartitionsToTxnTopic
from magnetar.wire.kafka.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from magnetar.wire.kafka.messages.describe_transactions_response import TransactionState
from magnetar.wire.kafka.messages.init_producer_id_response import InitProducerIdResponse
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


async def init_producer_id(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    """IDEMPOTENT_WRITE on the cluster, or WRITE on the transactional id."""
    if request.transactional_id:
        allowed, code = await checks.writes_as(request.transactional_id), DENIED
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
    if not await checks.writes_as(request.v3_and_below_transactional_id):
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
        (allowed if await checks.sees_transactions_of(each) else denied).append(each)
    request.transactional_ids = allowed
    response = await answer(request, context)
    async for each in paced(response.transaction_states):
        each.topics = [topic for topic in each.topics if checks.sees(topic.topic)]
    response.transaction_states += [
        TransactionState(error_code=DENIED, transactional_id=each) async for each in paced(denied)
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
