"""Entries on their way to consumers."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.pulsar.dispatch.consumer import Consumer
from magnetar.pulsar.dispatch.deliveries import Delivery
from magnetar.pulsar.rate_limits import RateLimit


class Outbox:
    """What is sent together: for each consumer its entries, in order; full when rates allow no more for now."""

    def __init__(self, limits: Sequence[RateLimit] = ()) -> None:
        self._limits = limits
        self._sends: dict[Consumer, list[tuple[Delivery, int, int | None]]] = {}
        self.is_full = bool(limits) and self.room <= 0

    @property
    def room(self) -> int:
        """How many messages more may go now."""
        rooms = [messages if size > 0 else 0 for messages, size in (each.budget() for each in self._limits)]
        return min(rooms, default=1 << 62)

    @property
    def is_empty(self) -> bool:
        return not self._sends

    def add(self, consumer: Consumer, delivery: Delivery, redeliveries: int, remaining: int | None) -> None:
        self._sends.setdefault(consumer, []).append((delivery, redeliveries, remaining))
        if self._limits:
            for limit in self._limits:
                limit.spend(delivery.messages, len(delivery.body))
            self.is_full = self.room <= 0

    def send(self) -> None:
        """Send everything; then it is empty."""
        sends, self._sends = self._sends, {}
        for consumer, deliveries in sends.items():
            consumer.send(deliveries)
