"""What is in force for a topic: its own policies, those of its namespace, and the broker's settings.

A topic's own policies are kept at ``/magnetar/topic-policies/TENANT/NAMESPACE/DOMAIN/TOPIC``, as the JSON that Pulsar
has for them (``TopicPolicies``); its retention is part of its configuration, which Kafka's clients see too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from magnetar.metadata import MUST_NOT_EXIST, Delete, MetadataCorrupt, Put, Stored
from magnetar.node.broker import Broker
from magnetar.pulsar.limit_settings import PulsarLimitSettings
from magnetar.pulsar.settings import PulsarSettings
from magnetar.topics.limits import (
    TOPIC_KEYS,
    DelayedDelivery,
    InactiveTopics,
    Limits,
    Persistence,
    Quota,
    Rate,
    decode_limits,
)
from magnetar.topics.names import TopicName
from magnetar.topics.policies import decode_auto_subscriptions
from magnetar.topics.topic import Topic

_ROOT = "/magnetar/topic-policies"
SCHEMA_STRATEGY, SCHEMAS_ENFORCED, AUTO_SUBSCRIPTIONS = (
    "schemaCompatibilityStrategy",
    "schemaValidationEnforced",
    "autoSubscriptionCreationOverride",
)
UNDEFINED = "UNDEFINED"
"""What stands for no strategy: others decide."""


class TopicPolicies:
    """The policies of all topics. Each of ``changed`` is called with a topic whose own have changed."""

    root = _ROOT

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._known: dict[str, tuple[dict[str, Any], int]] = {}
        """By path: what is stored, and its version."""
        self.changed: list[Callable[[TopicName], None]] = []

    # Following what is stored.

    def known(self) -> Iterable[str]:
        return tuple(self._known)

    def apply(self, path: str, stored: Stored | None) -> None:
        """Take over what is stored of one topic."""
        before = self._known.pop(path, None)
        now = None if stored is None or not stored.value else (_decode(path, stored.value), stored.version)
        if now is not None:
            self._known[path] = now
        parts = path.removeprefix(_ROOT + "/").split("/", 3)
        if now != before and len(parts) == 4:
            name = TopicName.from_metadata(parts[0], parts[1], parts[3])
            changed = replace(name, persistent=parts[2] == "persistent")
            for told in self.changed:
                told(changed)

    # Asking and changing.

    def content(self, name: TopicName) -> dict[str, Any]:
        """Return a topic's own policies as JSON; do not change it."""
        return self._known.get(policies_path(name), _NOTHING)[0]

    async def set(self, topic: Topic, key: str, value: Any) -> None:
        """Keep one of a topic's own policies, or with None take it away; raise `InvalidPolicy`."""
        await self.edit(topic, key, lambda _: value)

    async def edit(self, topic: Topic, key: str, edit: Callable[[Any], Any]) -> None:
        """Keep what ``edit`` makes of one of a topic's own policies, None where there is none; as `set`."""
        path = policies_path(topic.name)

        def plan() -> list[Put | Delete]:
            before, version = self._known.get(path, _NOTHING)
            value = edit(before.get(key))
            decode_limits({key: value}, TOPIC_KEYS, strict=True)
            content = {each: kept for each, kept in {**before, key: value}.items() if kept is not None}
            if content:
                return [Put(path, json.dumps(content, separators=(",", ":")).encode(), version)]
            return [Delete(path, version)] if before else []

        await self._broker.metadata.change(plan)

    async def forget(self, name: TopicName) -> None:
        """A topic is gone, and with it its policies."""
        path = policies_path(name)

        def plan() -> list[Delete]:
            return [Delete(path, self._known[path][1])] if path in self._known else []

        await self._broker.metadata.change(plan)

    def limits(self, topic: Topic) -> Limits:
        """Return what is in force for a topic."""
        own = decode_limits(self.content(topic.name), TOPIC_KEYS)
        return own.over(self._broker.topic_policies(topic).limits.over(_defaults(self._broker)))

    def schema_strategy(self, topic: TopicName) -> str | None:
        """Return which schemas may follow which, as the topic or its namespace says it; None where neither does."""
        own: str | None = self.content(topic).get(SCHEMA_STRATEGY)
        if own not in (None, UNDEFINED):
            return own
        namespaces = self._broker.namespaces
        known = topic.namespace_name in namespaces
        return namespaces.policies(topic.namespace_name).schema_compatibility_strategy if known else None

    def enforces_schemas(self, topic: TopicName) -> bool:
        """Whether who brings no schema may not produce to a topic that has one: the broker's yes is everybody's."""
        if self._broker.settings.of(PulsarSettings).schema_validation_enforced:
            return True
        own = self.content(topic).get(SCHEMAS_ENFORCED)
        return (
            bool(own)
            if own is not None
            else self._broker.namespaces.policies(topic.namespace_name).enforces_schemas
        )

    def allows_auto_subscriptions(self, topic: Topic) -> bool:
        """Whether a subscription of the topic is made by asking for it."""
        for said in (
            decode_auto_subscriptions(self.content(topic.name).get(AUTO_SUBSCRIPTIONS)),
            self._broker.topic_policies(topic).allows_auto_subscriptions,
        ):
            if said is not None:
                return said
        return self._broker.settings.of(PulsarSettings).allow_auto_subscription_creation

    def deduplicates(self, topic: Topic) -> bool:
        """Whether what producers send to a topic twice is stored once."""
        policy = self._deduplication_policy(topic)
        if policy is not None:
            return policy
        return self._broker.settings.of(PulsarSettings).broker_deduplication_enabled

    def leaves_deduplication_to_the_broker(self, topic: Topic) -> bool:
        """Whether neither the topic nor its namespace decides about it."""
        return self._deduplication_policy(topic) is None

    def _deduplication_policy(self, topic: Topic) -> bool | None:
        own = self.content(topic.name).get("deduplicationEnabled")
        policy = self._broker.topic_policies(topic).deduplicates if own is None else own
        return None if policy is None else bool(policy)


_NOTHING: tuple[dict[str, Any], int] = ({}, MUST_NOT_EXIST)


def _decode(path: str, value: bytes) -> dict[str, Any]:
    try:
        return dict(json.loads(value))
    except (ValueError, TypeError) as error:
        raise MetadataCorrupt(path, f"not a topic's policies: {error}") from error


def policies_path(name: TopicName) -> str:
    """Return where a topic's own policies are kept."""
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
        limits.subscription_expiration_time_minutes,
    )
