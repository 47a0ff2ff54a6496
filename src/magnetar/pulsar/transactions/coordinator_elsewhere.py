"""What a topic's broker asks of coordinators, whichever broker they are on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from magnetar.broker.errors import BrokerError
from magnetar.broker.ownership import Ownership
from magnetar.broker.transactions import (
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
from magnetar.pulsar.transactions.participants import restored_here

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
        exchange.answer(Matter.ACKNOWLEDGE, self._acknowledge_here)
        exchange.answer(Matter.RESTORE, self._restore_here)

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
                    await self._exchange.ask(owner.node_id, Matter.ACKNOWLEDGE, [txn, where, acks])
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

    async def _acknowledge_here(self, asked: Any) -> None:
        txn, where, acks = asked
        await self._here.loaded()
        await self._here.acknowledge(TxnId(*txn), TxnSubscription(*where), tuple(Ack(*each) for each in acks))

    async def _restore_here(self, asked: Any) -> Any:
        return await restored_here(self._here, TxnPartition(*asked))
