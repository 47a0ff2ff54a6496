"""Whether a partition is of a transaction, wherever that is coordinated: asked before a batch or offsets go in."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.other_brokers import OtherBrokers, OtherBrokerSilent
from magnetar.kafka.transactions.decider import ProducerIdAndEpoch
from magnetar.kafka.transactions.metadata import TransactionPartition
from magnetar.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from magnetar.kafka.transactions.coordinator import TransactionCoordinator
    from magnetar.kafka.transactions.markers import Markers

_PATIENCE_S = 1.0
"""How long a coordinator may be on its way from one broker to another before clients have to try again themselves: a
librdkafka that is aborting a transaction by then does not, and waits for its time-out."""
_PAUSE_S = 0.05
_ON_ITS_WAY = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
_ANSWERS = frozenset({ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE})
"""What is said of a partition; the rest is said of the transaction."""


class Admission:
    """Asks this broker's coordinator or, as KIP-890 has it, the broker that coordinates the transaction."""

    def __init__(
        self,
        transactions: TransactionCoordinator,
        markers: Markers,
        others: OtherBrokers,
        node_id: int,
        home: str,
    ) -> None:
        self._transactions = transactions
        self._markers = markers
        self._others = others
        self._node_id = node_id
        self._home = home

    async def admit(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        where: TransactionPartition,
        version: int,
        *,
        adds: bool,
    ) -> ErrorCode:
        """Return NONE if the partition is of the transaction, which no marker has ended in it by now.

        With ``adds`` it comes to be of it, durable on return. Whoever goes on without waiting for anything may append.
        Raise `CoordinatorRefused`.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + _PATIENCE_S
        while True:
            owner = self._transactions.owner_of(transactional_id)
            try:
                if owner is None or owner.node_id == self._node_id:
                    if adds:
                        await self._transactions.add_partitions(
                            transactional_id, producer, frozenset({where}), version
                        )
                    return self._transactions.verify(transactional_id, producer, (where,))[where]
                # A marker that comes while the answer is on its way may have ended the transaction that it tells of.
                with self._markers.watch(producer.producer_id, where) as watch:
                    code = await self._ask(owner.node_id, transactional_id, producer, where, adds=adds)
                    if code is not ErrorCode.NONE or not watch.ended:
                        return code
                adds = False  # it was added, to what has ended since: what is asked now is whether it is of the next
                refused = CoordinatorRefused(ErrorCode.CONCURRENT_TRANSACTIONS)
            except CoordinatorRefused as error:
                if error.code not in _ON_ITS_WAY:
                    raise
                refused = error
            if loop.time() >= until_s:
                raise refused
            await asyncio.sleep(_PAUSE_S)

    async def _ask(
        self,
        node_id: int,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        where: TransactionPartition,
        *,
        adds: bool,
    ) -> ErrorCode:
        from magnetar.wire.kafka.messages.add_partitions_to_txn_request import (
            AddPartitionsToTxnRequest,
            AddPartitionsToTxnTopic,
            AddPartitionsToTxnTransaction,
        )

        request = AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=transactional_id,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    verify_only=not adds,
                    topics=[AddPartitionsToTxnTopic(name=where.topic, partitions=[where.partition])],
                )
            ]
        )
        try:
            answer = await self._others.ask(node_id, request, self._home)
        except OtherBrokerSilent:
            raise CoordinatorRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE) from None
        code = ErrorCode(answer.error_code or _first(answer.results_by_transaction))
        if code not in _ANSWERS:
            raise CoordinatorRefused(code)
        return code


def _first(results: Iterable[object]) -> int:
    (result,) = results
    code: int = result.topic_results[0].results_by_partition[0].partition_error_code  # type: ignore[attr-defined]
    return code
