"""All topics in memory, by name and by id, and as they are stored; every change is on disk before it shows here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from magnetar.broker.names import Naming, TopicName
from magnetar.broker.topic import Topic, decode_topic, encode_topic
from magnetar.broker.topic_config import TopicConfig
from magnetar.metadata import MUST_NOT_EXIST, MetadataStore

_ROOT = "/admin/partitioned-topics"


class Catalog:
    """The topics of one broker. ``version`` grows with every change, so that answers can be cached."""

    def __init__(self, store: MetadataStore, naming: Naming) -> None:
        self._store = store.blocking
        self._naming = naming
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}
        self.leaving: dict[str, Topic] = {}
        """Deleted topics whose ledgers may still be there; nobody else finds them."""
        self.version = 0

    def load(self, config_of: Callable[[Topic], TopicConfig]) -> None:
        """Read everything that is stored, with one scan."""
        for path, stored in self._store.scan(_ROOT + "/"):
            tenant, namespace, domain, encoded = path.removeprefix(_ROOT + "/").split("/", 3)
            if domain != "persistent":
                continue
            name = TopicName.from_metadata(tenant, namespace, encoded)
            topic = decode_topic(path, stored.value, name, self._naming.kafka_name(name))
            if topic.deleted:
                self.leaving[topic.kafka_name] = topic
            else:
                topic.config = config_of(topic)
                self._show(topic)

    def add(self, topics: Iterable[Topic]) -> None:
        """Keep new topics, all of them or none."""
        topics = list(topics)
        with self._store.transaction():
            for topic in topics:
                self._store.put(_path(topic.name), encode_topic(topic), MUST_NOT_EXIST)
        for topic in topics:
            self._show(topic)
        self.version += 1

    def change(self, topic: Topic, partitions: int, overrides: dict[str, str]) -> None:
        """Keep a topic's new number of partitions and its own configuration."""
        wanted = replace(topic, partitions=partitions, overrides=overrides)
        self._store.put(_path(topic.name), encode_topic(wanted))
        topic.partitions, topic.overrides = partitions, overrides
        self.version += 1

    def hide(self, topic: Topic) -> None:
        """Mark a topic as deleted: it is found no more, and `forget` is to follow, now or after a restart."""
        self._store.put(_path(topic.name), encode_topic(replace(topic, deleted=True)))
        topic.deleted = True
        del self.by_name[topic.kafka_name]
        del self.by_id[topic.topic_id]
        self.leaving[topic.kafka_name] = topic
        self.version += 1

    def forget(self, topic: Topic) -> None:
        """Let go of a hidden topic once nothing is left of it."""
        self._store.delete(_path(topic.name))
        del self.leaving[topic.kafka_name]

    def _show(self, topic: Topic) -> None:
        self.by_name[topic.kafka_name] = topic
        self.by_id[topic.topic_id] = topic


def _path(name: TopicName) -> str:
    return f"{_ROOT}/{name.tenant}/{name.namespace}/persistent/{name.metadata_name}"
