"""Subscriptions of topics that are not persistent: what comes is sent at once to a consumer that has room, or dropped.

Nothing is kept, so nothing can be acknowledged, sent again, or delivered later; a subscription ends with its last
consumer. What is sent in one turn of the loop goes out together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from magnetar.pulsar.dispatch.base import AnySubscription, SubType, chosen, foremost, tell_chosen
from magnetar.pulsar.dispatch.consumer import Consumer
from magnetar.pulsar.dispatch.deliveries import Delivery, Place, sticky_hash
from magnetar.pulsar.dispatch.keys import Division, divided
from magnetar.pulsar.dispatch.outbox import Outbox


class NonPersistentSubscription(AnySubscription):
    """One subscription of one partition: of any type, which says who gets the next entry."""

    def __init__(self, name: str, sub_type: SubType, *, division: Division = Division.RING) -> None:
        super().__init__(name)
        self.sub_type = sub_type
        self.dropped_messages = 0
        """How many messages nobody had room for."""
        self._keys = divided(division)
        self._active: Consumer | None = None
        self._turn = 0
        self._outbox = Outbox()

    @property
    def is_durable(self) -> bool:
        return False

    # -- consumers

    def check(self, consumer: Consumer) -> None:
        super().check(consumer)
        if self.sub_type == SubType.Key_Shared:
            self._keys.check(consumer)

    def _added(self, consumer: Consumer) -> None:
        if self.sub_type == SubType.Key_Shared:
            self._keys.add(consumer)
        self._activate(consumer)

    def remove(self, consumer: Consumer) -> None:
        self._outbox.send()
        super().remove(consumer)

    def _removed(self, consumer: Consumer) -> None:
        if self.sub_type == SubType.Key_Shared:
            self._keys.remove(consumer)
        self._activate(None)

    def _activate(self, newcomer: Consumer | None) -> None:
        """Exclusive and failover: one consumer gets everything."""
        if self.sub_type not in (SubType.Exclusive, SubType.Failover):
            return
        old, self._active = self._active, chosen(self.consumers)
        if self.sub_type == SubType.Failover:
            tell_chosen(self.consumers, newcomer, old, self._active)

    @property
    def active_consumer(self) -> Consumer | None:
        return self._active

    def wake(self) -> None:
        """There is nothing to go on with."""

    # -- sending

    def dispatch(self, delivery: Delivery) -> None:
        """Send an entry to whom it belongs, or drop it if that one has no room."""
        consumer = self._choose(delivery)
        if consumer is None or not consumer.has_room:
            self.dropped_messages += delivery.messages
            return
        consumer.permits -= delivery.messages
        if self._outbox.is_empty:
            asyncio.get_running_loop().call_soon(self._outbox.send)
        self._outbox.add(consumer, delivery, 0, None)

    def _choose(self, delivery: Delivery) -> Consumer | None:
        if self.sub_type == SubType.Key_Shared:
            return self._keys.owner(sticky_hash(delivery.metadata))
        if self.sub_type != SubType.Shared:
            return self._active
        ready = [each for each in self.consumers if each.has_room]
        if not ready:
            return None
        equals = foremost(ready)
        self._turn += 1
        return equals[self._turn % len(equals)]

    # -- what there is nothing to do about

    def acknowledge(self, consumer: Consumer, place: Place, remaining: int | None) -> None:
        consumer.acknowledged += 1

    def acknowledge_up_to(self, consumer: Consumer, place: Place, remaining: int | None) -> None:
        consumer.acknowledged += 1

    def flush_acks(self) -> None: ...

    def redeliver(self, consumer: Consumer, places: Sequence[Place], epoch: int | None) -> None:
        if epoch is not None:
            consumer.epoch = epoch

    def close(self) -> None:
        self._outbox.send()

    # -- figures

    @property
    def delivered_messages(self) -> int:
        self._outbox.send()
        return super().delivered_messages

    @property
    def delivered_bytes(self) -> int:
        self._outbox.send()
        return super().delivered_bytes
