"""Kafka's log cleaner: looks now and then for partitions of compacted topics with enough to compact."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from magnetar.broker.background import Repeated
from magnetar.broker.compaction import is_due, rules_of
from magnetar.broker.core import Broker
from magnetar.broker.errors import TopicNotFound
from magnetar.broker.settings import Settings
from magnetar.broker.topic import Topic
from magnetar.broker.values import MAX_LONG
from magnetar.kafka.partitions.partition import Partition
from magnetar.kafka.partitions.registry import Partitions
from magnetar.ledger.errors import LedgerError
from magnetar.metadata import MetadataError
from magnetar.records.errors import RecordsError

_FAILURES = LedgerError, MetadataError, RecordsError, OSError
_log = logging.getLogger("magnetar.kafka")


class Cleaner:
    """One round after the other, every ``log.cleaner.backoff.ms``; one partition at a time, the dirtiest first."""

    def __init__(self, broker: Broker, partitions: Partitions, clock: Callable[[], int]) -> None:
        self._broker = broker
        self._partitions = partitions
        self._clock = clock
        self._task: Repeated | None = None
        self._backoff_ms = broker.settings.topics.log_cleaner_backoff_ms
        self._changed = asyncio.Event()
        broker.events.settings_changed.append(self._settings_changed)

    def start(self) -> None:
        """Begin to look, if ``log.cleaner.enable`` says so."""
        if self._broker.settings.topics.log_cleaner_enable:
            self._task = self._broker.background.repeat("log cleaner", self._pause, self.clean)

    async def close(self) -> None:
        if self._task is not None:
            await self._task.stop()

    async def _pause(self) -> None:
        """Wait until the next round is due; a new backoff counts from the moment at which it is set."""
        with contextlib.suppress(TimeoutError):
            while True:
                self._changed.clear()
                await asyncio.wait_for(self._changed.wait(), self._backoff_ms / 1000)

    def _settings_changed(self, settings: Settings) -> None:
        if settings.topics.log_cleaner_backoff_ms != self._backoff_ms:
            self._backoff_ms = settings.topics.log_cleaner_backoff_ms
            self._changed.set()

    async def clean(self) -> None:
        """Compact every partition that is due; what fails is logged, and tried again in the next round."""
        for partition in await self._due():
            try:
                await partition.log.compact(rules_of(partition.topic, self._broker.settings))
            except _FAILURES as error:
                _log.error(
                    "compaction of %s-%d failed: %s", partition.topic.kafka_name, partition.index, error
                )

    async def _due(self) -> list[Partition]:
        found: list[tuple[float, int, Partition]] = []
        now_ms = self._clock()
        for partition in await self._candidates():
            log, topic = partition.log, partition.topic
            rules = rules_of(topic, self._broker.settings)
            try:
                if topic.config.max_compaction_lag_ms < MAX_LONG:
                    await log.roll(now_ms - topic.config.max_compaction_lag_ms)
                if is_due(topic, log, rules, now_ms):
                    clean, dirty, _ = log.dirty_bytes(rules)
                    found.append((dirty / (clean + dirty), len(found), partition))
            except _FAILURES as error:
                _tell(topic, partition.index, error)
        return [partition for _, _, partition in sorted(found, reverse=True)]

    async def _candidates(self) -> list[Partition]:
        """Give the partitions with something to compact, opened if need be."""
        found = []
        for topic in self._broker.topics():
            if not topic.config.compacted:
                continue
            for index, name in enumerate(topic.ledger_names()):
                try:
                    if self._has_some(topic, name):
                        found.append(await self._partitions.get(topic, index))
                except TopicNotFound:
                    pass  # deleted meanwhile
                except _FAILURES as error:
                    _tell(topic, index, error)
            await asyncio.sleep(0)
        return found

    def _has_some(self, topic: Topic, name: str) -> bool:
        summaries = self._broker.engine.summaries(name)
        waits = topic.config.max_compaction_lag_ms < MAX_LONG and bool(summaries)
        return waits or any(each.sealed and not each.compacted for each in summaries)


def _tell(topic: Topic, index: int, error: Exception) -> None:
    _log.error("%s-%d cannot be looked at for compaction: %s", topic.kafka_name, index, error)
