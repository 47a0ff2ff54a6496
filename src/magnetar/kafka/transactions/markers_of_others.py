"""Markers for partitions that other brokers have."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.base.background import Background
from magnetar.base.questions import Questions
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.other_brokers import OtherBrokers
from magnetar.kafka.transactions.metadata import TransactionPartition
from magnetar.logs.producers import EndTransactionMarker, ProducerRefused
from magnetar.wire.kafka.errors import ErrorCode

MOST_FOR_ANOTHER = 1000
"""Markers in one request."""
_FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)


class MarkersOfOthers:
    """Has other brokers write markers: one request is on its way to each, and the next takes what came meanwhile."""

    def __init__(self, others: OtherBrokers, background: Background) -> None:
        self._others = others
        self._asked = Questions(background, "writing markers to another broker", self._ask, MOST_FOR_ANOTHER)

    async def write(self, node_id: int, marker: EndTransactionMarker, where: TransactionPartition) -> None:
        """Return when the marker is durable there.

        Raise ``ProducerRefused``, ``CoordinatorRefused`` or ``BrokerError``.
        """
        code = await self._asked.ask(node_id, (marker, where))
        if code in _FENCED:
            raise ProducerRefused(f"refused with {code.name}")
        if code is not ErrorCode.NONE:
            # Also of a topic that the other one does not know: whether there is one, the asker knows.
            raise CoordinatorRefused(code)

    async def _ask(
        self, node_id: int, wanted: Sequence[tuple[EndTransactionMarker, TransactionPartition]]
    ) -> list[ErrorCode]:
        from magnetar.wire.kafka.messages.write_txn_markers_request import (
            WritableTxnMarker,
            WritableTxnMarkerTopic,
            WriteTxnMarkersRequest,
        )

        request = WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=marker.producer_id,
                    producer_epoch=marker.epoch,
                    transaction_result=marker.committed,
                    topics=[WritableTxnMarkerTopic(name=where.topic, partition_indexes=[where.partition])],
                    coordinator_epoch=marker.coordinator_epoch,
                    transaction_version=marker.version,
                )
                for marker, where in wanted
            ]
        )
        answer = await self._others.ask(node_id, request)
        return [ErrorCode(each.topics[0].partitions[0].error_code) for each in answer.markers]
