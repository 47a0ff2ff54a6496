"""A namespace's policies: Pulsar's JSON, of which some parts take effect here and all parts are stored.

Effective: ``retention_policies`` (minutes and MB, -1 for no bound) for topics without their own, ``auth_policies``
(see `magnetar.topics.grants`), for Pulsar clients ``deduplicationEnabled``, ``schema_compatibility_strategy``, the
automatic creation of topics, subscriptions and schemas, what producers must bring (encryption, schemas), and all that
`magnetar.topics.limits` reads, and our extension
``magnetar``: ``{"flush": "always|interval|os", "entryFormat": "kafka|mixed_kafka|pulsar"}``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, NamedTuple

from magnetar.base.errors import InvalidPolicy
from magnetar.topics.grants import AuthPolicies, decode_auth_policies
from magnetar.topics.limits import NAMESPACE_KEYS, Limits, decode_limits, whole_number
from magnetar.topics.names import CLUSTER
from magnetar.topics.offload_policies import OffloadPolicy, decode_namespace
from magnetar.topics.topic import MAX_NEW_PARTITIONS
from magnetar.topics.topic_config import ENTRY_FORMATS

FLUSHES = ("always", "interval", "os")
_MINUTE_MS, _MB = 60_000, 1 << 20


class AutoTopics(NamedTuple):
    """If a client's first request creates a topic; ``partitions`` None creates one without partitions."""

    allowed: bool
    partitions: int | None = None


@dataclass(frozen=True, slots=True)
class NamespacePolicies:
    """The policies of a namespace for its topics; None leaves one to the broker."""

    retention_ms: int | None = None
    retention_bytes: int | None = None
    flush: str | None = None
    entry_format: str | None = None
    auth: AuthPolicies = field(default_factory=AuthPolicies)
    deduplicates: bool | None = None
    schema_compatibility_strategy: str | None = None
    compaction_threshold: int | None = None
    limits: Limits = field(default_factory=Limits)
    auto_topics: AutoTopics | None = None
    allows_auto_subscriptions: bool | None = None
    requires_encryption: bool = False
    enforces_schemas: bool = False
    keeps_schemas: bool = False
    """Whether producers may not bring new versions of schemas on their own (``is_allow_auto_update_schema`` false)."""
    prefixes_subscriptions: bool = False
    """Whether a role's subscriptions must begin with its name (``subscription_auth_mode`` Prefix)."""
    offload: OffloadPolicy = field(default_factory=OffloadPolicy)


def decode_policies(namespace: str, text: bytes, cluster: str = CLUSTER) -> NamespacePolicies:
    """Read Pulsar's policies as they are for a cluster; raise `InvalidPolicy` if they are malformed."""
    try:
        content = json.loads(text) if text else {}
        retention: dict[str, Any] = content.get("retention_policies") or {}
        own: dict[str, Any] = content.get("magnetar") or {}
        return _checked(
            namespace,
            NamespacePolicies(
                _scaled(retention, "retentionTimeInMinutes", _MINUTE_MS),
                _scaled(retention, "retentionSizeInMB", _MB),
                own.get("flush"),
                own.get("entryFormat"),
                decode_auth_policies(content.get("auth_policies") or {}),
                content.get("deduplicationEnabled"),
                _strategy(content),
                content.get("compaction_threshold"),
                decode_limits(content, NAMESPACE_KEYS, cluster),
                decode_auto_topics(content.get("autoTopicCreationOverride")),
                decode_auto_subscriptions(content.get("autoSubscriptionCreationOverride")),
                content.get("encryption_required") is True,
                content.get("schema_validation_enforced") is True,
                content.get("is_allow_auto_update_schema") is False,
                content.get("subscription_auth_mode") == "Prefix",
                decode_namespace(content),
            ),
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidPolicy(f"policies of namespace {namespace} cannot be read: {error}") from error


AUTO_UPDATES = {
    "AutoUpdateDisabled": "ALWAYS_INCOMPATIBLE",
    "Backward": "BACKWARD",
    "Forward": "FORWARD",
    "Full": "FULL",
    "AlwaysCompatible": "ALWAYS_COMPATIBLE",
    "BackwardTransitive": "BACKWARD_TRANSITIVE",
    "ForwardTransitive": "FORWARD_TRANSITIVE",
    "FullTransitive": "FULL_TRANSITIVE",
}
"""The values of the older policy ``schema_auto_update_compatibility_strategy``, and their names in the newer one."""


def _strategy(content: dict[str, Any]) -> str | None:
    said: str | None = content.get("schema_compatibility_strategy")
    if said in (None, "UNDEFINED"):
        return AUTO_UPDATES.get(str(content.get("schema_auto_update_compatibility_strategy")), said)
    return said


def decode_auto_topics(said: Any) -> AutoTopics | None:
    """Read Pulsar's ``AutoTopicCreationOverride``; raise ``ValueError`` or ``TypeError`` if it is malformed."""
    if not said:
        return None
    allowed, kind, partitions = (
        said.get(key) for key in ("allowAutoTopicCreation", "topicType", "defaultNumPartitions")
    )
    if not isinstance(allowed, bool):
        raise ValueError("allowAutoTopicCreation must be true or false")
    if not allowed:
        return AutoTopics(False)  # Go clients also send an empty type
    if kind not in (None, "partitioned", "non-partitioned"):
        raise ValueError(f"Unknown topic type [{kind}]")
    if kind != "partitioned":
        return AutoTopics(allowed)
    number = whole_number("defaultNumPartitions", 1 if partitions is None else partitions)
    if not 1 <= number <= MAX_NEW_PARTITIONS:
        raise ValueError(f"[defaultNumPartitions] must be 1 to {MAX_NEW_PARTITIONS} for partitioned topics")
    return AutoTopics(allowed, number)


def decode_auto_subscriptions(said: Any) -> bool | None:
    """Read Pulsar's ``AutoSubscriptionCreationOverride``; raise ``ValueError`` if it is malformed."""
    if not said:
        return None
    allowed = said.get("allowAutoSubscriptionCreation")
    if not isinstance(allowed, bool):
        raise ValueError("allowAutoSubscriptionCreation must be true or false")
    return allowed


def _scaled(content: dict[str, Any], key: str, factor: int) -> int | None:
    if content.get(key) is None:
        return None
    number = content[key]
    number = int(number) if isinstance(number, float) and isfinite(number) else whole_number(key, number)
    return number * factor if number >= 0 else -1


def _checked(namespace: str, policies: NamespacePolicies) -> NamespacePolicies:
    if policies.flush is not None and policies.flush not in FLUSHES:
        raise InvalidPolicy(
            f"namespace {namespace}: flush is one of {', '.join(FLUSHES)}, not {policies.flush!r}"
        )
    if policies.entry_format is not None and policies.entry_format not in ENTRY_FORMATS:
        raise InvalidPolicy(
            f"namespace {namespace}: entryFormat is one of {', '.join(ENTRY_FORMATS)}, not {policies.entry_format!r}"
        )
    return policies
