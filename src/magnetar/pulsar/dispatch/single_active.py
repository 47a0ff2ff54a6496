"""Exclusive and failover subscriptions: one consumer gets everything, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from magnetar.broker.transactions import Ack, TxnId
from magnetar.ledger.cursor import Cursor
from magnetar.pulsar.dispatch.base import SubType, chosen, tell_chosen
from magnetar.pulsar.dispatch.consumer import Consumer
from magnetar.pulsar.dispatch.deliveries import Place, sticky_hash
from magnetar.pulsar.dispatch.keys import HashRanges
from magnetar.pulsar.dispatch.reading import Readings
from magnetar.pulsar.dispatch.subscription import Subscription
from magnetar.pulsar.errors import NotAllowed


class SingleActive(Subscription):
    """See the module."""

    def __init__(self, name: str, cursor: Cursor, readings: Readings, sub_type: SubType) -> None:
        super().__init__(name, cursor, readings)
        self.sub_type = sub_type
        self._active: Consumer | None = None
        self._ranges = HashRanges()
        """Of an exclusive reader that wants only the keys of some hashes; others get all."""

    def check(self, consumer: Consumer) -> None:
        super().check(consumer)
        if consumer.hash_ranges:
            self._ranges.check(consumer)

    def _added(self, consumer: Consumer) -> None:
        if consumer.hash_ranges:
            self._ranges.add(consumer)
        self._choose(consumer)

    def _removed(self, consumer: Consumer) -> None:
        self._ranges.remove(consumer)
        self._choose(None)

    def _choose(self, newcomer: Consumer | None) -> None:
        old, self._active = self._active, chosen(self.consumers)
        if self._active is not old:
            self.rewind()
        if self.sub_type == SubType.Failover:
            tell_chosen(self.consumers, newcomer, old, self._active)
        self.wake()

    @property
    def active_consumer(self) -> Consumer | None:
        return self._active

    @property
    def reads_compacted(self) -> bool:
        return self._active is not None and self._active.read_compacted

    def _may_send(self) -> bool:
        return self._active is not None and self._active.has_room

    async def _pump(self) -> None:
        while (consumer := self._active) is not None and consumer.has_room:
            if not self._ahead:
                if not await self._fetch():
                    return
                continue
            if self._is_held_back():
                return
            outbox = self._new_outbox()
            while self._ahead and consumer.permits > 0 and not outbox.is_full:
                delivery = self._ahead.popleft()
                if consumer.hash_ranges and self._ranges.owner(sticky_hash(delivery.metadata)) is None:
                    continue  # passed over, not acknowledged: as in Pulsar
                remaining = self.acks.remaining(delivery.place, delivery.messages)
                consumer.permits -= delivery.messages if remaining is None else remaining.bit_count()
                if delivery.messages > 1:
                    self.acks.sent(delivery.place, delivery.messages)
                outbox.add(consumer, delivery, 0, remaining)
            outbox.send()
            await asyncio.sleep(0)

    def redeliver(self, consumer: Consumer, places: Sequence[Place], epoch: int | None) -> None:
        """Everything not acknowledged comes again, whatever is named: the order is what this consumer has alone."""
        if consumer is self._active:
            if epoch is not None:
                consumer.epoch = epoch
            self.rewind()
            self.wake()

    async def give_back(self, txn: TxnId, acks: Sequence[Ack]) -> None:
        """See `Subscription`: in order, so that everything that is not acknowledged comes again."""
        await super().give_back(txn, acks)
        self.rewind()
        self.wake()

    def acknowledge_up_to(self, consumer: Consumer, place: Place, remaining: int | None) -> None:
        if consumer is not self._active:
            raise NotAllowed("only the active consumer may acknowledge")
        super().acknowledge_up_to(consumer, place, remaining)
