"""Exclusive and failover subscriptions: one consumer gets everything, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from magnetar.coordination.transactions import Ack, TxnId
from magnetar.ledger.cursors.cursor import Cursor
from magnetar.pulsar.dispatch.base import SubType, chosen, tell_chosen
from magnetar.pulsar.dispatch.consumer import Consumer
from magnetar.pulsar.dispatch.deliveries import Delivery, Place, sticky_hash
from magnetar.pulsar.dispatch.keys import HashRanges
from magnetar.pulsar.dispatch.reading import Readings
from magnetar.pulsar.dispatch.subscription import Subscription
from magnetar.pulsar.errors import NotAllowed
from magnetar.records.sticky_keys import HASH_RANGE


class SingleActive(Subscription):
    """See the module."""

    def __init__(self, name: str, cursor: Cursor, readings: Readings, sub_type: SubType) -> None:
        super().__init__(name, cursor, readings)
        self.sub_type = sub_type
        self._active: Consumer | None = None
        self._ranges = HashRanges()
        """Of an exclusive reader that wants only the keys of some hashes; others get all."""
        self._wanted: bytes | None = None
        """The same of the active consumer: a byte for each hash, 1 for those that it wants; None for all."""

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
            self._wanted = _wanted_hashes(self._active)
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

    @property
    def reads_keys(self) -> bool:
        return self._wanted is not None

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
                remaining = self.acks.remaining(delivery.place, delivery.messages)
                if self._wanted is not None:
                    remaining = self._wanted_of(delivery, remaining)
                    if remaining == 0:
                        continue  # passed over, not acknowledged: as in Pulsar
                consumer.permits -= delivery.messages if remaining is None else remaining.bit_count()
                if delivery.messages > 1:
                    self.acks.sent(delivery.place, delivery.messages)
                outbox.add(consumer, delivery, 0, remaining)
            outbox.send()
            await asyncio.sleep(0)

    def _wanted_of(self, delivery: Delivery, remaining: int | None) -> int | None:
        """Return which of an entry's messages, of those that remain, are of the wanted keys (None: all)."""
        assert self._wanted is not None
        if delivery.keys is None or not delivery.keys.of_messages:
            return remaining if self._wanted[sticky_hash(delivery.metadata)] else 0
        within = delivery.keys.within(self._wanted)
        if within == (1 << delivery.messages) - 1:
            return remaining
        if self.is_durable and within:
            # A consumer acknowledges a batch once it has had all of it, and would wait for the others for ever.
            return remaining
        return within if remaining is None else within & remaining

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


def _wanted_hashes(consumer: Consumer | None) -> bytes | None:
    if consumer is None or not consumer.hash_ranges:
        return None
    wanted = bytearray(HASH_RANGE)
    for start, end in consumer.hash_ranges:
        wanted[start : end + 1] = b"\1" * (end + 1 - start)
    return bytes(wanted)
