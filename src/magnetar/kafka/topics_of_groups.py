"""The broker's topics as its groups see them."""

from __future__ import annotations

from collections.abc import AsyncIterator

from magnetar.base.slices import sliced
from magnetar.kafka.coordinators.topics import SeenTopic
from magnetar.kafka.handlers.named_topic import named_topic
from magnetar.node.broker import Broker
from magnetar.topics.topic import Topic


class TopicsOfGroups:
    """Implements `Topics` of consumer groups. ``tenant`` is that of the groups, if they have one."""

    def __init__(self, broker: Broker, tenant: str | None = None) -> None:
        self._broker = broker
        self._tenant = tenant
        self._home = f"{tenant}/{broker.naming.namespace}/"

    @property
    def version(self) -> int:
        """Grows whenever a topic comes, goes or changes."""
        return self._broker.version

    def find(self, name: str) -> SeenTopic | None:
        """Return the topic of that name, if there is one."""
        topic = named_topic(self._broker, name)
        return None if topic is None else SeenTopic(topic.topic_id, topic.partitions)

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic, if it is there."""
        topic = self._broker.get_by_id(topic_id)
        return None if topic is None else topic.kafka_name

    def meant(self, written: str) -> str:
        """Return the name of the topic that a client of these groups writes so."""
        return written if self._tenant is None or "/" in written else self._home + written

    def written(self, name: str) -> str:
        """Return how a client of these groups writes a topic's name."""
        return name if self._tenant is None else name.removeprefix(self._home)

    async def named(self) -> AsyncIterator[tuple[str, str]]:
        """Return each topic's name, and how its tenant's clients write it; internal ones nobody means by a pattern."""
        async for topic in sliced(self._broker.topics()):
            if self._is_meant(topic):
                name = topic.kafka_name
                yield name, self.written(name)

    def _is_meant(self, topic: Topic) -> bool:
        if topic.internal or topic.deleted or not self._broker.visible(topic):
            return False
        return self._tenant is None or topic.name.tenant == self._tenant
