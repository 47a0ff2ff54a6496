"""All topics in memory, by name and by id, and as they are stored; every change is on disk before it shows here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from magnetar.metadata import (
    MUST_NOT_EXIST,
    BadVersion,
    Delete,
    MetadataFull,
    MetadataUnavailable,
    MetadataUncertain,
    Put,
    Stored,
)
from magnetar.metadata.cache import MetadataCache
from magnetar.metadata.ops import in_commits
from magnetar.topics.names import Naming, TopicName
from magnetar.topics.topic import Topic, decode_topic, encode_topic
from magnetar.topics.topic_config import TopicConfig

TOPICS = "/admin/partitioned-topics"
_PATIENCE_S = 15.0
"""How long to retry the commit of a new topic that the store refused or did not answer: a lost session comes back
within seconds, and clients take a refusal for final."""
_AGAIN_S = 0.2


@dataclass(slots=True)
class CatalogEvents:
    """The functions to call when a topic has come, changed or gone, whichever broker did it."""

    created: Callable[[Topic], None]
    changed: Callable[[Topic], None]
    hidden: Callable[[Topic], None]


class Catalog:
    """The topics of one broker. ``version`` grows with every change, so that answers can be cached."""

    root = TOPICS

    def __init__(
        self,
        cache: MetadataCache,
        naming: Naming,
        config_of: Callable[[Topic], TopicConfig],
        events: CatalogEvents,
    ) -> None:
        self._cache = cache
        self._naming = naming
        self._config_of = config_of
        self._events = events
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}
        self.leaving: dict[str, Topic] = {}
        """Deleted topics whose ledgers may still be there; only deletion finds them."""
        self.version = 0

    # Following what is stored.

    def known(self) -> Iterator[str]:
        return (
            topic_path(topic.name) for topics in (self.by_name, self.leaving) for topic in topics.values()
        )

    def apply(self, path: str, stored: Stored | None) -> None:
        """Apply the stored state of one topic."""
        parts = path.removeprefix(TOPICS + "/").split("/", 3)
        if len(parts) != 4 or parts[2] != "persistent":
            return
        name = TopicName.from_metadata(parts[0], parts[1], parts[3])
        kafka_name = self._naming.kafka_name(name)
        known = self.by_name.get(kafka_name) or self.leaving.get(kafka_name)
        found = None
        if stored is not None:
            found = decode_topic(path, stored.value, name, kafka_name)
            found.stored_version = stored.version
        if known is not None and (found is None or found.topic_id != known.topic_id):
            self._forget(known)
            known = None
        if found is None:
            return
        if known is None:
            self._show(found)
        elif found.stored_version != known.stored_version:
            self._update(known, found)

    def _show(self, topic: Topic) -> None:
        self.version += 1
        if topic.deleted:
            self.leaving[topic.kafka_name] = topic
            return
        topic.config = self._config_of(topic)
        self.by_name[topic.kafka_name] = topic
        self.by_id[topic.topic_id] = topic
        self._events.created(topic)

    def _update(self, topic: Topic, found: Topic) -> None:
        topic.stored_version = found.stored_version
        if topic.deleted or found.deleted:
            self._hide(topic)
            return
        topic.partitions, topic.overrides = found.partitions, found.overrides
        topic.properties = found.properties
        topic.made_partitioned = found.made_partitioned
        self.version += 1
        self._events.changed(topic)

    def _hide(self, topic: Topic) -> None:
        if topic.deleted:
            return
        topic.deleted = True
        del self.by_name[topic.kafka_name]
        del self.by_id[topic.topic_id]
        self.leaving[topic.kafka_name] = topic
        self.version += 1
        self._events.hidden(topic)

    def _forget(self, topic: Topic) -> None:
        self._hide(topic)
        del self.leaving[topic.kafka_name]

    # Changing what is stored.

    async def add(self, topics: Iterable[Topic]) -> set[TopicName]:
        """Store new topics and show them; return the names of those that another broker made meanwhile."""
        taken: set[TopicName] = set()
        names = {topic_path(each.name): each for each in topics}
        until = time.monotonic() + _PATIENCE_S
        puts = (Put(path, encode_topic(each), MUST_NOT_EXIST) for path, each in names.items())
        for some in in_commits(puts):
            left = {each.path: each for each in some}
            while left:
                try:
                    await self._cache.commit(list(left.values()))
                except BadVersion as error:
                    del left[error.path]
                    if not self._is_shown(names[error.path]):  # else an earlier commit made it
                        taken.add(names[error.path].name)
                except (MetadataUnavailable, MetadataUncertain) as error:
                    is_final = isinstance(error, MetadataFull) or not self._cache.store.comes_back
                    if is_final or time.monotonic() > until:
                        raise
                    await asyncio.sleep(_AGAIN_S)
                else:
                    break
        return taken

    def _is_shown(self, topic: Topic) -> bool:
        found = self.by_name.get(topic.kafka_name)
        return found is not None and found.topic_id == topic.topic_id

    async def change(self, topic: Topic, wanted: Topic) -> None:
        """Store ``wanted`` instead of a topic; raise `BadVersion` if the topic changed."""
        await self._cache.commit([Put(topic_path(topic.name), encode_topic(wanted), topic.stored_version)])

    async def hide(self, topic: Topic) -> None:
        """Mark a topic as deleted: it is not found any more, and `forget` must follow, now or after a restart."""

        def plan() -> Sequence[Put]:
            if topic.deleted:
                return ()
            value = encode_topic(replace(topic, deleted=True))
            return [Put(topic_path(topic.name), value, topic.stored_version)]

        await self._cache.change(plan)

    async def forget(self, topic: Topic) -> None:
        """Delete a hidden topic once nothing is left of it."""

        def plan() -> Sequence[Delete]:
            still_there = self.leaving.get(topic.kafka_name) is topic
            return [Delete(topic_path(topic.name), topic.stored_version)] if still_there else ()

        await self._cache.change(plan)


def topic_path(name: TopicName) -> str:
    """Return the metadata path of a topic, persistent or not."""
    domain = "persistent" if name.persistent else "non-persistent"
    return f"{TOPICS}/{name.namespace_name}/{domain}/{name.metadata_name}"
