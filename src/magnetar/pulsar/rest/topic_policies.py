"""A topic's own policies one by one, persistent or not; ``applied=true`` gives what is in force, whoever says it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from magnetar.pulsar.policies import AUTO_SUBSCRIPTIONS, SCHEMA_STRATEGY, SCHEMAS_ENFORCED, TopicPolicies
from magnetar.pulsar.rest.checks import exceeds, only_this_cluster, readable, typed
from magnetar.pulsar.rest.request import AdminRequest, Endpoint, RequiredLevel, RestError, RestRoute, scalar
from magnetar.pulsar.rest.topics import found
from magnetar.pulsar.schemas import strategy_named
from magnetar.pulsar.settings import PulsarSettings
from magnetar.topics.limits import (
    AGE,
    SIZE,
    TOPIC_KEYS,
    DelayedDelivery,
    InactiveTopics,
    Limits,
    Persistence,
    Quota,
    Rate,
    decode_limits,
    own_of,
)
from magnetar.topics.policies import decode_auto_subscriptions
from magnetar.topics.topic import Topic

_QUOTAS = "backLogQuotaMap"


class TopicPolicy(NamedTuple):
    """One policy: its path, its key in Pulsar's ``TopicPolicies``, and how what is in force is told."""

    path: str
    key: str
    applied: Callable[[AdminRequest, Topic], Any]
    type: type | None = None
    """What its value must be; None for what ``check`` finds out itself."""
    check: Callable[[Any], object] | None = None
    """Raises why a value may not be set."""
    suits: Callable[[AdminRequest, Any], object] | None = None
    """Raises why a value may not be set at this broker."""


def _dispatch(rate: Rate | None) -> dict[str, Any]:
    rate = rate or Rate()
    return {
        "dispatchThrottlingRateInMsg": rate.messages,
        "dispatchThrottlingRateInByte": rate.bytes,
        "relativeToPublishRate": rate.relative,
        "ratePeriodInSecond": rate.period_s,
    }


def _publish(rate: Rate | None) -> dict[str, Any]:
    rate = rate or Rate()
    return {"publishThrottlingRateInMsg": rate.messages, "publishThrottlingRateInByte": rate.bytes}


def _subscribe(rate: Rate | None) -> dict[str, Any]:
    rate = rate or Rate()
    return {"subscribeThrottlingRatePerConsumer": rate.messages, "ratePeriodInSecond": rate.period_s}


def _delayed(said: DelayedDelivery | None) -> dict[str, Any]:
    said = said or DelayedDelivery()
    return {
        "tickTime": said.tick_ms,
        "active": said.active,
        "maxDeliveryDelayInMillis": said.max_delay_ms,
    }


def _persistence(said: Persistence | None) -> dict[str, Any]:
    said = said or Persistence()
    return {
        "bookkeeperEnsemble": said.ensemble,
        "bookkeeperWriteQuorum": said.write_quorum,
        "bookkeeperAckQuorum": said.ack_quorum,
        "managedLedgerMaxMarkDeleteRate": said.mark_delete_rate,
    }


def _inactive(said: InactiveTopics | None) -> dict[str, Any]:
    said = said or InactiveTopics()
    return {
        "inactiveTopicDeleteMode": said.mode,
        "maxInactiveDurationSeconds": said.after_s,
        "deleteWhileInactive": said.delete,
    }


def _limit(path: str, key: str, shown: Callable[[Limits], Any]) -> TopicPolicy:
    """Return one of the policies that `magnetar.topics.limits` reads."""

    def check(value: Any) -> None:
        decode_limits({path: value}, {path: TOPIC_KEYS[key]}, strict=True)

    return TopicPolicy(path, key, lambda ask, topic: shown(_policies(ask).limits(topic)), check=check)


_REPLICATOR_RATE = {"replicatorDispatchRate": "dispatch_rate"}


def _own(ask: AdminRequest, topic: Topic, key: str) -> Any:
    return _policies(ask).content(topic.name).get(key)


def _own_or_namespaces(key: str) -> Callable[[AdminRequest, Topic], Any]:
    """Return how to find what a topic or else its namespace says, which both call the same."""

    def applied(ask: AdminRequest, topic: Topic) -> Any:
        own = _own(ask, topic, key)
        said = ask.services.broker.namespaces.content(ask.namespace).get(key) if own is None else own
        return own_of(said, ask.services.broker.cluster.ownership.cluster)

    return applied


POLICIES = (
    _limit("maxProducers", "maxProducerPerTopic", lambda limits: limits.max_producers),
    _limit("maxConsumers", "maxConsumerPerTopic", lambda limits: limits.max_consumers),
    _limit(
        "maxConsumersPerSubscription",
        "maxConsumersPerSubscription",
        lambda limits: limits.max_consumers_per_subscription,
    ),
    _limit("maxSubscriptionsPerTopic", "maxSubscriptionsPerTopic", lambda limits: limits.max_subscriptions),
    _limit(
        "maxUnackedMessagesOnConsumer",
        "maxUnackedMessagesOnConsumer",
        lambda limits: limits.max_unacked_per_consumer,
    ),
    _limit(
        "maxUnackedMessagesOnSubscription",
        "maxUnackedMessagesOnSubscription",
        lambda limits: limits.max_unacked_per_subscription,
    ),
    _limit("maxMessageSize", "maxMessageSize", lambda limits: limits.max_message_bytes),
    _limit("messageTTL", "messageTTLInSeconds", lambda limits: (limits.message_ttl_ms or 0) // 1000),
    _limit("publishRate", "publishRate", lambda limits: _publish(limits.publish_rate)),
    _limit("dispatchRate", "dispatchRate", lambda limits: _dispatch(limits.dispatch_rate)),
    _limit(
        "subscriptionDispatchRate",
        "subscriptionDispatchRate",
        lambda limits: _dispatch(limits.subscription_dispatch_rate),
    ),
    _limit("subscribeRate", "subscribeRate", lambda limits: _subscribe(limits.subscribe_rate)),
    _limit("delayedDelivery", "delayedDelivery", lambda limits: _delayed(limits.delayed_delivery)),
    _limit("persistence", "persistence", lambda limits: _persistence(limits.persistence)),
    _limit(
        "inactiveTopicPolicies",
        "inactiveTopicPolicies",
        lambda limits: _inactive(limits.inactive_topics),
    ),
    TopicPolicy(
        "schemaCompatibilityStrategy",
        SCHEMA_STRATEGY,
        lambda ask, topic: ask.services.schemas.strategy(topic.name).name,
        str,
        strategy_named,
    ),
    TopicPolicy(
        "schemaValidationEnforced",
        SCHEMAS_ENFORCED,
        lambda ask, topic: _policies(ask).enforces_schemas(topic.name),
        bool,
    ),
    TopicPolicy(
        "autoSubscriptionCreation",
        AUTO_SUBSCRIPTIONS,
        lambda ask, topic: {"allowAutoSubscriptionCreation": _policies(ask).allows_auto_subscriptions(topic)},
        dict,
        readable(decode_auto_subscriptions),
    ),
    # What producers have sent is kept every second, which is as often as it may ask.
    TopicPolicy(
        "deduplicationSnapshotInterval",
        "deduplicationSnapshotIntervalSeconds",
        _own_or_namespaces("deduplicationSnapshotIntervalSeconds"),
        int,
    ),
    TopicPolicy(
        "replication",
        "replicationClusters",
        lambda ask, topic: [ask.services.broker.cluster.ownership.cluster],
        list,
        suits=only_this_cluster,
    ),
    # Nothing is replicated, however fast it might be.
    TopicPolicy(
        "replicatorDispatchRate",
        "replicatorDispatchRate",
        _own_or_namespaces("replicatorDispatchRate"),
        dict,
        lambda value: decode_limits({"replicatorDispatchRate": value}, _REPLICATOR_RATE, strict=True),
    ),
)


def quota_of(ask: AdminRequest) -> tuple[str, dict[str, Any]]:
    """Return which quota the request is about, and what it says, as Pulsar keeps it; raise ``InvalidPolicy``."""
    kind, said = kind_of(ask), ask.object()
    decode_limits({"backlogQuota": {kind: said}}, {"backlogQuota": "quotas"}, strict=True)
    size, time = (
        next((int(said[name]) for name in names if said.get(name) is not None), -1)
        for names in (("limitSize", "limit"), ("limitTime",))
    )
    return kind, {
        "limit": size,
        "limitSize": size,
        "limitTime": time,
        "policy": said["policy"],
    }


def kind_of(ask: AdminRequest) -> str:
    """Return which quota the request is about."""
    kind = ask.query.get("backlogQuotaType", SIZE)
    if kind not in (SIZE, AGE):
        raise RestError(404, f"backlogQuotaType is {SIZE} or {AGE}, not {kind}")
    return kind


def _policies(ask: AdminRequest) -> TopicPolicies:
    return ask.services.topics.policies


async def backlog_quotas(ask: AdminRequest) -> dict[str, Any]:
    """Return the topic's own backlog quotas."""
    topic = found(ask)
    if not ask.flag("applied"):
        return dict(_policies(ask).content(topic.name).get(_QUOTAS) or {})
    limits = _policies(ask).limits(topic)
    size, age = limits.size_quota or Quota(0), limits.age_quota or Quota(0)
    return {
        SIZE: {"limit": size.limit, "limitSize": size.limit, "limitTime": -1, "policy": size.policy},
        AGE: {"limit": -1, "limitSize": -1, "limitTime": age.limit, "policy": age.policy},
    }


async def set_backlog_quota(ask: AdminRequest) -> None:
    """Set one of the topic's own backlog quotas, by size or (``backlogQuotaType=message_age``) by time."""
    topic = found(ask)
    kind, quota = quota_of(ask)
    size, age_s = (quota["limitSize"], 0) if kind == SIZE else (0, quota["limitTime"])
    kept = ask.services.broker.namespaces.policies(ask.namespace)
    own = topic.config if {"retention.ms", "retention.bytes"} & set(topic.overrides) else kept
    if exceeds(size, age_s, own.retention_bytes, own.retention_ms):
        raise RestError(
            412,
            "Backlog Quota exceeds configured retention quota for topic. "
            "Please increase retention quota and retry",
        )
    await _policies(ask).edit(topic, _QUOTAS, lambda kept: {**(kept or {}), kind: quota})


async def remove_backlog_quota(ask: AdminRequest) -> None:
    """Have the topic follow its namespace's backlog quota again."""
    topic, kind = found(ask), kind_of(ask)
    await _policies(ask).edit(
        topic,
        _QUOTAS,
        lambda kept: {name: quota for name, quota in (kept or {}).items() if name != kind} or None,
    )


async def deduplication(ask: AdminRequest) -> bool | None:
    """Tell whether the topic itself says that what is sent twice is stored once."""
    topic = found(ask)
    if ask.flag("applied"):
        return _policies(ask).deduplicates(topic)
    said: bool | None = _policies(ask).content(topic.name).get("deduplicationEnabled")
    return said


async def set_deduplication(ask: AdminRequest) -> None:
    """Say for this topic whether what is sent twice is stored once."""
    wanted = scalar(ask.json(), bool)
    if not isinstance(wanted, bool):
        raise RestError(400, f"deduplicationEnabled must be true or false, not {wanted!r}")
    await _policies(ask).set(found(ask), "deduplicationEnabled", wanted)


async def remove_deduplication(ask: AdminRequest) -> None:
    """Have the topic follow its namespace's deduplication again."""
    await _policies(ask).set(found(ask), "deduplicationEnabled", None)


def _endpoints(policy: TopicPolicy) -> tuple[tuple[str, str, Endpoint], ...]:
    async def read(ask: AdminRequest) -> Any:
        topic = found(ask)
        if ask.flag("applied"):
            return policy.applied(ask, topic)
        return _own(ask, topic, policy.key)

    async def write(ask: AdminRequest) -> None:
        topic = found(ask)
        if policy.type is not None:
            value = typed(ask, policy.path, policy.type)
        else:
            value = ask.number("messageTTL") if "messageTTL" in ask.query else scalar(ask.json(), int)
        if value is None:
            raise RestError(400, f"{policy.path} is missing in the body")
        if policy.check is not None:
            policy.check(value)
        if policy.suits is not None:
            policy.suits(ask, value)
        most = ask.services.broker.settings.of(PulsarSettings).pulsar_max_message_size
        if policy.key == "maxMessageSize" and value > most:
            raise RestError(412, f"maxMessageSize must not be more than the broker's, {most}")
        await _policies(ask).set(topic, policy.key, value)

    async def remove(ask: AdminRequest) -> None:
        await _policies(ask).set(found(ask), policy.key, None)

    read.__doc__ = f"Give the topic's own {policy.path}."
    write.__doc__ = f"Set the topic's own {policy.path}."
    remove.__doc__ = f"Have the topic follow its namespace's {policy.path} again."
    return (
        ("GET", policy.path, read),
        ("POST", policy.path, write),
        ("PUT", policy.path, write),
        ("DELETE", policy.path, remove),
    )


_TABLE: tuple[tuple[str, str, Endpoint], ...] = (
    *(row for policy in POLICIES for row in _endpoints(policy)),
    ("GET", "backlogQuotaMap", backlog_quotas),
    ("POST", "backlogQuota", set_backlog_quota),
    ("DELETE", "backlogQuota", remove_backlog_quota),
    ("GET", "deduplicationEnabled", deduplication),
    ("POST", "deduplicationEnabled", set_deduplication),
    ("DELETE", "deduplicationEnabled", remove_deduplication),
)
ROUTES = tuple(
    RestRoute(method, f"/{domain}/{{tenant}}/{{namespace}}/{{topic}}/{path}", endpoint, RequiredLevel.tenant)
    for domain in ("persistent", "non-persistent")
    for method, path, endpoint in _TABLE
)
