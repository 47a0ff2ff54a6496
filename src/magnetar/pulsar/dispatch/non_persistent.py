"""Subscriptions of topics that are not persistent: what comes is sent at once to a consumer that has room, or dropped.

Nothing is kept, so nothing can be acknowledged, sent again, or delivered later; a subscription ends with its last
consumer. What is sent in one turn of the loop goes out together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import chain

from magnetar.pulsar.dispatch.consumer import Consumer
from magnetar.pulsar.dispatch.deliveries import Delivery, Place, sticky_hash
from magnetar.pulsar.dispatch.key_shared import Ranges, Ring
from magnetar.pulsar.dispatch.subscription import SubType
from magnetar.pulsar.errors import ConsumerAssignError, ConsumerBusy, PulsarError
from magnetar.pulsar.wire.pulsar_pb2 import ServerError


class NonPersistentSubscription:
    """One subscription of one partition: of any type, which says who gets the next entry."""

    is_durable = False
    is_blocked = False
    backlog = unacked = expired = 0

    def __init__(self, name: str, sub_type: SubType, *, sticky: bool = False) -> None:
        self.name = name
        self.sub_type = sub_type
        self.sticky = sticky
        self.consumers: list[Consumer] = []
        self.properties: dict[str, str] = {}
        self.dropped_messages = 0
        """How many messages nobody had room for."""
        self._keys: Ring | Ranges = Ranges() if sticky else Ring()
        self._active: Consumer | None = None
        self._turn = 0
        self._left_messages = self._left_bytes = 0
        self._out: dict[Consumer, list[tuple[Delivery, int, int | None]]] = {}

    # -- consumers

    def check(self, consumer: Consumer) -> None:
        if self.sub_type == SubType.Exclusive and self.consumers:
            raise ConsumerBusy("Exclusive consumer is already connected")
        if self.sub_type != SubType.Key_Shared:
            return
        if bool(consumer.hash_ranges) != self.sticky:
            raise ConsumerAssignError(
                "The subscription and its consumer differ in being STICKY or AUTO_SPLIT."
            )
        if isinstance(self._keys, Ranges):
            self._keys.check(consumer)

    def add(self, consumer: Consumer) -> None:
        self.check(consumer)
        self.consumers.append(consumer)
        if self.sub_type == SubType.Key_Shared:
            self._keys.add(consumer)
        self._activate(consumer)

    def remove(self, consumer: Consumer) -> None:
        if consumer not in self.consumers:
            return
        self._flush()
        self.consumers.remove(consumer)
        self._left_messages += consumer.delivered_messages
        self._left_bytes += consumer.delivered_bytes
        if self.sub_type == SubType.Key_Shared:
            self._keys.remove(consumer)
        self._activate(None)

    def _activate(self, newcomer: Consumer | None) -> None:
        """Exclusive and failover: one consumer gets everything, one of the lowest priority level."""
        if self.sub_type not in (SubType.Exclusive, SubType.Failover):
            return
        old, self._active = self._active, None
        if self.consumers:
            best = min(each.priority_level for each in self.consumers)
            equals = [each for each in self.consumers if each.priority_level == best]
            self._active = equals[max(equals[0].partition, 0) % len(equals)]
        if self.sub_type == SubType.Failover:
            for each in self.consumers:
                if each is newcomer or (self._active is not old and each in (old, self._active)):
                    each.sink.active_changed(each.consumer_id, each is self._active)

    @property
    def active_consumer(self) -> Consumer | None:
        """Who alone gets messages, where one does."""
        return self._active

    def disconnect(self) -> None:
        for consumer in self.consumers[:]:
            self.remove(consumer)
            consumer.sink.consumer_closed(consumer.consumer_id)

    def flow(self, consumer: Consumer, permits: int) -> None:
        consumer.permits += permits

    def kick(self) -> None:
        """There is nothing to go on with."""

    # -- sending

    def dispatch(self, delivery: Delivery) -> None:
        """Send an entry to whom it belongs, or drop it if that one has no room."""
        consumer = self._choose(delivery)
        if consumer is None or not consumer.has_room:
            self.dropped_messages += delivery.messages
            return
        consumer.permits -= delivery.messages
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out.setdefault(consumer, []).append((delivery, 0, None))

    def _choose(self, delivery: Delivery) -> Consumer | None:
        if self.sub_type == SubType.Key_Shared:
            return self._keys.owner(sticky_hash(delivery.metadata))
        if self.sub_type != SubType.Shared:
            return self._active
        ready = [each for each in self.consumers if each.has_room]
        if not ready:
            return None
        best = min(each.priority_level for each in ready)
        equals = [each for each in ready if each.priority_level == best]
        self._turn += 1
        return equals[self._turn % len(equals)]

    def _flush(self) -> None:
        out, self._out = self._out, {}
        for consumer, deliveries in out.items():
            consumer.send(deliveries)

    # -- what there is nothing to do about

    def acknowledge(self, consumer: Consumer, place: Place, remaining: int | None) -> None:
        consumer.acknowledged += 1

    def acknowledge_up_to(self, consumer: Consumer, place: Place, remaining: int | None) -> None:
        consumer.acknowledged += 1

    def flush_acks(self) -> None: ...

    def redeliver(self, consumer: Consumer, places: Sequence[Place], epoch: int | None) -> None:
        if epoch is not None:
            consumer.epoch = epoch

    def check_unsubscribe(self) -> None:
        if len(self.consumers) > 1:
            raise PulsarError(
                "Unconnected or shared consumer attempting to unsubscribe", ServerError.MetadataError
            )

    def close(self) -> None:
        self._flush()

    # -- figures

    @property
    def delivered_messages(self) -> int:
        return self._left_messages + sum(each.delivered_messages for each in self._ever())

    @property
    def delivered_bytes(self) -> int:
        return self._left_bytes + sum(each.delivered_bytes for each in self._ever())

    def _ever(self) -> chain[Consumer]:
        self._flush()
        return chain(self.consumers)
