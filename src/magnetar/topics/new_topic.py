"""A topic to create, as protocols request one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from magnetar.topics.names import TopicName


class NewTopic(NamedTuple):
    """A topic to create; ``partitions`` None means the broker's default."""

    name: TopicName
    partitions: int | None = None
    configs: Mapping[str, str | None] = {}
    partitioned: bool = False
    """True if it has partitions for Pulsar clients even if it has only one."""
    properties: Mapping[str, str] = {}
    """The properties that Pulsar users gave it."""
