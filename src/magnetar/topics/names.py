"""Topic names: the names that Kafka and Pulsar clients may use for a topic, and the one name that it has here.

    t                        Kafka's short form: lies in the default tenant and namespace
    tenant/ns/t              lies where it says
    persistent://tenant/ns/t Pulsar's full form, the same topic

A short name must be legal for Kafka. The local part of the longer forms may use all that Pulsar allows in one
path segment. Names that end with ``-partition-N`` belong to partitions and cannot be topics.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from magnetar.base.errors import InvalidTopic
from magnetar.metadata.segments import decoded, encoded

CLUSTER = "standalone"
"""The default name of a cluster; Pulsar's standalone broker has the same."""

MAX_NAME_LENGTH = 249
"""Kafka's limit for a topic's name; with a longer one its tools cannot name a partition's directory."""

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
SHARE_GROUP_STATE = "__share_group_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})

_SHORT = re.compile(r"[a-zA-Z0-9._-]+")
_ENTITY = re.compile(r"[-=:.\w]+", re.ASCII)
_LOCAL = re.compile(r"[^/\x00-\x1f\x7f]+")
_PARTITION = re.compile(r"-partition-\d+$")
_SCHEME = "persistent://"
_NON_PERSISTENT = "non-persistent://"


@dataclass(frozen=True, slots=True, order=True)
class TopicName:
    """One topic, whichever name a client uses. Only Pulsar clients know topics that are not ``persistent``."""

    tenant: str
    namespace: str
    local: str
    persistent: bool = True

    @classmethod
    def parse(cls, name: str, tenant: str = "public", namespace: str = "default") -> TopicName:
        """Read any of the three forms; raise `InvalidTopic` with the reason."""
        if "/" not in name:
            return cls(tenant, namespace, _legal_short(name))
        parts = name.removeprefix(_SCHEME).split("/")
        if len(parts) != 3 or (name.startswith(_SCHEME) is False and "://" in name):
            raise InvalidTopic(name, "it must be t, tenant/namespace/t or persistent://tenant/namespace/t")
        return cls(_legal_entity(parts[0], name), _legal_entity(parts[1], name), _legal_local(parts[2], name))

    @classmethod
    def from_metadata(cls, tenant: str, namespace: str, segment: str) -> TopicName:
        """Read what `metadata_name` wrote, without checking it."""
        return cls(tenant, namespace, decoded(segment))

    @property
    def namespace_name(self) -> str:
        """``tenant/namespace``"""
        return f"{self.tenant}/{self.namespace}"

    @property
    def metadata_name(self) -> str:
        """The local name as one segment of a metadata path."""
        return encoded(self.local)

    def ledger_name(self, partition: int) -> str:
        """The managed ledger of a partition: ``tenant/ns/persistent/topic-partition-N``."""
        return f"{self.tenant}/{self.namespace}/persistent/{self.metadata_name}-partition-{partition}"

    def __str__(self) -> str:
        scheme = _SCHEME if self.persistent else _NON_PERSISTENT
        return f"{scheme}{self.tenant}/{self.namespace}/{self.local}"


@dataclass(frozen=True, slots=True)
class Naming:
    """Maps short names to tenants and namespaces on this broker, and back."""

    tenant: str = "public"
    namespace: str = "default"
    metadata_tenant: str = "public"
    metadata_namespace: str = "__kafka"

    def parse(self, name: str) -> TopicName:
        """Return the topic that a client means; internal topics of Kafka lie in the metadata namespace."""
        if name in INTERNAL_TOPICS:
            return TopicName(self.metadata_tenant, self.metadata_namespace, name)
        return TopicName.parse(name, self.tenant, self.namespace)

    def kafka_name(self, topic: TopicName) -> str:
        """Return the shortest form that `parse` reads back as the same topic."""
        home = (topic.tenant, topic.namespace)
        if (
            home == (self.tenant, self.namespace)
            and topic.local not in INTERNAL_TOPICS
            and _is_short(topic.local)
        ):
            return topic.local
        if home == (self.metadata_tenant, self.metadata_namespace) and topic.local in INTERNAL_TOPICS:
            return topic.local
        return f"{topic.tenant}/{topic.namespace}/{topic.local}"


def _is_short(name: str) -> bool:
    return _SHORT.fullmatch(name) is not None and name not in (".", "..")


def _legal_short(name: str) -> str:
    if not name:
        raise InvalidTopic(name, "the empty string is not allowed")
    if name in (".", ".."):
        raise InvalidTopic(name, f"{name!r} is not allowed")
    if not _is_short(name):
        raise InvalidTopic(
            name, f"{name!r} contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
        )
    return _legal_local(name, name)


def _legal_entity(part: str, name: str) -> str:
    if not _ENTITY.fullmatch(part) or part in (".", ".."):
        raise InvalidTopic(name, f"{part!r} is not a tenant or namespace: letters, digits and -=:._ only")
    return part


def _legal_local(local: str, name: str) -> str:
    if len(local) > MAX_NAME_LENGTH:
        raise InvalidTopic(
            name[:MAX_NAME_LENGTH] + "...", f"it is longer than the max allowed length {MAX_NAME_LENGTH}"
        )
    if not _LOCAL.fullmatch(local) or local in (".", "..") or not local.isprintable():
        raise InvalidTopic(name, f"{local!r} is not a topic's local name")
    if _PARTITION.search(local):
        raise InvalidTopic(name, "names ending with -partition-N belong to the partitions of a topic")
    return local
