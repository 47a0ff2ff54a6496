"""Markers for partitions that other brokers have."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from magnetar.broker.background import Background
from magnetar.broker.errors import BrokerError
from magnetar.broker.producers import EndTransactionMarker, ProducerRefused
from magnetar.kafka.coordinators.refused import CoordinatorRefused
from magnetar.kafka.other_brokers import OtherBrokers
from magnetar.kafka.transactions.metadata import TransactionPartition
from magnetar.wire.kafka.errors import ErrorCode

_MAX_AT_ONCE = 1000
_FENCED = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
)


class _Wanted(NamedTuple):
    marker: EndTransactionMarker
    where: TransactionPartition
    written: asyncio.Future[None]


class MarkersOfOthers:
    """Has other brokers write markers: one request is on its way to each, and the next takes what came meanwhile."""

    def __init__(self, others: OtherBrokers, background: Background) -> None:
        self._others = others
        self._background = background
        self._waiting: dict[int, list[_Wanted]] = {}

    async def write(self, node_id: int, marker: EndTransactionMarker, where: TransactionPartition) -> None:
        """Return when the marker is durable there.

        Raise ``ProducerRefused``, ``CoordinatorRefused`` or ``BrokerError``.
        """
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.get(node_id)
        wanted = _Wanted(marker, where, written)
        if waiting is not None:
            waiting.append(wanted)
        else:
            self._waiting[node_id] = [wanted]
            self._background.once("writing markers to another broker", self._send(node_id))
        await written

    async def _send(self, node_id: int) -> None:
        waiting = self._waiting[node_id]
        try:
            while waiting:
                now, waiting[:] = waiting[:_MAX_AT_ONCE], waiting[_MAX_AT_ONCE:]
                try:
                    codes = await self._ask(node_id, now)
                except BrokerError as error:
                    for each in now:
                        _fail(each, error)
                except BaseException:
                    waiting += now
                    raise
                else:
                    for each, code in zip(now, codes, strict=True):
                        _settle(each, code)
        finally:
            del self._waiting[node_id]
            for each in waiting:  # this broker ends
                each.written.cancel()

    async def _ask(self, node_id: int, wanted: Sequence[_Wanted]) -> list[ErrorCode]:
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
                for marker, where, _ in wanted
            ]
        )
        answer = await self._others.ask(node_id, request)
        return [ErrorCode(each.topics[0].partitions[0].error_code) for each in answer.markers]


def _settle(wanted: _Wanted, code: ErrorCode) -> None:
    if code is ErrorCode.NONE:
        if not wanted.written.done():
            wanted.written.set_result(None)
    elif code in _FENCED:
        _fail(wanted, ProducerRefused(f"refused with {code.name}"))
    else:  # also of a topic that the other one does not know: whether there is one, the asker knows
        _fail(wanted, CoordinatorRefused(code))


def _fail(wanted: _Wanted, error: Exception) -> None:
    if not wanted.written.done():
        wanted.written.set_exception(error)
