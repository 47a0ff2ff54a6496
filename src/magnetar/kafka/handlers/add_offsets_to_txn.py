"""AddOffsetsToTxn: a transaction is about to commit a group's offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.handlers.transactional import EACH_DECLARED, fenced_as
from magnetar.kafka.transactions.decider import ProducerIdAndEpoch
from magnetar.kafka.transactions.metadata import TransactionPartition
from magnetar.wire.kafka.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from magnetar.wire.kafka.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def add_offsets_to_txn(
    request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse:
    """Answer when the partition of the group's offsets is of the transaction, durable."""
    groups = context.kafka.groups
    where = TransactionPartition(groups.topic, groups.partition_of(request.group_id))
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    try:
        transactions = await context.kafka.transactions.get()
        await transactions.add_partitions(
            request.transactional_id, producer, frozenset({where}), EACH_DECLARED
        )
    except CoordinatorRefused as refused:
        return AddOffsetsToTxnResponse(error_code=fenced_as(refused.code, context.api_version))
    return AddOffsetsToTxnResponse()
