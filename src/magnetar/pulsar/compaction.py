"""Compaction as Pulsar's operators know it: asked for by the admin REST, or begun when a threshold is passed."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from magnetar.broker.compaction import rules_of
from magnetar.broker.core import Broker
from magnetar.ledger.errors import LedgerError
from magnetar.ledger.port import CompactionStatus
from magnetar.pulsar.topic import PulsarTopic
from magnetar.pulsar.topics import PulsarTopics

_log = logging.getLogger("magnetar.pulsar")


class Compactions:
    """The compactions of open topics. Each runs beside everything else; the engine lets one run at a time."""

    def __init__(self, broker: Broker, topics: PulsarTopics) -> None:
        self._broker = broker
        self._topics = topics
        self._running: dict[str, asyncio.Task[None]] = {}
        self._monitor: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look for topics that are past their threshold."""
        self._monitor = asyncio.ensure_future(self._look_around())

    async def close(self) -> None:
        """Stop to look; what runs is ended with its log."""
        tasks = [*self._running.values(), *([self._monitor] if self._monitor is not None else [])]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def is_running(self, topic: PulsarTopic) -> bool:
        """Whether a compaction of this topic runs or waits for its turn."""
        return topic.log.name in self._running or topic.log.compaction.status is CompactionStatus.RUNNING

    def begin(self, topic: PulsarTopic) -> None:
        """Compact a topic, unless that runs already; its log's ``compaction`` tells how it goes."""
        name = topic.log.name
        if not self.is_running(topic):
            topic.log.compaction.status = CompactionStatus.RUNNING
            self._running[name] = asyncio.ensure_future(self._compact(topic))
            self._running[name].add_done_callback(lambda _: self._running.pop(name, None))

    async def _compact(self, topic: PulsarTopic) -> None:
        rules = rules_of(topic.topic, self._broker.settings)
        try:
            if rules.replaces:
                await topic.log.roll()  # what is to make room must be sealed
            await topic.log.compact(rules)
        except LedgerError as error:
            topic.log.compaction.status, topic.log.compaction.error = CompactionStatus.ERROR, str(error)
            _log.error("compaction of %s failed: %s", topic.name, error)

    async def _look_around(self) -> None:
        while True:
            await asyncio.sleep(self._broker.settings.broker_service_compaction_monitor_interval_ms / 1000)
            for topic in self._topics.all_open():
                threshold = topic.topic.config.compaction_threshold
                rules = rules_of(topic.topic, self._broker.settings)
                if threshold > 0 and topic.log.dirty_bytes(rules)[1] >= threshold:
                    self.begin(topic)
