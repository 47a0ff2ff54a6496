"""How much of what there may be: of producers, consumers, backlog, messages in a second; as Pulsar's policies say it.

A topic's own policies come first, then those of its namespace, then the broker's settings. 0 is no bound, and so is
what is negative in rates and quotas. The names are those of Pulsar's JSON, which differ between a namespace's policies
and a topic's; `NAMESPACE_KEYS` and `TOPIC_KEYS` are all that is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from magnetar.broker.errors import InvalidPolicy

CLUSTER = "standalone"
"""The one cluster there is, as Pulsar calls it."""

QUOTA_POLICIES = ("producer_request_hold", "producer_exception", "consumer_backlog_eviction")
SIZE, AGE = "destination_storage", "message_age"
"""What a backlog quota may bound, by Pulsar's names."""


class Rate(NamedTuple):
    """So many messages and bytes in so many seconds; 0 for no bound."""

    messages: int = 0
    bytes: int = 0
    period_s: int = 1

    def __bool__(self) -> bool:
        return self.messages > 0 or self.bytes > 0


class Quota(NamedTuple):
    """How large (bytes) or old (seconds) a backlog may become, and what happens then; 0 for no bound."""

    limit: int
    policy: str = QUOTA_POLICIES[0]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one authority says; None leaves it to the next one."""

    max_producers: int | None = None
    max_consumers: int | None = None
    max_consumers_per_subscription: int | None = None
    max_subscriptions: int | None = None
    max_topics: int | None = None
    """Of a namespace; each partition counts."""
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

    def over(self, below: Limits) -> Limits:
        """Give what is in force where ``below`` says the rest."""
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
}
_RATES = {
    "publish_rate": ("publishThrottlingRateInMsg", "publishThrottlingRateInByte"),
    "dispatch_rate": ("dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte"),
    "subscription_dispatch_rate": ("dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte"),
    "subscribe_rate": ("subscribeThrottlingRatePerConsumer", ""),
}


def decode_limits(content: Mapping[str, Any], keys: Mapping[str, str], *, strict: bool = False) -> Limits:
    """Read what a namespace's or a topic's JSON says; raise `InvalidPolicy`, which names the key.

    Unless ``strict``, negative numbers say nothing: older Pulsars wrote -1 for what was not set.
    """
    found: dict[str, Any] = {}
    for key, name in keys.items():
        value = content.get(key)
        if value is None:
            continue
        if name == "quotas":
            found |= _quotas(key, value)
        elif name in _RATES:
            found[name] = _rate(key, value, *_RATES[name], strict=strict)
        else:
            number = _number(key, value, 0 if strict else None)
            if number >= 0:
                found[name] = number * (1000 if name == "message_ttl_ms" else 1)
    return Limits(**found)


def _number(key: str, value: Any, least: int | None = None) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidPolicy(f"{key} must be a whole number, not {value!r}")
    if least is not None and value < least:
        raise InvalidPolicy(f"{key} must be {least} or more")
    return value


def _rate(key: str, value: Any, messages: str, size: str, *, strict: bool) -> Rate:
    if isinstance(value, Mapping) and CLUSTER in value:  # a namespace says it for each cluster
        value = value[CLUSTER]
    if not isinstance(value, Mapping):
        raise InvalidPolicy(f"{key} must be an object, not {value!r}")
    if strict and value.get("relativeToPublishRate"):
        raise InvalidPolicy(f"{key}: relativeToPublishRate is not served")
    period_s = _number(f"{key}.ratePeriodInSecond", value.get("ratePeriodInSecond", 1), 1)
    bounds = [_number(f"{key}.{name}", value.get(name, -1)) if name else 0 for name in (messages, size)]
    return Rate(max(bounds[0], 0), max(bounds[1], 0), period_s)


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
        found[name] = Quota(max(_number(limits[0], limit), 0), policy)
    return found
