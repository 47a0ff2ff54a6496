"""What is in force for a topic: its own policies, those of its namespace, and the broker's settings.

A topic's own policies are kept at ``/magnetar/topic-policies/TENANT/NAMESPACE/DOMAIN/TOPIC``, as the JSON that Pulsar
has for them (``TopicPolicies``); its retention is part of its configuration, which Kafka's clients see too.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from magnetar.broker.core import Broker
from magnetar.broker.limits import (
    TOPIC_KEYS,
    DelayedDelivery,
    InactiveTopics,
    Limits,
    Persistence,
    Quota,
    Rate,
    decode_limits,
)
from magnetar.broker.names import TopicName
from magnetar.broker.topic import Topic
from magnetar.pulsar.limit_settings import PulsarLimitSettings
from magnetar.pulsar.settings import PulsarSettings

_ROOT = "/magnetar/topic-policies"


class TopicPolicies:
    """The policies of all topics. ``changed`` is called when a topic's own have changed."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._store = broker.store.blocking
        self._known: dict[TopicName, dict[str, Any]] = {}
        self._defaults = _defaults(broker)
        self.changed: Callable[[Topic], None] = lambda topic: None

    def content(self, name: TopicName) -> dict[str, Any]:
        """Give a topic's own policies as JSON; do not change it."""
        found = self._known.get(name)
        if found is None:
            stored = self._store.get(_path(name))
            found = self._known[name] = {} if stored is None else dict(json.loads(stored.value))
        return found

    def set(self, topic: Topic, key: str, value: Any) -> None:
        """Keep one of a topic's own policies, or with None take it away; raise `InvalidPolicy`."""
        content = {**self.content(topic.name), key: value}
        content = {each: kept for each, kept in content.items() if kept is not None}
        decode_limits({key: value}, TOPIC_KEYS, strict=True)
        if content:
            self._store.put(_path(topic.name), json.dumps(content, separators=(",", ":")).encode())
        else:
            self._forget_stored(topic.name)
        self._known[topic.name] = content
        self.changed(topic)

    def forget(self, name: TopicName) -> None:
        """A topic is gone, and with it its policies."""
        if self.content(name):
            self._forget_stored(name)
        self._known.pop(name, None)

    def _forget_stored(self, name: TopicName) -> None:
        if self._store.get(_path(name)) is not None:
            self._store.delete(_path(name))

    def limits(self, topic: Topic) -> Limits:
        """Give what is in force for a topic."""
        own = decode_limits(self.content(topic.name), TOPIC_KEYS)
        return own.over(self._broker.topic_policies(topic).limits.over(self._defaults))

    def deduplicates(self, topic: Topic) -> bool:
        """Whether what producers send to a topic twice is stored once."""
        for said in (
            self.content(topic.name).get("deduplicationEnabled"),
            self._broker.topic_policies(topic).deduplicates,
        ):
            if said is not None:
                return bool(said)
        return self._broker.settings.of(PulsarSettings).broker_deduplication_enabled


def _path(name: TopicName) -> str:
    domain = "persistent" if name.persistent else "non-persistent"
    return f"{_ROOT}/{name.namespace_name}/{domain}/{name.metadata_name}"


def _defaults(broker: Broker) -> Limits:
    settings, limits = broker.settings.of(PulsarSettings), broker.settings.of(PulsarLimitSettings)
    policy = limits.backlog_quota_default_retention_policy
    return Limits(
        limits.max_producers_per_topic,
        limits.max_consumers_per_topic,
        limits.max_consumers_per_subscription,
        limits.max_subscriptions_per_topic,
        broker.settings.names.max_topics_per_namespace,
        settings.max_unacked_messages_per_consumer,
        settings.max_unacked_messages_per_subscription,
        settings.pulsar_max_message_size,
        settings.message_ttl_ms,
        Rate(limits.max_publish_rate_per_topic_in_messages, limits.max_publish_rate_per_topic_in_bytes),
        Rate(
            limits.dispatch_throttling_rate_per_topic_in_msg,
            limits.dispatch_throttling_rate_per_topic_in_byte,
        ),
        Rate(
            limits.dispatch_throttling_rate_per_subscription_in_msg,
            limits.dispatch_throttling_rate_per_subscription_in_byte,
        ),
        Rate(
            limits.subscribe_throttling_rate_per_consumer,
            0,
            limits.subscribe_rate_period_per_consumer_in_second,
        ),
        Quota(limits.backlog_quota_default_limit_bytes, policy),
        Quota(limits.backlog_quota_default_limit_second, policy),
        DelayedDelivery(
            limits.delayed_delivery_enabled, max_delay_ms=limits.delayed_delivery_max_delay_in_millis
        ),
        Persistence(),
        InactiveTopics(),
    )
