"""WriteTxnMarkers: end a transaction in partitions; asked by other brokers, and by operators who free a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.base.errors import BrokerError
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.errors import code_for
from magnetar.kafka.transactions.metadata import TransactionPartition
from magnetar.ledger.errors import LedgerError
from magnetar.logs.producers import EndTransactionMarker, ProducerRefused
from magnetar.serving.pace import paced
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.write_txn_markers_request import WritableTxnMarker, WriteTxnMarkersRequest
from magnetar.wire.kafka.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def write_txn_markers(
    request: WriteTxnMarkersRequest, context: RequestContext
) -> WriteTxnMarkersResponse:
    """Answer for each partition when its marker is durable."""
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=each.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=index,
                                error_code=await _write(each, topic.name, index, context),
                            )
                            async for index in paced(topic.partition_indexes)
                        ],
                    )
                    async for topic in paced(each.topics)
                ],
            )
            async for each in paced(request.markers)
        ]
    )


async def _write(asked: WritableTxnMarker, name: str, index: int, context: RequestContext) -> ErrorCode:
    marker = EndTransactionMarker(
        asked.producer_id,
        asked.producer_epoch,
        asked.transaction_result,
        asked.coordinator_epoch,
        asked.transaction_version,
    )
    try:
        transactions = await context.kafka.transactions.get()
        await transactions.write_marker(marker, TransactionPartition(name, index))
    except CoordinatorRefused as refused:
        return refused.code
    except (BrokerError, LedgerError, ProducerRefused) as error:
        return code_for(error)
    return ErrorCode.NONE
