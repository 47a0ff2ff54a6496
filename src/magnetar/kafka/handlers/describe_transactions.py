"""DescribeTransactions (KIP-664): the state, the producer and the partitions of transactional ids."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.serving.pace import distinct, paced
from magnetar.wire.kafka.messages.describe_transactions_request import DescribeTransactionsRequest
from magnetar.wire.kafka.messages.describe_transactions_response import (
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def describe_transactions(
    request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    """Answer for each id once, however often it is asked for."""
    return DescribeTransactionsResponse(
        transaction_states=[
            await described(each, context) async for each in paced(distinct(request.transactional_ids))
        ]
    )


async def described(transactional_id: str, context: RequestContext) -> TransactionState:
    """Return what is known of one transactional id, or why it cannot be told."""
    try:
        found = (await context.kafka.transactions.get()).describe(transactional_id)
    except CoordinatorRefused as refused:
        return TransactionState(error_code=refused.code, transactional_id=transactional_id)
    topics: dict[str, list[int]] = defaultdict(list)
    async for topic, partition in paced(sorted(found.partitions)):
        topics[topic].append(partition)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=found.state.kafka_name,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
        topics=[TopicData(topic=topic, partitions=partitions) for topic, partitions in topics.items()],
    )
