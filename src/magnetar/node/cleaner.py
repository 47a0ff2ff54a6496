"""Kafka's log cleaner: looks now and then for partitions of compacted topics with enough to compact."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from magnetar.base.errors import BrokerError
from magnetar.base.slices import sliced
from magnetar.base.values import MAX_LONG
from magnetar.ledger.errors import LedgerClosed, LedgerError
from magnetar.logs.compaction import is_due, rules_of
from magnetar.logs.open_logs import OpenLog, Reason
from magnetar.metadata import MetadataError
from magnetar.node.broker import Broker
from magnetar.records.errors import RecordsError
from magnetar.settings.settings import Settings
from magnetar.topics.topic import Topic

_FAILURES = LedgerError, MetadataError, RecordsError, OSError
_log = logging.getLogger("magnetar.broker")


class Cleaner:
    """One round after the other, every ``log.cleaner.backoff.ms``; one partition at a time, the dirtiest first."""

    def __init__(self, broker: Broker, clock: Callable[[], int]) -> None:
        self._broker = broker
        self._clock = clock
        self._backoff_ms = broker.settings.topics.log_cleaner_backoff_ms
        self._changed = asyncio.Event()
        broker.events.settings_changed.append(self._settings_changed)

    def start(self) -> None:
        """Begin to look, if ``log.cleaner.enable`` says so."""
        if self._broker.settings.topics.log_cleaner_enable:
            self._broker.background.repeat("log cleaner", self._pause, self.clean)

    def log_closed(self, reason: Reason) -> None:
        """What was to be compacted has closed: whoever has it now looks at it."""

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
        candidates = await self._candidates()
        try:
            for held in await self._due(candidates):
                try:
                    await held.log.compact(rules_of(held.topic, self._broker.settings))
                except LedgerClosed:
                    pass  # closed since: whoever has it now looks at it
                except _FAILURES as error:
                    _log.error("compaction of %s-%d failed: %s", held.topic.kafka_name, held.index, error)
        finally:
            for held in candidates:
                held.leave(self)
        await self._broker.logs.open_logs.close_unheld()

    async def _due(self, candidates: list[OpenLog]) -> list[OpenLog]:
        found: list[tuple[float, int, OpenLog]] = []
        now_ms = self._clock()
        for held in candidates:
            log, topic = held.log, held.topic
            rules = rules_of(topic, self._broker.settings)
            try:
                if topic.config.max_compaction_lag_ms < MAX_LONG:
                    await log.roll(now_ms - topic.config.max_compaction_lag_ms)
                if is_due(topic, log, rules, now_ms):
                    clean, dirty, _ = log.dirty_bytes(rules)
                    found.append((dirty / (clean + dirty), len(found), held))
            except _FAILURES as error:
                _tell(topic, held.index, error)
        return [held for _, _, held in sorted(found, reverse=True)]

    async def _candidates(self) -> list[OpenLog]:
        """Return the logs with something to compact, opened if need be, and held."""
        found: list[OpenLog] = []
        async for topic in sliced(self._broker.topics()):
            if not topic.config.compacted or topic.config.is_migrating:
                continue  # of a topic that is migrated all is here that the other cluster has, to be compared
            for index, name in enumerate(topic.ledger_names()):
                try:
                    if await self._has_some(topic, name):
                        held = await self._broker.open_whole(topic, index)
                        held.hold(self)
                        found.append(held)
                except BrokerError:
                    pass  # deleted meanwhile, or another broker's
                except _FAILURES as error:
                    _tell(topic, index, error)
            await asyncio.sleep(0)
        return found

    async def _has_some(self, topic: Topic, name: str) -> bool:
        summaries = await self._broker.engine.summaries(name)
        waits = topic.config.max_compaction_lag_ms < MAX_LONG and bool(summaries)
        return waits or any(each.sealed and not each.compacted for each in summaries)


def _tell(topic: Topic, index: int, error: Exception) -> None:
    _log.error("%s-%d cannot be looked at for compaction: %s", topic.kafka_name, index, error)
