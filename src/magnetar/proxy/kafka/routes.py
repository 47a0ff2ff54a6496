"""What the proxy knows of who leads what, from answers that passed; asked for anew when a broker says it is so no more.

Clients with different names may call different topics the same, so this is kept for each name that clients have.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from magnetar.wire.kafka.messages.describe_cluster_response import DescribeClusterResponse
from magnetar.wire.kafka.messages.metadata_response import MetadataResponse, MetadataResponseTopic
from magnetar.wire.kafka.primitives import ZERO_UUID

Address = tuple[str, int]
TopicKey = str | bytes
"""A topic's name, or its id (16 bytes)."""
_MAX_TOPICS = 20_000
_MAX_COORDINATORS = 20_000
_NOBODY = -1


class Routes:
    """Who leads which partition and coordinates which key, as far as is known, and where brokers are."""

    def __init__(self) -> None:
        self.nodes: dict[int, Address] = {}
        self.controller = _NOBODY
        self.cluster_id = ""
        """Empty until a broker has told of it."""
        self.changes = 0
        """Grows when something was learned, so that who saw it stale can tell whether others have asked since."""
        self.moves = 0
        """Grows when a partition turned out to be led by another node than was known."""
        self._leaders: OrderedDict[TopicKey, dict[int, int]] = OrderedDict()
        self._other_key: dict[TopicKey, TopicKey] = {}
        """A topic's id by its name, and the other way round."""
        self._coordinators: OrderedDict[tuple[int, str], int] = OrderedDict()

    # -- asking

    def leader(self, topic: TopicKey, partition: int) -> int | None:
        """Return the node that leads a partition, None if that is not known, or there is none."""
        known = self._leaders.get(topic)
        node = None if known is None else known.get(partition)
        return node if node in self.nodes else None

    def knows(self, topic: TopicKey, partition: int) -> bool:
        """Whether it need not be asked who leads a partition."""
        return self.leader(topic, partition) is not None

    def coordinator(self, kind: int, key: str) -> int | None:
        """Return the node that coordinates a key, None if that is not known."""
        node = self._coordinators.get((kind, key))
        return node if node in self.nodes else None

    # -- learning

    def learn(self, answer: MetadataResponse) -> None:
        """Take note of what a broker told of brokers and topics."""
        self._learn_nodes((each.node_id, each.host, each.port) for each in answer.brokers)
        if answer.controller_id >= 0:  # Metadata 0 does not tell
            self.controller = answer.controller_id
        self.cluster_id = answer.cluster_id or self.cluster_id
        for topic in answer.topics:
            self.learn_topic(topic)
        self.changes += 1

    def learn_topic(self, topic: MetadataResponseTopic) -> None:
        """Take note of a topic, of which a broker has told in Metadata."""
        keys: list[TopicKey] = [] if topic.name is None else [topic.name]
        if topic.topic_id != ZERO_UUID:
            keys.append(topic.topic_id)
        if topic.error_code:
            for key in keys:
                self.forget(key)
            return
        leaders = {row.partition_index: row.leader_id for row in topic.partitions}
        for key in keys:
            if self._leaders.get(key) != leaders:
                self.moves += 1
            self._leaders[key] = leaders
            self._leaders.move_to_end(key)
        if len(keys) == 2:
            self._other_key[keys[0]], self._other_key[keys[1]] = keys[1], keys[0]
        while len(self._leaders) > _MAX_TOPICS:
            self.forget(next(iter(self._leaders)))

    def learn_cluster(self, answer: DescribeClusterResponse) -> None:
        """Take note of which brokers there are."""
        if not answer.error_code:
            self._learn_nodes((each.broker_id, each.host, each.port) for each in answer.brokers)
            self.controller = answer.controller_id

    def learn_hint(self, topic: TopicKey, partition: int, leader: Any, nodes: Iterable[Any]) -> None:
        """Take note of who leads a partition instead of who was asked (KIP-951)."""
        for each in nodes:
            self.nodes[each.node_id] = (each.host, each.port)
        known = self._leaders.get(topic)
        if known is not None and leader.leader_id in self.nodes:
            known[partition] = leader.leader_id
            self.changes += 1
            self.moves += 1

    def learn_coordinator(self, kind: int, key: str, node: int, host: str, port: int) -> None:
        """Take note of who coordinates a key."""
        self.nodes[node] = (host, port)
        self._coordinators[kind, key] = node
        self._coordinators.move_to_end((kind, key))
        if len(self._coordinators) > _MAX_COORDINATORS:
            self._coordinators.popitem(last=False)

    def forget(self, topic: TopicKey) -> None:
        """A topic's leaders are not who was thought."""
        for key in (topic, self._other_key.pop(topic, None)):
            if key is not None:
                self._leaders.pop(key, None)
                self._other_key.pop(key, None)

    def forget_coordinator(self, kind: int, key: str) -> None:
        """A key's coordinator is not who was thought."""
        self._coordinators.pop((kind, key), None)

    def _learn_nodes(self, nodes: Iterable[tuple[int, str, int]]) -> None:
        found = {number: (host, port) for number, host, port in nodes}
        if found:
            self.nodes = found
