"""Subscriptions end that have had no consumers for as long as a policy says: ``subscriptionExpirationTime``.

As in Pulsar, only those of topics that somebody has opened since the broker began are looked at. One that was made here
or loaded counts as used then: a broker that starts again begins to count again. Kafka's groups have a retention of
their own, and a subscription that a group or a share group is linked to, or in which an open transaction acknowledged
something, is in use.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from magnetar.base.errors import BrokerError
from magnetar.base.slices import sliced
from magnetar.ledger.errors import LedgerError
from magnetar.metadata import MetadataError
from magnetar.node.broker import Broker
from magnetar.pulsar.dispatch.subscription import Subscription
from magnetar.pulsar.errors import PulsarError
from magnetar.pulsar.group_cursors import GroupCursors
from magnetar.pulsar.limit_settings import PulsarLimitSettings
from magnetar.pulsar.topic import PulsarTopic
from magnetar.pulsar.topics import PulsarTopics
from magnetar.records.errors import RecordsError

_MINUTE_MS = 60_000
_log = logging.getLogger("magnetar.pulsar")


class ExpiredSubscriptionsSweep:
    """Looks at the subscriptions of open topics now and then."""

    def __init__(
        self, broker: Broker, topics: PulsarTopics, groups: GroupCursors, clock: Callable[[], int]
    ) -> None:
        self._broker = broker
        self._topics = topics
        self._groups = groups
        self._clock = clock
        self._looked_ms = clock()
        topics.each_second.append(self._each_second)

    async def _each_second(self) -> None:
        minutes = self._broker.settings.of(PulsarLimitSettings).subscription_expiry_check_interval_in_minutes
        if self._clock() - self._looked_ms >= minutes * _MINUTE_MS:
            self._looked_ms = self._clock()
            await self.sweep()

    async def sweep(self) -> None:
        """End what has not been used for as long as its policy says."""
        async for topic in sliced(self._topics.all_open()):
            minutes = topic.limits.subscription_expiration_minutes
            if not minutes:
                continue
            overdue_ms = self._clock() - minutes * _MINUTE_MS
            for subscription in list(topic.subscriptions.values()):
                if subscription.used_ms <= overdue_ms and not self._is_used(topic, subscription):
                    await self._end(topic, subscription.name, minutes)

    async def _end(self, topic: PulsarTopic, name: str, minutes: int) -> None:
        try:
            await self._groups.deleted(topic, name)
            if name in topic.subscriptions and not topic.subscriptions[name].consumers:
                await topic.unsubscribe(name)
        except (LedgerError, MetadataError, BrokerError, PulsarError, RecordsError) as error:
            _log.error("subscription %s of %s cannot be ended: %s", name, topic.name, error)
        else:
            _log.info("subscription %s of %s ended: nobody used it for %d min", name, topic.name, minutes)

    def _is_used(self, topic: PulsarTopic, subscription: Subscription) -> bool:
        name, held = subscription.name, subscription.acks.in_transactions
        return bool(
            subscription.consumers
            or not subscription.cursor.is_durable
            or topic.is_groups(name)
            or self._broker.coordination.progress.is_linked(name)
            or (held is not None and (len(held) or held.cumulative))
        )
