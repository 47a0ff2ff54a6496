"""Limits of producers, consumers, backlog and messages in a second, as in Pulsar's policies.

A topic's own policies come first, then those of its namespace, then the broker's settings. 0 is no bound, and so is
what is negative in rates and quotas. The names are those of Pulsar's JSON, which differ between a namespace's policies
and a topic's; `NAMESPACE_KEYS` and `TOPIC_KEYS` are all that is read.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from magnetar.base.errors import InvalidPolicy
from magnetar.topics.names import CLUSTER

QUOTA_POLICIES = ("producer_request_hold", "producer_exception", "consumer_backlog_eviction")
SIZE, AGE = "destination_storage", "message_age"
"""What a backlog quota may bound, by Pulsar's names."""


class Rate(NamedTuple):
    """A number of messages and bytes in a number of seconds; 0 for no bound."""

    messages: int = 0
    bytes: int = 0
    period_s: int = 1
    relative: bool = False
    """Whether what is published meanwhile may go in addition (``relativeToPublishRate``)."""

    def __bool__(self) -> bool:
        return self.messages > 0 or self.bytes > 0


class Quota(NamedTuple):
    """The size (bytes) or age (seconds) that a backlog may reach, and what happens then; 0 for no bound."""

    limit: int
    policy: str = QUOTA_POLICIES[0]


class DelayedDelivery(NamedTuple):
    """If messages may wait for their delivery time, and for how long at most; 0 for no bound."""

    active: bool = True
    tick_ms: int = 1000
    """Stored and shown only: messages come to the millisecond."""
    max_delay_ms: int = 0


class Persistence(NamedTuple):
    """The rate of persisting cursors. Numbers of copies are stored and shown only: a ledger is on one broker."""

    ensemble: int = 1
    write_quorum: int = 1
    ack_quorum: int = 1
    mark_delete_rate: float = 1.0


NO_SUBSCRIPTIONS, CAUGHT_UP = "delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"


class InactiveTopics(NamedTuple):
    """If and when a topic is deleted that has not been used for so many seconds."""

    mode: str = NO_SUBSCRIPTIONS
    after_s: int = 60
    delete: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one authority; None leaves one to the next authority."""

    max_producers: int | None = None
    max_consumers: int | None = None
    max_consumers_per_subscription: int | None = None
    max_subscriptions: int | None = None
    max_topics: int | None = None
    """In a namespace; each partition counts."""
    max_unacked_per_consumer: int | None = None
    max_unacked_per_subscription: int | None = None
    max_message_bytes: int | None = None
    message_ttl_ms: int | None = None
    publish_rate: Rate | None = None
    dispatch_rate: Rate | None = None
    subscription_dispatch_rate: Rate | None = None
    subscribe_rate: Rate | None = None
    """How often one consumer may subscribe."""
    size_quota: Quota | None = None
    age_quota: Quota | None = None
    delayed_delivery: DelayedDelivery | None = None
    persistence: Persistence | None = None
    inactive_topics: InactiveTopics | None = None
    subscription_expiration_minutes: int | None = None
    """After how long without consumers a subscription is deleted; 0 for never."""

    def over(self, below: Limits) -> Limits:
        """Return what is in force where ``below`` has the rest."""
        said = {each.name: getattr(self, each.name) for each in fields(self)}
        return replace(below, **{name: value for name, value in said.items() if value is not None})


NAMESPACE_KEYS = {
    "max_producers_per_topic": "max_producers",
    "max_consumers_per_topic": "max_consumers",
    "max_consumers_per_subscription": "max_consumers_per_subscription",
    "max_subscriptions_per_topic": "max_subscriptions",
    "max_topics_per_namespace": "max_topics",
    "max_unacked_messages_per_consumer": "max_unacked_per_consumer",
    "max_unacked_messages_per_subscription": "max_unacked_per_subscription",
    "message_ttl_in_seconds": "message_ttl_ms",
    "publishMaxMessageRate": "publish_rate",
    "topicDispatchRate": "dispatch_rate",
    "subscriptionDispatchRate": "subscription_dispatch_rate",
    "clusterSubscribeRate": "subscribe_rate",
    "backlog_quota_map": "quotas",
    "delayed_delivery_policies": "delayed_delivery",
    "persistence": "persistence",
    "inactive_topic_policies": "inactive_topics",
    "subscription_expiration_time_minutes": "subscription_expiration_minutes",
}
TOPIC_KEYS = {
    "maxProducerPerTopic": "max_producers",
    "maxConsumerPerTopic": "max_consumers",
    "maxConsumersPerSubscription": "max_consumers_per_subscription",
    "maxSubscriptionsPerTopic": "max_subscriptions",
    "maxUnackedMessagesOnConsumer": "max_unacked_per_consumer",
    "maxUnackedMessagesOnSubscription": "max_unacked_per_subscription",
    "maxMessageSize": "max_message_bytes",
    "messageTTLInSeconds": "message_ttl_ms",
    "publishRate": "publish_rate",
    "dispatchRate": "dispatch_rate",
    "subscriptionDispatchRate": "subscription_dispatch_rate",
    "subscribeRate": "subscribe_rate",
    "backLogQuotaMap": "quotas",
    "delayedDelivery": "delayed_delivery",
    "persistence": "persistence",
    "inactiveTopicPolicies": "inactive_topics",
}
_DIGITS = re.compile(r"-?[0-9]{1,19}")
_RATES = {
    "publish_rate": ("publishThrottlingRateInMsg", "publishThrottlingRateInByte"),
    "dispatch_rate": ("dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte"),
    "subscription_dispatch_rate": ("dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte"),
    "subscribe_rate": ("subscribeThrottlingRatePerConsumer", ""),
}


def decode_limits(
    content: Mapping[str, Any], keys: Mapping[str, str], cluster: str = CLUSTER, *, strict: bool = False
) -> Limits:
    """Read the limits from a namespace's or a topic's JSON; raise `InvalidPolicy`, which names the key.

    A namespace has rates for each cluster; those of ``cluster`` count.

    Unless ``strict``, negative numbers mean nothing: older Pulsar versions wrote -1 for what was not set.
    """
    found: dict[str, Any] = {}
    for key, name in keys.items():
        value = own_of(content.get(key), cluster) if name in _RATES else content.get(key)
        if value is None:
            continue
        if name == "quotas":
            found |= _quotas(key, value)
        elif name in _RATES:
            found[name] = _rate(key, value, *_RATES[name], strict=strict)
        elif name in _OBJECTS:
            try:
                found[name] = _OBJECTS[name](key, value)
            except InvalidPolicy:  # what is stored may never have been checked
                if strict:
                    raise
        else:
            number = whole_number(key, value, 0 if strict else None)
            if number >= 0:
                found[name] = number * (1000 if name == "message_ttl_ms" else 1)
    return Limits(**found)


def unquoted(value: Any) -> Any:
    """Return a number of Pulsar's JSON that is written as a string as a number, and anything else as it is."""
    return int(value) if isinstance(value, str) and _DIGITS.fullmatch(value) else value


def whole_number(key: str, value: Any, least: int | None = None) -> int:
    """Return a number of Pulsar's JSON, which may be a string; raise `InvalidPolicy`, which names the key."""
    value = unquoted(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidPolicy(f"{key} must be a whole number, not {value!r}")
    if least is not None and value < least:
        raise InvalidPolicy(f"{key} must be {least} or more")
    return value


def own_of(value: Any, cluster: str) -> Any:
    """Return the value for this cluster from a map of clusters, None without one; return anything else as it is."""
    if isinstance(value, Mapping) and all(isinstance(each, Mapping) for each in value.values()):
        return value.get(cluster)
    return value


def _rate(key: str, value: Any, messages: str, size: str, *, strict: bool) -> Rate:
    if not isinstance(value, Mapping):
        raise InvalidPolicy(f"{key} must be an object, not {value!r}")
    period_s = whole_number(f"{key}.ratePeriodInSecond", value.get("ratePeriodInSecond", 1), 1)
    bounds = [whole_number(f"{key}.{name}", value.get(name, -1)) if name else 0 for name in (messages, size)]
    relative = _flag(f"{key}.relativeToPublishRate", value.get("relativeToPublishRate") or False)
    return Rate(max(bounds[0], 0), max(bounds[1], 0), period_s, relative)


def _quotas(key: str, value: Any) -> dict[str, Quota]:
    if not isinstance(value, Mapping) or not all(isinstance(each, Mapping) for each in value.values()):
        raise InvalidPolicy(f"{key} must be an object of objects, not {value!r}")
    if unknown := set(value) - {SIZE, AGE}:
        raise InvalidPolicy(f"a backlog quota is about {SIZE} or {AGE}, not {', '.join(sorted(unknown))}")
    found = {}
    for kind, name, limits in (
        (SIZE, "size_quota", ("limitSize", "limit")),
        (AGE, "age_quota", ("limitTime",)),
    ):
        quota = value.get(kind)
        if quota is None:
            continue
        policy = quota.get("policy")
        if policy not in QUOTA_POLICIES:
            raise InvalidPolicy(f"policy is one of {', '.join(QUOTA_POLICIES)}, not {policy!r}")
        limit = next((quota[each] for each in limits if quota.get(each) is not None), 0)
        found[name] = Quota(max(whole_number(limits[0], limit), 0), policy)
    return found


def _delayed_delivery(key: str, value: Any) -> DelayedDelivery:
    said = _object(key, value)
    return DelayedDelivery(
        _flag(f"{key}.active", said.get("active", False)),
        whole_number(f"{key}.tickTime", said.get("tickTime", 1000), 0),
        whole_number(f"{key}.maxDeliveryDelayInMillis", said.get("maxDeliveryDelayInMillis") or 0, 0),
    )


def _persistence(key: str, value: Any) -> Persistence:
    said = _object(key, value)
    names = ("bookkeeperEnsemble", "bookkeeperWriteQuorum", "bookkeeperAckQuorum")
    ensemble, written, acked = (whole_number(f"{key}.{name}", said.get(name), 1) for name in names)
    if not ensemble >= written >= acked:
        raise InvalidPolicy(
            f"{key}: Bookkeeper Ensemble ({ensemble}) >= WriteQuorum ({written}) >= AckQuorum ({acked}) must hold"
        )
    rate = said.get("managedLedgerMaxMarkDeleteRate", 0)
    if not isinstance(rate, int | float) or isinstance(rate, bool) or not abs(rate) <= sys.float_info.max:
        raise InvalidPolicy(f"{key}.managedLedgerMaxMarkDeleteRate must be a number, not {rate!r}")
    return Persistence(ensemble, written, acked, float(rate))


def _inactive_topics(key: str, value: Any) -> InactiveTopics:
    said = _object(key, value)
    mode = said.get("inactiveTopicDeleteMode") or NO_SUBSCRIPTIONS
    if mode not in (NO_SUBSCRIPTIONS, CAUGHT_UP):
        raise InvalidPolicy(
            f"{key}.inactiveTopicDeleteMode is {NO_SUBSCRIPTIONS} or {CAUGHT_UP}, not {mode!r}"
        )
    after_s = whole_number(f"{key}.maxInactiveDurationSeconds", said.get("maxInactiveDurationSeconds"), 1)
    return InactiveTopics(mode, after_s, _flag(f"{key}.deleteWhileInactive", said.get("deleteWhileInactive")))


_OBJECTS: dict[str, Callable[[str, Any], Any]] = {
    "delayed_delivery": _delayed_delivery,
    "persistence": _persistence,
    "inactive_topics": _inactive_topics,
}


def _object(key: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidPolicy(f"{key} must be an object, not {value!r}")
    return value


def _flag(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidPolicy(f"{key} must be true or false, not {value!r}")
    return value
