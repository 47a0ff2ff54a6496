"""What Pulsar's clients call topics: ``persistent://tenant/namespace/t``, and its partitions ``...t-partition-N``.

A topic of one partition is what Pulsar calls not partitioned: its clients use the plain name, and message ids name no
partition. Of a topic with more, each partition has a name of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from magnetar.broker.errors import InvalidTopic
from magnetar.broker.names import TopicName
from magnetar.records.crc import crc32c

_PARTITION = re.compile(r"^(?P<topic>.+)-partition-(?P<number>0|[1-9][0-9]{0,8})$")
_NON_PERSISTENT = "non-persistent://"
_PERSISTENT = "persistent://"


@dataclass(frozen=True, slots=True)
class PulsarName:
    """A topic, or with ``partition`` one partition of it."""

    topic: TopicName
    partition: int | None = None

    @classmethod
    def parse(cls, name: str) -> PulsarName:
        """Read a name as clients give it; raise ``InvalidTopic``."""
        if name.startswith(_NON_PERSISTENT):
            raise InvalidTopic(name, "topics that are not persistent are not served")
        matched = _PARTITION.match(name)
        parts = (matched["topic"] if matched else name).removeprefix(_PERSISTENT).split("/")
        if len(parts) == 4:  # the older form has the cluster in it: tenant/cluster/namespace/topic
            raise InvalidTopic(name, "names with a cluster in them, as before Pulsar 2, are not served")
        topic = TopicName.parse(matched["topic"] if matched else name)
        return cls(topic, int(matched["number"]) if matched else None)

    def __str__(self) -> str:
        return str(self.topic) if self.partition is None else f"{self.topic}-partition-{self.partition}"


def partition_name(topic: TopicName, partition: int) -> str:
    """Give what Pulsar calls a partition."""
    return f"{topic}-partition-{partition}"


def topics_hash(names: Iterable[str]) -> str:
    """Give what stands for a list of topics, so that one need not be sent that has not changed."""
    value = 0
    for name in sorted(names):
        value = crc32c(name.encode() + b",", value)
    return f"{value:08x}"
