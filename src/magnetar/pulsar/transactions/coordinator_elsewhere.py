"""What a topic's broker asks of coordinators, whichever broker they are on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from magnetar.base.errors import BrokerError
from magnetar.cluster.ownership import Ownership
from magnetar.coordination.transactions import (
    Ack,
    Coordinator,
    CoordinatorNotFound,
    CoordinatorNotReady,
    InvalidTxnStatus,
    TooManyTransactions,
    TransactionNotFound,
    TxnId,
    TxnPartition,
    TxnSubscription,
)
from magnetar.pulsar.transactions.exchange import Matter, TransactionExchange
from magnetar.pulsar.transactions.participants import OpenInPartition, restored_here
from magnetar.pulsar.transactions.rows import (
    ack_row,
    acks_of,
    fields_of,
    partition_of,
    subscription_of,
    txn_of,
)

_PATIENCE_S = 20.0
"""How long an acknowledgement waits for a coordinator that is on its way to another broker, or whose broker died."""
_PAUSE_S = 0.1
_FINAL = (InvalidTxnStatus, TooManyTransactions, TransactionNotFound)
"""What a coordinator says; anything else means that it could not be asked."""


class CoordinatorElsewhere:
    """Those of other brokers, and this one's for others."""

    def __init__(self, here: Coordinator, exchange: TransactionExchange, ownership: Ownership) -> None:
        self._here = here
        self._exchange = exchange
        self._ownership = ownership
        exchange.answer(Matter.ACKNOWLEDGE, _acknowledged, self._acknowledge_here)
        exchange.answer(Matter.RESTORE, partition_of, self._restore_here)

    async def acknowledge(self, txn: TxnId, where: TxnSubscription, acks: Sequence[Ack]) -> None:
        """Keep what an open transaction acknowledges in a subscription of its own; durable on return.

        What is said twice, as nobody knows whether it arrived, counts once.
        """
        until_s = asyncio.get_running_loop().time() + _PATIENCE_S
        while True:
            try:
                owner = self._here.owner(txn.most)
                if owner is None:
                    raise CoordinatorNotReady(f"Transaction coordinator with id {txn.most} is not ready")
                if owner.node_id == self._ownership.node_id:
                    await self._here.acknowledge(txn, where, acks)
                else:
                    asked = [txn, where, [ack_row(each) for each in acks]]
                    await self._exchange.ask(owner.node_id, Matter.ACKNOWLEDGE, asked)
                return
            except _FINAL:
                raise
            except CoordinatorNotFound:
                self._here.owner(txn.most)  # raises for one that there is not anywhere
                if asyncio.get_running_loop().time() >= until_s:
                    raise
            except BrokerError:
                if asyncio.get_running_loop().time() >= until_s:
                    raise
            await asyncio.sleep(_PAUSE_S)

    async def _acknowledge_here(self, asked: tuple[TxnId, TxnSubscription, tuple[Ack, ...]]) -> None:
        await self._here.loaded()
        await self._here.acknowledge(*asked)

    async def _restore_here(self, where: TxnPartition) -> OpenInPartition:
        found = await restored_here(self._here, where)
        return found._replace(
            acks=[(txn, name, [ack_row(each) for each in acks]) for txn, name, acks in found.acks]
        )


def _acknowledged(row: object) -> tuple[TxnId, TxnSubscription, tuple[Ack, ...]]:
    txn, where, acks = fields_of(row, 3)
    return txn_of(txn), subscription_of(where), acks_of(acks)
