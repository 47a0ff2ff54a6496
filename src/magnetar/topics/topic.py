"""A topic as the broker knows it, and the JSON that keeps it in the metadata store.

The node lies where Pulsar keeps partitioned topics, and holds what Pulsar expects (``partitions``, ``properties``,
``deleted``); what Kafka needs besides lies in ``properties``: ``kafka.topic.id`` (base64) and ``kafka.config.<name>``.
All other properties are those that Pulsar's users gave it: they are kept and shown.
Pulsar has such a node only for topics that are partitioned; of ours those are that say ``pulsar.partitioned``, and
those with several partitions.
"""

from __future__ import annotations

import base64
import json
import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from magnetar.base.errors import TooManyPartitions
from magnetar.metadata import MetadataCorrupt
from magnetar.topics.names import INTERNAL_TOPICS, TopicName
from magnetar.topics.topic_config import TopicConfig

MAX_NEW_PARTITIONS = 10_000
"""That one request may make, over all its topics, as of Kafka."""
MAX_PARTITIONS = 200_000
"""Of one topic: clients are told of all of them in each answer that names it."""
_ID = "kafka.topic.id"
_CONFIG = "kafka.config."
_PARTITIONED = "pulsar.partitioned"
_log = logging.getLogger("magnetar.broker")


def refuse_too_many(more: int) -> None:
    """Raise `TooManyPartitions` for more new partitions than one request may make."""
    if more > MAX_NEW_PARTITIONS:
        raise TooManyPartitions


def is_reserved(name: str) -> bool:
    """Whether a property of this name is the broker's own, not for users to set."""
    return name in (_ID, _PARTITIONED) or name.startswith(_CONFIG)


@dataclass(slots=True, eq=False)
class Topic:
    """One topic. There is one object for it while it exists; partitions and configuration change in place."""

    name: TopicName
    kafka_name: str
    topic_id: bytes
    partitions: int
    overrides: dict[str, str] = field(default_factory=dict)
    """Its own configuration, by Kafka's names, as it was given."""
    config: TopicConfig = field(default_factory=TopicConfig)
    """What is in force; the broker replaces it when anything it depends on changes."""
    deleted: bool = False
    made_partitioned: bool = False
    """Whether Pulsar's tools made it with partitions: then it has them even if it has but one."""
    properties: dict[str, str] = field(default_factory=dict)
    """What Pulsar's users say of it."""
    stored_version: int = -1
    """Of its node in the metadata store."""
    internal: bool = field(init=False)
    """Whether it is one of the coordinators' own, whichever tenant's."""

    def __post_init__(self) -> None:
        self.internal = self.name.local in INTERNAL_TOPICS

    @property
    def partitioned(self) -> bool:
        """Whether its partitions have names of their own for Pulsar's clients."""
        return self.made_partitioned or self.partitions > 1

    def ledger_names(self) -> list[str]:
        """The managed ledgers of its partitions."""
        return [self.name.ledger_name(partition) for partition in range(self.partitions)]


def encode_topic(topic: Topic) -> bytes:
    """Write what the metadata store keeps of a topic."""
    properties = {**topic.properties, _ID: base64.b64encode(topic.topic_id).decode()}
    properties |= {_CONFIG + name: value for name, value in topic.overrides.items()}
    if topic.made_partitioned:
        properties[_PARTITIONED] = "true"
    content: dict[str, object] = {"partitions": topic.partitions, "properties": properties}
    if topic.deleted:
        content["deleted"] = True
    return json.dumps(content, separators=(",", ":")).encode()


def decode_topic(path: str, value: bytes, name: TopicName, kafka_name: str) -> Topic:
    """Read a topic back; one that Pulsar made gets an id that follows from its name.

    Of one with more partitions than may be the others are not served: it would stop whoever names them all.
    """
    try:
        content = json.loads(value)
        partitions = int(content["partitions"])
        properties: Mapping[str, str] = content.get("properties") or {}
        topic_id = (
            base64.b64decode(properties[_ID])
            if _ID in properties
            else uuid.uuid5(uuid.NAMESPACE_URL, str(name)).bytes
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MetadataCorrupt(path, f"not a topic: {error!r}") from error
    if partitions > MAX_PARTITIONS:
        _log.error(
            "%s has %d partitions in the metadata store: the first %d are served; delete it, or correct %s",
            kafka_name,
            partitions,
            MAX_PARTITIONS,
            path,
        )
        partitions = MAX_PARTITIONS
    overrides = {
        key.removeprefix(_CONFIG): text for key, text in properties.items() if key.startswith(_CONFIG)
    }
    return Topic(
        name,
        kafka_name,
        topic_id,
        partitions,
        overrides,
        deleted=bool(content.get("deleted")),
        made_partitioned=_PARTITIONED in properties or _ID not in properties,
        properties={key: str(text) for key, text in properties.items() if not is_reserved(key)},
    )
