"""The changes of a broker that its other parts subscribe to."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from magnetar.cluster.ownership import Bundle
from magnetar.settings.settings import Settings
from magnetar.topics.topic import Topic

T = TypeVar("T")
_log = logging.getLogger("magnetar.broker")


@dataclass(slots=True)
class Events:
    """Who is called when something changed; on the event loop, after it was stored."""

    topic_created: list[Callable[[Topic], None]] = field(default_factory=list)
    topic_deleted: list[Callable[[Topic], Awaitable[None]]] = field(default_factory=list)
    """Awaited before the topic's ledgers are deleted; by then nobody finds the topic any more."""
    topic_changed: list[Callable[[Topic], None]] = field(default_factory=list)
    """Its partitions or its configuration in force."""
    topic_grown: list[Callable[[Topic, int], Awaitable[None]]] = field(default_factory=list)
    """Awaited before whoever gave a topic more partitions is answered: the topic, and how many it had."""
    settings_changed: list[Callable[[Settings], None]] = field(default_factory=list)
    history_leaves: list[Callable[[Topic, int], Awaitable[object]]] = field(default_factory=list)
    """Awaited before retention or compaction takes entries of a partition: what is known from them alone is learnt now.

    May raise what opening a partition raises; then nothing is taken of it.
    """
    bundle_lost: list[Callable[[Bundle], Awaitable[None]]] = field(default_factory=list)
    """Awaited before the logs of a bundle that went to another broker are closed, so that what is decided is kept."""
    bundle_acquired: list[Callable[[Bundle], Awaitable[None]]] = field(default_factory=list)
    """Awaited when a bundle has come to this broker."""
    room_used_up: list[Callable[[], None]] = field(default_factory=list)
    """Called when too little is left on the disk, so that producers are refused from now on."""

    @staticmethod
    def tell(listeners: Iterable[Callable[[T], None]], what: T) -> None:
        """Tell everybody; what one of them raises is logged, for it is not the affair of who made the change."""
        for told in tuple(listeners):
            try:
                told(what)
            except Exception:
                _log.exception("%s was stored, but somebody failed when it was told", what)

    async def tell_deleted(self, topic: Topic) -> None:
        """Do as `tell` of a topic that is gone."""
        for told in tuple(self.topic_deleted):
            try:
                await told(topic)
            except Exception:
                _log.exception("%s is deleted, but somebody failed when it was told", topic.name)
