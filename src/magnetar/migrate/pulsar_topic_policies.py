"""Topics' own policies as Pulsar keeps them: messages of ``__change_events``, one topic's last one counts.

The key is the topic's full name, with ``__G__`` before it for policies of all clusters, which those of this cluster
come before. A message without value says that there are none any more; otherwise it is a ``PulsarEvent`` in Avro, whose
``topicPoliciesEvent`` names the topic and has its ``TopicPolicies``. Their fields are those of Pulsar's JSON, but for
delayed delivery's, retention's and the compaction's threshold, which are elsewhere here.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException

from magnetar.migrate.pulsar_messages import KeyedMessage
from magnetar.pulsar.policies import AUTO_SUBSCRIPTIONS, SCHEMA_STRATEGY, SCHEMAS_ENFORCED, UNDEFINED
from magnetar.records.errors import EntryCorrupt
from magnetar.topics.limits import TOPIC_KEYS, decode_limits
from magnetar.topics.names import TopicName

EVENTS = "__change_events"
_GLOBAL = "__G__"
_NON_PERSISTENT = "non-persistent://"
_MINUTE_MS, _MB = 60_000, 1 << 20
_DELAYED = {
    "delayedDeliveryEnabled": ("active", True),
    "delayedDeliveryTickTimeMillis": ("tickTime", 1000),
    "delayedDeliveryMaxDelayInMillis": ("maxDeliveryDelayInMillis", 0),
}
"""What is one object here and in the admin REST, and what is meant where nothing is said."""
_HONOURED = frozenset({
    *TOPIC_KEYS, SCHEMA_STRATEGY, SCHEMAS_ENFORCED, AUTO_SUBSCRIPTIONS, "deduplicationEnabled",
    "deduplicationSnapshotIntervalSeconds", "offloadPolicies", "replicationClusters",
})  # fmt: skip
NOT_HONOURED = {
    "subscriptionTypesEnabled": "all types of subscriptions are allowed",
    "shadowTopics": "there are no shadow topics",
    "replicatorDispatchRate": "it limits geo-replication",
    "entryFilters": "there are no entry filters",
    "subscriptionPolicies": "a subscription has no rates of its own",
    "dispatcherPauseOnAckStatePersistentEnabled": "dispatch does not pause for it",
}
"""Policies that are kept and change nothing here, and why."""
_OF_ITSELF = frozenset({"isGlobal"})


@dataclass(frozen=True, slots=True)
class OwnPolicies:
    """What one topic says for itself."""

    content: dict[str, Any] = field(default_factory=dict)
    """As `magnetar.pulsar.policies` keeps it."""
    config: dict[str, str] = field(default_factory=dict)
    """By the names of topics' configurations: retention and the compaction's threshold."""

    def not_honoured(self) -> dict[str, str]:
        """Return what changes nothing here, and why."""
        return {
            key: NOT_HONOURED.get(key, "it is not known here") for key in self.content if key not in _HONOURED
        }


class ChangeEvents:
    """Follows the messages of one namespace's ``__change_events``."""

    def __init__(self, schemas: Mapping[int, bytes]) -> None:
        """``schemas`` are the topic's, in Avro's JSON, by their version."""
        self._schemas = schemas
        self._parsed: dict[int, Any] = {}
        self._said: dict[tuple[TopicName, bool], dict[str, Any]] = {}
        """What topics say for all clusters (True) and for this one."""

    def apply(self, message: KeyedMessage) -> None:
        """Take one message; raise ``EntryCorrupt`` for one that cannot be read."""
        key = (message.key or b"").decode("utf-8", "replace")
        if message.payload is None:
            self._said.pop((_named(key.removeprefix(_GLOBAL)), key.startswith(_GLOBAL)), None)
            return
        event = self._decoded(message)
        said = event.get("topicPoliciesEvent")
        if event.get("eventType") != "TOPIC_POLICY" or said is None:
            return
        policies = said.get("policies")
        name = _named(f"{said['domain']}://{said['tenant']}/{said['namespace']}/{said['topic']}")
        place = name, key.startswith(_GLOBAL) or bool((policies or {}).get("isGlobal"))
        if event.get("actionType") == "DELETE" or policies is None:
            self._said.pop(place, None)
        else:
            self._said[place] = policies

    def policies(self) -> dict[TopicName, OwnPolicies]:
        """Return what is in force of all topics that say anything; raise `InvalidPolicy`."""
        found = {}
        for name in sorted({each for each, _ in self._said}):
            everywhere, here = (_plain(self._said.get((name, each), {})) for each in (True, False))
            if said := {**everywhere, **here}:
                found[name] = own_policies(said)
        return found

    def _decoded(self, message: KeyedMessage) -> dict[str, Any]:
        version = int.from_bytes(message.schema_version, "big") if message.schema_version else -1
        if version < 0:
            version = max(self._schemas, default=-1)
        assert message.payload is not None
        try:
            if version not in self._parsed:
                self._parsed[version] = fastavro.parse_schema(json.loads(self._schemas[version]))
            found = fastavro.schemaless_reader(io.BytesIO(message.payload), self._parsed[version], None)
        except KeyError:
            raise EntryCorrupt(f"an event of schema version {version}, which is not there") from None
        except (ValueError, EOFError, IndexError, TypeError, SchemaParseException) as error:
            raise EntryCorrupt(f"an event that is not of its schema: {error!r}") from None
        if not isinstance(found, dict):
            raise EntryCorrupt("an event that is no record")
        return found


def own_policies(said: Mapping[str, Any]) -> OwnPolicies:
    """Return Pulsar's ``TopicPolicies`` as they are kept here; raise `InvalidPolicy` for what cannot be."""
    content = dict(said)
    config: dict[str, str] = {}
    retention = content.pop("retentionPolicies", None)
    if retention is not None:
        minutes, size = int(retention["retentionTimeInMinutes"]), int(retention["retentionSizeInMB"])
        config["retention.ms"] = str(minutes * _MINUTE_MS if minutes >= 0 else -1)
        config["retention.bytes"] = str(size * _MB if size >= 0 else -1)
    threshold = content.pop("compactionThreshold", None)
    if threshold is not None:
        config["compaction.threshold"] = str(max(int(threshold), 0))
    if any(name in content for name in _DELAYED):
        content["delayedDelivery"] = {
            key: content.pop(name, otherwise) for name, (key, otherwise) in _DELAYED.items()
        }
    for kind, quota in content.get("backLogQuotaMap", {}).items():
        content["backLogQuotaMap"][kind] = {"limit": quota.get("limitSize", -1), **quota}
    decode_limits(content, TOPIC_KEYS)
    return OwnPolicies(content, config)


def _plain(said: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what says nothing."""
    return {
        key: _without_none(value)
        for key, value in said.items()
        if key not in _OF_ITSELF and value is not None and value != [] and value != {} and value != UNDEFINED
    }


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_none(each) for key, each in value.items() if each is not None}
    return value


def _named(text: str) -> TopicName:
    persistent = not text.startswith(_NON_PERSISTENT)
    short = text if persistent else text.removeprefix(_NON_PERSISTENT)
    parts = short.removeprefix("persistent://").split("/", 2)
    if len(parts) != 3:
        raise EntryCorrupt(f"an event of {text!r}, which is no topic")
    return TopicName(parts[0], parts[1], parts[2], persistent)
