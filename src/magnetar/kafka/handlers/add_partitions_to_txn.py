"""AddPartitionsToTxn: a transaction is about to write to partitions; brokers ask whether it is (KIP-890)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.authorization.transactions import FIRST_OF_BROKERS
from magnetar.kafka.handlers.named_topic import known_topic
from magnetar.kafka.handlers.transactional import EACH_DECLARED, EPOCH_BUMPED, fenced_as, partition_of
from magnetar.kafka.transactions.decider import ProducerIdAndEpoch
from magnetar.kafka.transactions.metadata import TransactionPartition
from magnetar.serving.pace import paced
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from magnetar.wire.kafka.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

_FIRST_WITH_ABORTABLE = 5


async def add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    """Answer when all are of the transaction, durable; if one of them cannot be, none is."""
    if context.api_version < FIRST_OF_BROKERS:
        producer = ProducerIdAndEpoch(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=await _topics(
                request.v3_and_below_transactional_id,
                producer,
                request.v3_and_below_topics,
                context,
                verify_only=False,
            )
        )
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=each.transactional_id,
                topic_results=await _topics(
                    each.transactional_id,
                    ProducerIdAndEpoch(each.producer_id, each.producer_epoch),
                    each.topics,
                    context,
                    verify_only=each.verify_only,
                ),
            )
            async for each in paced(request.transactions)
        ]
    )


async def _topics(
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    topics: list[AddPartitionsToTxnTopic],
    context: RequestContext,
    *,
    verify_only: bool,
) -> list[AddPartitionsToTxnTopicResult]:
    broker = context.kafka.broker
    found: dict[tuple[str, int], TransactionPartition | ErrorCode] = {}
    async for topic in paced(topics):
        await known_topic(broker, topic.name)
        async for index in paced(topic.partitions):
            found[topic.name, index] = partition_of(
                broker, topic.name, index, internal=context.api_version >= FIRST_OF_BROKERS
            )
    wanted = frozenset(each for each in found.values() if isinstance(each, TransactionPartition))
    if len({*wanted}) < len(found) and any(isinstance(each, ErrorCode) for each in found.values()):
        codes: Mapping[TransactionPartition, ErrorCode] = dict.fromkeys(
            wanted, ErrorCode.OPERATION_NOT_ATTEMPTED
        )
    else:
        codes = await _decided(transactional_id, producer, wanted, context, verify_only=verify_only)
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                _row(index, found[topic.name, index], codes) async for index in paced(topic.partitions)
            ],
        )
        async for topic in paced(topics)
    ]


async def _decided(
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    wanted: frozenset[TransactionPartition],
    context: RequestContext,
    *,
    verify_only: bool,
) -> Mapping[TransactionPartition, ErrorCode]:
    transactions, version = await context.kafka.transactions.get(), context.api_version
    try:
        if verify_only:
            codes = transactions.verify(transactional_id, producer, wanted)
            return codes if version >= _FIRST_WITH_ABORTABLE else _without_abortable(codes)
        spoken = EACH_DECLARED if version < FIRST_OF_BROKERS else EPOCH_BUMPED
        await transactions.add_partitions(transactional_id, producer, wanted, spoken)
    except CoordinatorRefused as refused:
        return dict.fromkeys(wanted, fenced_as(refused.code, version))
    return dict.fromkeys(wanted, ErrorCode.NONE)


def _without_abortable(
    codes: Mapping[TransactionPartition, ErrorCode],
) -> dict[TransactionPartition, ErrorCode]:
    abortable = ErrorCode.TRANSACTION_ABORTABLE
    return {each: ErrorCode.INVALID_TXN_STATE if code is abortable else code for each, code in codes.items()}


def _row(
    index: int, found: TransactionPartition | ErrorCode, codes: Mapping[TransactionPartition, ErrorCode]
) -> AddPartitionsToTxnPartitionResult:
    code = codes[found] if isinstance(found, TransactionPartition) else found
    return AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
