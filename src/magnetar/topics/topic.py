"""A topic as the broker knows it, and its JSON in the metadata store.

The node lies where Pulsar stores partitioned topics, and has the fields that Pulsar expects (``partitions``,
``properties``, ``deleted``); what Kafka needs in addition is in ``properties``: ``kafka.topic.id`` (base64) and
``kafka.config.<name>``. All other properties were set by Pulsar users: they are stored and shown.
Pulsar has such a node only for partitioned topics; our topics are partitioned if they have ``pulsar.partitioned``, or
several partitions.
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
"""The most that one request may create, over all its topics, as in Kafka."""
MAX_PARTITIONS = 200_000
"""The most of one topic: each answer that names the topic lists all of them."""
_ID = "kafka.topic.id"
_CONFIG = "kafka.config."
_PARTITIONED = "pulsar.partitioned"
_log = logging.getLogger("magnetar.broker")


def refuse_too_many(more: int) -> None:
    """Raise `TooManyPartitions` for more new partitions than one request may make."""
    if more > MAX_NEW_PARTITIONS:
        raise TooManyPartitions


def is_reserved(name: str) -> bool:
    """True if a property of this name is the broker's own, not for users to set."""
    return name in (_ID, _PARTITIONED) or name.startswith(_CONFIG)


@dataclass(slots=True, eq=False)
class Topic:
    """One topic. There is one object for it while it exists; partitions and configuration change in place."""

    name: TopicName
    kafka_name: str
    topic_id: bytes
    partitions: int
    overrides: dict[str, str] = field(default_factory=dict)
    """Its own configuration, by Kafka's names, as it was set."""
    config: TopicConfig = field(default_factory=TopicConfig)
    """The configuration in force; the broker replaces it when anything it depends on changes."""
    deleted: bool = False
    made_partitioned: bool = False
    """Whether Pulsar tools created it as partitioned: then it is, even with only one partition."""
    properties: dict[str, str] = field(default_factory=dict)
    """The properties that Pulsar users set."""
    stored_version: int = -1
    """The version of its node in the metadata store."""
    internal: bool = field(init=False)
    """Whether it is one of the coordinators' own topics, in any tenant."""

    def __post_init__(self) -> None:
        self.internal = self.name.local in INTERNAL_TOPICS

    @property
    def partitioned(self) -> bool:
        """True if its partitions have names of their own for Pulsar clients."""
        return self.made_partitioned or self.partitions > 1

    def ledger_names(self) -> list[str]:
        """The managed ledgers of its partitions."""
        return [self.name.ledger_name(partition) for partition in range(self.partitions)]


def encode_topic(topic: Topic) -> bytes:
    """Return the topic as the metadata store has it."""
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

    If it has more partitions than allowed, the excess ones are not served: a caller that lists them all would block.
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
