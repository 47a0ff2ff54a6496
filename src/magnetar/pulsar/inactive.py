"""Topics that nobody uses are deleted where a policy says so: Pulsar's ``inactiveTopicPolicies``.

A topic is in use while anything is stored in it that retention has not taken, while Pulsar's producers or consumers are
connected, and while it has subscriptions (Kafka's groups that committed are some); with
``delete_when_subscriptions_caught_up`` only while one of them is behind. As in Pulsar, only topics that somebody has
opened since the broker began are looked at. Kafka's clients that are connected and idle are not seen.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from magnetar.base.errors import BrokerError
from magnetar.base.slices import sliced
from magnetar.ledger.errors import LedgerError
from magnetar.metadata import MetadataError
from magnetar.node.broker import Broker
from magnetar.pulsar.limit_settings import PulsarLimitSettings
from magnetar.pulsar.topic import PulsarTopic
from magnetar.pulsar.topics import PulsarTopics
from magnetar.records.errors import RecordsError
from magnetar.topics.limits import CAUGHT_UP, InactiveTopics
from magnetar.topics.topic import Topic

_log = logging.getLogger("magnetar.pulsar")


class InactiveTopicsSweep:
    """Looks at open topics now and then."""

    def __init__(self, broker: Broker, topics: PulsarTopics, clock: Callable[[], int]) -> None:
        self._broker = broker
        self._topics = topics
        self._clock = clock
        self._since_ms: dict[bytes, int] = {}
        """By topic id: since when nobody has been seen to use it."""
        self._rounds = 0
        topics.each_second.append(self._each_second)

    async def _each_second(self) -> None:
        self._rounds += 1
        settings = self._broker.settings.of(PulsarLimitSettings)
        if self._rounds % settings.broker_delete_inactive_topics_frequency_seconds == 0:
            await self.sweep()

    async def sweep(self) -> None:
        """Delete what has not been used for as long as its policy says."""
        open_topics: dict[bytes, Topic] = {}
        async for each in sliced(self._topics.all_open()):
            open_topics[each.topic.topic_id] = each.topic
        before, self._since_ms = self._since_ms, {}
        async for topic_id in sliced(open_topics):  # pairs would be so many objects more to look through
            topic = open_topics[topic_id]
            try:
                await self._look_at(topic, before.get(topic_id))
            except (LedgerError, MetadataError, BrokerError, RecordsError) as error:
                _log.error("whether topic %s is used cannot be told: %s", topic.name, error)

    async def _look_at(self, topic: Topic, since_ms: int | None) -> None:
        policy = self._topics.policies.limits(topic).inactive_topics
        if policy is None or not policy.delete or topic.internal or topic.deleted:
            return
        partitions = [await self._topics.open(topic, index) for index in range(topic.partitions)]

        def is_used() -> bool:
            return any(_is_used(each, policy) for each in partitions)

        if is_used():
            return
        now_ms = self._clock()
        since_ms = now_ms if since_ms is None else since_ms
        if now_ms - since_ms < policy.after_s * 1000:
            self._since_ms[topic.topic_id] = since_ms
            return
        if await self._broker.delete_unused_topic(topic.kafka_name, is_used):
            _log.info("topic %s was deleted: nobody had used it for %d s", topic.name, policy.after_s)


def _is_used(partition: PulsarTopic, policy: InactiveTopics) -> bool:
    subscriptions = partition.subscriptions.values()
    return bool(
        partition.log.log_end_offset > partition.log.log_start_offset
        or partition.producers.by_name
        or partition.producers.waiting
        or any(each.consumers for each in subscriptions)
        or (any(each.backlog for each in subscriptions) if policy.mode == CAUGHT_UP else subscriptions)
    )
