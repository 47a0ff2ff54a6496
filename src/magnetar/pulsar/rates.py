"""Rates: counters looked at now and then, and what changed between the last two looks."""

from __future__ import annotations

import time
from typing import NamedTuple
from weakref import WeakKeyDictionary

from magnetar.pulsar.dispatch.consumer import Consumer
from magnetar.pulsar.dispatch.non_persistent import NonPersistentSubscription
from magnetar.pulsar.dispatch.subscription import Subscription
from magnetar.pulsar.non_persistent import NonPersistentTopic
from magnetar.pulsar.producers import Producer
from magnetar.pulsar.topic import PulsarTopic

MIN_S = 1.0
"""Looks that lie closer together say too little."""


class TopicRates(NamedTuple):
    """Per second, and in all since the topic was opened."""

    messages_in: float
    bytes_in: float
    messages_out: float
    bytes_out: float
    total_messages_in: int
    total_bytes_in: int


class SubscriptionRates(NamedTuple):
    """Per second, and in all since the topic was opened."""

    messages: float
    bytes: float
    redelivered: float
    acknowledged: float
    expired: float
    total_messages: int
    total_bytes: int


class ConsumerRates(NamedTuple):
    """Per second."""

    messages: float
    bytes: float
    redelivered: float
    acknowledged: float


class ProducerRates(NamedTuple):
    """Per second."""

    messages: float
    bytes: float


class Meter:
    """Two looks at a row of counters."""

    def __init__(self, counters: tuple[int, ...]) -> None:
        self._old = self._new = (time.monotonic(), counters)

    def per_second(self, counters: tuple[int, ...]) -> tuple[float, ...]:
        now = time.monotonic()
        if now - self._new[0] >= MIN_S:
            self._old, self._new = self._new, (now, counters)
        since, before = self._old
        passed = max(now - since, MIN_S)
        return tuple((after - was) / passed for after, was in zip(counters, before, strict=True))


class Counted(NamedTuple):
    """Counters since they were begun, and each per second."""

    total: tuple[int, ...]
    per_second: tuple[float, ...]


_topics: WeakKeyDictionary[PulsarTopic, Meter] = WeakKeyDictionary()
_subscriptions: WeakKeyDictionary[Subscription, Meter] = WeakKeyDictionary()
_clients: WeakKeyDictionary[Producer | Consumer, Meter] = WeakKeyDictionary()
_fleeting: WeakKeyDictionary[NonPersistentTopic | NonPersistentSubscription, Meter] = WeakKeyDictionary()


class Rates:
    """Looks at topics and subscriptions; whoever wants rates asks more than once."""

    @staticmethod
    def of(topic: PulsarTopic) -> TopicRates:
        """Return the rates of a partition, whichever protocol its messages came and went by."""
        each = list(topic.subscriptions.values())
        counters = (
            topic.log.log_end_offset,
            sum(ledger.size for ledger in topic.log.ledgers()),
            sum(one.delivered_messages for one in each),
            sum(one.delivered_bytes for one in each),
        )
        meter = _topics.setdefault(topic, Meter(counters))
        now = meter.per_second(counters)
        rates = [max(rate, 0.0) for rate in now]
        messages = counters[0] - topic.opened_with[0]
        stored = max(counters[1] - topic.opened_with[1], 0)
        return TopicRates(rates[0], rates[1], rates[2], rates[3], messages, stored)

    @staticmethod
    def of_subscription(subscription: Subscription) -> SubscriptionRates:
        """Return the rates of a subscription."""
        counters = (
            subscription.delivered_messages,
            subscription.delivered_bytes,
            subscription.redelivered,
            subscription.acknowledged,
            subscription.expired,
        )
        meter = _subscriptions.setdefault(subscription, Meter(counters))
        now = meter.per_second(counters)
        return SubscriptionRates(now[0], now[1], now[2], now[3], now[4], counters[0], counters[1])

    @staticmethod
    def of_consumer(consumer: Consumer) -> ConsumerRates:
        """Return the rates of a consumer."""
        counters = (
            consumer.delivered_messages,
            consumer.delivered_bytes,
            consumer.redelivered,
            consumer.acknowledged,
        )
        return ConsumerRates(*_clients.setdefault(consumer, Meter(counters)).per_second(counters))

    @staticmethod
    def of_producer(producer: Producer) -> ProducerRates:
        """Return the rates of a producer."""
        counters = (producer.messages, producer.bytes)
        return ProducerRates(*_clients.setdefault(producer, Meter(counters)).per_second(counters))

    @staticmethod
    def of_fleeting(topic: NonPersistentTopic) -> Counted:
        """Return messages and bytes in, messages and bytes out, and messages dropped of a non-persistent partition."""
        counters = (
            topic.messages_in,
            topic.bytes_in,
            topic.delivered_messages,
            topic.delivered_bytes,
            topic.dropped_messages,
        )
        return Counted(counters, _fleeting.setdefault(topic, Meter(counters)).per_second(counters))

    @staticmethod
    def of_fleeting_subscription(subscription: NonPersistentSubscription) -> Counted:
        """Return messages and bytes sent, and messages dropped, of a subscription of such a topic."""
        counters = (
            subscription.delivered_messages,
            subscription.delivered_bytes,
            subscription.dropped_messages,
        )
        return Counted(counters, _fleeting.setdefault(subscription, Meter(counters)).per_second(counters))
