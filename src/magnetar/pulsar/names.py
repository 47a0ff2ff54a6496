"""What Pulsar's clients call topics: ``persistent://tenant/namespace/t``, and its partitions ``...t-partition-N``.

``non-persistent://tenant/namespace/t`` is another topic, whose messages are not kept.

A topic of one partition is what Pulsar calls not partitioned, unless Pulsar's tools made it with partitions: its
clients use the plain name, and message ids name no partition. Of the others each partition has a name of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import blake2b

from magnetar.base.errors import InvalidTopic
from magnetar.topics.names import TopicName
from magnetar.topics.topic import Topic

_PARTITION = re.compile(r"^(?P<topic>.+)-partition-(?P<number>0|[1-9][0-9]{0,8})$")
_NON_PERSISTENT = "non-persistent://"
_PERSISTENT = "persistent://"


COORDINATOR_ASSIGN = TopicName("pulsar", "system", "transaction_coordinator_assign")


@dataclass(frozen=True, slots=True)
class PulsarName:
    """A topic, or with ``partition`` one partition of it."""

    topic: TopicName
    partition: int | None = None

    @classmethod
    def parse(cls, name: str) -> PulsarName:
        """Read a name as clients give it; raise ``InvalidTopic``."""
        persistent = not name.startswith(_NON_PERSISTENT)
        if not persistent:
            name = _PERSISTENT + name.removeprefix(_NON_PERSISTENT)
        matched = _PARTITION.match(name)
        parts = (matched["topic"] if matched else name).removeprefix(_PERSISTENT).split("/")
        if len(parts) == 4:  # the older form has the cluster in it: tenant/cluster/namespace/topic
            raise InvalidTopic(name, "names with a cluster in them, as before Pulsar 2, are not served")
        topic = TopicName.parse(matched["topic"] if matched else name)
        topic = topic if persistent else replace(topic, persistent=False)
        return cls(topic, int(matched["number"]) if matched else None)

    @property
    def persistent(self) -> bool:
        """Whether the topic's messages are kept."""
        return self.topic.persistent

    @property
    def finds_coordinator(self) -> bool:
        """Whether it is what clients look up to find a transaction coordinator; there is no such topic."""
        return self.topic == COORDINATOR_ASSIGN

    def __str__(self) -> str:
        return str(self.topic) if self.partition is None else f"{self.topic}-partition-{self.partition}"


def partition_name(topic: TopicName, partition: int) -> str:
    """Return what Pulsar calls a partition."""
    return f"{topic}-partition-{partition}"


def names_of(topic: Topic) -> list[str]:
    """Return what Pulsar calls a topic: its name, or those of its partitions."""
    if not topic.partitioned:
        return [str(topic.name)]
    return [partition_name(topic.name, index) for index in range(topic.partitions)]


class TopicsHash:
    """What stands for a set of names, so that a list need not be sent that has not changed; kept up name by name."""

    __slots__ = ("_sum",)

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._sum = 0
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        """A name that was not there is there now."""
        self._sum = (self._sum + _digest(name)) % _HASHES

    def remove(self, name: str) -> None:
        """A name that was there is gone."""
        self._sum = (self._sum - _digest(name)) % _HASHES

    def __str__(self) -> str:
        return f"{self._sum:016x}"


_HASHES = 1 << 64


def _digest(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big")
