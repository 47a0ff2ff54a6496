"""Compaction as Pulsar's operators know it: begun by itself when a threshold is passed."""

from __future__ import annotations

import asyncio
import contextlib

from magnetar.broker.compaction import rules_of
from magnetar.broker.core import Broker
from magnetar.pulsar.topics import PulsarTopics


class CompactionMonitor:
    """Begins to compact open topics that are past their ``compactionThreshold``."""

    def __init__(self, broker: Broker, topics: PulsarTopics) -> None:
        self._broker = broker
        self._topics = topics
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.ensure_future(self._look_around())

    async def close(self) -> None:
        """Stop to look."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _look_around(self) -> None:
        while True:
            await asyncio.sleep(self._broker.settings.broker_service_compaction_monitor_interval_ms / 1000)
            for topic in self._topics.all_open():
                threshold = topic.topic.config.compaction_threshold
                rules = rules_of(topic.topic, self._broker.settings)
                if threshold > 0 and topic.log.dirty_bytes(rules)[1] >= threshold:
                    self._broker.compactions.begin(topic.topic, topic.log)
