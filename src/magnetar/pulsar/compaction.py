"""Compaction as Pulsar's operators know it: begun by itself when a threshold is passed."""

from __future__ import annotations

from magnetar.broker.background import Repeated
from magnetar.broker.compaction import rules_of
from magnetar.broker.core import Broker
from magnetar.broker.slices import sliced
from magnetar.pulsar.settings import PulsarSettings
from magnetar.pulsar.topics import PulsarTopics


class CompactionMonitor:
    """Begins to compact open topics that are past their ``compactionThreshold``."""

    def __init__(self, broker: Broker, topics: PulsarTopics) -> None:
        self._broker = broker
        self._topics = topics
        self._task: Repeated | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = self._broker.background.repeat(
            "looking for topics past their compactionThreshold",
            lambda: (
                self._broker.settings.of(PulsarSettings).broker_service_compaction_monitor_interval_ms / 1000
            ),
            self.look_around,
        )

    async def close(self) -> None:
        """Stop to look."""
        if self._task is not None:
            await self._task.stop()

    async def look_around(self) -> None:
        """Begin now what is past its threshold."""
        async for topic in sliced(self._topics.all_open()):
            threshold = topic.topic.config.compaction_threshold
            if threshold <= 0:
                continue
            rules = rules_of(topic.topic, self._broker.settings)
            if topic.log.dirty_bytes(rules)[1] >= threshold:
                self._broker.compactions.begin(topic.topic, topic.log)
