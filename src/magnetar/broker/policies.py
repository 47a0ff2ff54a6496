"""A namespace's policies: Pulsar's JSON, of which some parts take effect here and all parts are kept.

Effective: ``retention_policies`` (minutes and MB, -1 for no bound) for topics without their own, ``auth_policies``
(see `magnetar.broker.auth.grants`), for Pulsar's clients ``deduplicationEnabled``,
``schema_compatibility_strategy`` and all that `magnetar.broker.limits` reads, and our extension
``magnetar``: ``{"flush": "always|interval|os", "entryFormat": "kafka|mixed_kafka|pulsar"}``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from magnetar.broker.auth.grants import AuthPolicies, decode_auth_policies
from magnetar.broker.errors import InvalidPolicy
from magnetar.broker.limits import NAMESPACE_KEYS, Limits, decode_limits, whole_number
from magnetar.broker.topic_config import ENTRY_FORMATS

FLUSHES = ("always", "interval", "os")
_MINUTE_MS, _MB = 60_000, 1 << 20


@dataclass(frozen=True, slots=True)
class NamespacePolicies:
    """What a namespace decides for its topics; None leaves it to the broker."""

    retention_ms: int | None = None
    retention_bytes: int | None = None
    flush: str | None = None
    entry_format: str | None = None
    auth: AuthPolicies = field(default_factory=AuthPolicies)
    deduplicates: bool | None = None
    schema_compatibility_strategy: str | None = None
    compaction_threshold: int | None = None
    limits: Limits = field(default_factory=Limits)


def decode_policies(namespace: str, text: bytes) -> NamespacePolicies:
    """Read Pulsar's policies; raise `InvalidPolicy` for what cannot be."""
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
                content.get("schema_compatibility_strategy"),
                content.get("compaction_threshold"),
                decode_limits(content, NAMESPACE_KEYS),
            ),
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidPolicy(f"policies of namespace {namespace} cannot be read: {error}") from error


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
