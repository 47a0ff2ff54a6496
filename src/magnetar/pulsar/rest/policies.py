"""A namespace's policies one by one: each path reads or writes one key of Pulsar's JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from magnetar.pulsar.rest.checks import exceeds, none_but, one_of, only_this_cluster, readable, typed
from magnetar.pulsar.rest.request import (
    AdminRequest,
    Endpoint,
    Reply,
    RequiredLevel,
    RestError,
    RestRoute,
)
from magnetar.pulsar.rest.topic_policies import kind_of, quota_of
from magnetar.pulsar.schemas import strategy_named
from magnetar.topics.limits import NAMESPACE_KEYS, SIZE, decode_limits, own_of
from magnetar.topics.policies import AUTO_UPDATES, decode_auto_subscriptions, decode_auto_topics


class NamespacePolicy(NamedTuple):
    """One policy: its path, its key, and what its value must be. ``honoured`` tells whether it changes anything."""

    path: str
    key: str
    type: type
    honoured: bool = False
    unset: Callable[[AdminRequest], Any] = lambda ask: None
    """What is shown where nothing is set."""
    check: Callable[[Any], object] | None = None
    """Raises why a value of the right type may not be set."""
    suits: Callable[[AdminRequest, Any], object] | None = None
    """Raises why such a value may not be set at this broker."""


def _check_expiration(minutes: int) -> None:
    if minutes < 0:
        raise RestError(412, "Invalid value for subscription expiration time")


def _check_auto_topics(value: dict[str, Any]) -> None:
    """Refuse, in Pulsar's words, what does not say which topics are to be made."""
    kind, partitions = value.get("topicType"), value.get("defaultNumPartitions")
    why = ""
    if value.get("allowAutoTopicCreation") is True:
        if kind == "partitioned" and partitions is None:
            why = "cannot be null when the type is partitioned."
        elif kind == "partitioned" and isinstance(partitions, int) and partitions < 1:
            why = "cannot be less than 1 for partition type."
        elif kind == "non-partitioned" and partitions is not None:
            why = "is not allowed to be set when the type is non-partition."
    if why:
        said = f"the detail is [defaultNumPartitions] {why}"
        raise RestError(412, f"Invalid configuration for autoTopicCreationOverride. {said}")
    readable(decode_auto_topics)(value)


POLICIES = (
    NamespacePolicy("retention", "retention_policies", dict, honoured=True),
    NamespacePolicy("messageTTL", "message_ttl_in_seconds", int, honoured=True),
    NamespacePolicy("deduplication", "deduplicationEnabled", bool, honoured=True),
    NamespacePolicy(
        "schemaCompatibilityStrategy",
        "schema_compatibility_strategy",
        str,
        honoured=True,
        unset=lambda ask: "UNDEFINED",  # pulsar-admin fails at none
        check=strategy_named,
    ),
    NamespacePolicy("properties", "properties", dict, honoured=True),
    NamespacePolicy(
        "replication",
        "replication_clusters",
        list,
        honoured=True,
        unset=lambda ask: [ask.services.broker.cluster.ownership.cluster],
        suits=only_this_cluster,
    ),
    NamespacePolicy("persistence", "persistence", dict, honoured=True),
    NamespacePolicy(
        "subscriptionExpirationTime",
        "subscription_expiration_time_minutes",
        int,
        honoured=True,
        check=_check_expiration,
    ),
    NamespacePolicy("delayedDelivery", "delayed_delivery_policies", dict, honoured=True),
    NamespacePolicy("inactiveTopicPolicies", "inactive_topic_policies", dict, honoured=True),
    NamespacePolicy("maxProducersPerTopic", "max_producers_per_topic", int, honoured=True),
    NamespacePolicy("maxConsumersPerTopic", "max_consumers_per_topic", int, honoured=True),
    NamespacePolicy("maxConsumersPerSubscription", "max_consumers_per_subscription", int, honoured=True),
    NamespacePolicy("maxSubscriptionsPerTopic", "max_subscriptions_per_topic", int, honoured=True),
    NamespacePolicy("maxTopicsPerNamespace", "max_topics_per_namespace", int, honoured=True),
    NamespacePolicy("maxUnackedMessagesPerConsumer", "max_unacked_messages_per_consumer", int, honoured=True),
    NamespacePolicy(
        "maxUnackedMessagesPerSubscription", "max_unacked_messages_per_subscription", int, honoured=True
    ),
    NamespacePolicy("compactionThreshold", "compaction_threshold", int, honoured=True),
    NamespacePolicy(
        "schemaAutoUpdateCompatibilityStrategy",
        "schema_auto_update_compatibility_strategy",
        str,
        honoured=True,
        check=one_of(*AUTO_UPDATES),
    ),
    NamespacePolicy("schemaValidationEnforced", "schema_validation_enforced", bool, honoured=True),
    NamespacePolicy("isAllowAutoUpdateSchema", "is_allow_auto_update_schema", bool, honoured=True),
    NamespacePolicy("encryptionRequired", "encryption_required", bool, honoured=True),
    NamespacePolicy(
        "subscriptionAuthMode", "subscription_auth_mode", str, honoured=True, check=one_of("None", "Prefix")
    ),
    NamespacePolicy(
        "autoTopicCreation", "autoTopicCreationOverride", dict, honoured=True, check=_check_auto_topics
    ),
    NamespacePolicy(
        "autoSubscriptionCreation",
        "autoSubscriptionCreationOverride",
        dict,
        honoured=True,
        check=readable(decode_auto_subscriptions),
    ),
    NamespacePolicy("dispatchRate", "topicDispatchRate", dict, honoured=True),
    NamespacePolicy("subscriptionDispatchRate", "subscriptionDispatchRate", dict, honoured=True),
    NamespacePolicy(
        "replicatorDispatchRate", "replicatorDispatchRate", dict, honoured=True
    ),  # nothing is replicated
    NamespacePolicy("subscribeRate", "clusterSubscribeRate", dict, honoured=True),
    NamespacePolicy("publishRate", "publishMaxMessageRate", dict, honoured=True),
    # What producers have sent is kept every second, which is as often as it may ask.
    NamespacePolicy(
        "deduplicationSnapshotInterval", "deduplicationSnapshotIntervalSeconds", int, honoured=True
    ),
    NamespacePolicy("entryFilters", "entryFilters", dict, check=none_but({})),
)

_PER_CLUSTER = frozenset(
    {
        "topicDispatchRate",
        "subscriptionDispatchRate",
        "replicatorDispatchRate",
        "clusterSubscribeRate",
        "publishMaxMessageRate",
    }
)
"""What Pulsar keeps for each cluster apart."""


async def backlog_quotas(ask: AdminRequest) -> dict[str, Any]:
    """Return the namespace's backlog quotas."""
    return dict(ask.services.broker.namespaces.content(ask.namespace).get("backlog_quota_map") or {})


async def set_backlog_quota(ask: AdminRequest) -> None:
    """Set a backlog quota, by size or (``backlogQuotaType=message_age``) by time."""
    kind, quota = quota_of(ask)
    kept = ask.services.broker.namespaces.policies(ask.namespace)
    size, age_s = (quota["limitSize"], 0) if kind == SIZE else (0, quota["limitTime"])
    if exceeds(size, age_s, kept.retention_bytes, kept.retention_ms):
        raise RestError(
            412,
            "Backlog Quota exceeds configured retention quota for namespace. "
            "Please increase retention quota and retry",
        )
    await change(ask, lambda content: content.setdefault("backlog_quota_map", {}).update({kind: quota}))


async def remove_backlog_quota(ask: AdminRequest) -> None:
    """Take a backlog quota away."""
    await change(ask, lambda content: content.get("backlog_quota_map", {}).pop(kind_of(ask), None))


async def one_property(ask: AdminRequest) -> Reply:
    """Return one property of the namespace, as it is: Pulsar does not quote it."""
    found = (ask.services.broker.namespaces.content(ask.namespace).get("properties") or {}).get(
        ask.path["key"]
    )
    if found is None:
        raise RestError(404, f"namespace {ask.namespace} has no property {ask.path['key']}")
    return Reply(str(found).encode())


async def set_one_property(ask: AdminRequest) -> None:
    """Set one property of the namespace."""
    await change(
        ask, lambda content: content.setdefault("properties", {}).update({ask.path["key"]: ask.path["value"]})
    )


async def remove_one_property(ask: AdminRequest) -> Reply:
    """Take one property of the namespace away; give what it was."""
    was = await one_property(ask)
    await change(ask, lambda content: content["properties"].pop(ask.path["key"]))
    return was


async def change(ask: AdminRequest, edit: Callable[[dict[str, Any]], object]) -> None:
    """Edit a namespace's JSON and put it in force."""
    await ask.services.broker.namespaces.change(ask.namespace, edit)


def _routes(policy: NamespacePolicy) -> tuple[RestRoute, ...]:
    note = "" if policy.honoured else " (not served: refused, unless it asks for nothing)"

    async def read(ask: AdminRequest) -> Any:
        content = ask.services.broker.namespaces.content(ask.namespace)
        value = content.get(policy.key)
        if not value and (unset := policy.unset(ask)) is not None:
            return unset
        if policy.key in _PER_CLUSTER and value is not None:
            return own_of(value, ask.services.broker.cluster.ownership.cluster)
        return value

    async def write(ask: AdminRequest) -> None:
        value = typed(ask, policy.path, policy.type)
        if policy.check is not None:
            policy.check(value)
        if policy.suits is not None:
            policy.suits(ask, value)
        if policy.key in NAMESPACE_KEYS:
            decode_limits({policy.path: value}, {policy.path: NAMESPACE_KEYS[policy.key]}, strict=True)
        own = ask.services.broker.cluster.ownership.cluster

        def edit(content: dict[str, Any]) -> None:
            if policy.key in _PER_CLUSTER:
                content[policy.key] = {**(content.get(policy.key) or {}), own: value}
            else:
                content[policy.key] = value

        await change(ask, edit)

    async def remove(ask: AdminRequest) -> None:
        own = ask.services.broker.cluster.ownership.cluster

        def edit(content: dict[str, Any]) -> None:
            if policy.key in _PER_CLUSTER:
                (content.get(policy.key) or {}).pop(own, None)
            else:
                content.pop(policy.key, None)

        await change(ask, edit)

    read.__doc__ = f"Give the namespace's {policy.path}{note}."
    write.__doc__ = f"Set the namespace's {policy.path}{note}."
    remove.__doc__ = f"Take the namespace's {policy.path} away."
    path = f"/namespaces/{{tenant}}/{{namespace}}/{policy.path}"
    table: tuple[tuple[str, Endpoint], ...] = (
        ("GET", read),
        ("PUT", write),
        ("POST", write),
        ("DELETE", remove),
    )
    return tuple(RestRoute(method, path, endpoint, RequiredLevel.tenant) for method, endpoint in table)


_ROOT = "/namespaces/{tenant}/{namespace}"
ROUTES = (
    *(route for policy in POLICIES for route in _routes(policy)),
    RestRoute("GET", f"{_ROOT}/property/{{key}}", one_property, RequiredLevel.tenant),
    RestRoute("PUT", f"{_ROOT}/property/{{key}}/{{value:path}}", set_one_property, RequiredLevel.tenant),
    RestRoute("DELETE", f"{_ROOT}/property/{{key}}", remove_one_property, RequiredLevel.tenant),
    RestRoute("GET", f"{_ROOT}/backlogQuotaMap", backlog_quotas, RequiredLevel.tenant),
    RestRoute("POST", f"{_ROOT}/backlogQuota", set_backlog_quota, RequiredLevel.tenant),
    RestRoute("DELETE", f"{_ROOT}/backlogQuota", remove_backlog_quota, RequiredLevel.tenant),
)
