"""How a topic is compacted: Kafka's way where its cleanup policy says compact, otherwise Pulsar's, which keeps
history.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from magnetar.base.audit import note_own
from magnetar.base.background import Background
from magnetar.ledger.errors import LedgerError
from magnetar.ledger.port import CompactionRules, CompactionStatus, ManagedLedger
from magnetar.metadata import MetadataError
from magnetar.records.errors import RecordsError
from magnetar.settings.settings import Settings
from magnetar.topics.topic import Topic

_log = logging.getLogger("magnetar.compaction")


class Compactions:
    """Compactions that somebody asked for. Each runs beside everything else; the engine lets one run at a time."""

    def __init__(self, settings: Callable[[], Settings], background: Background) -> None:
        self._settings = settings
        self._background = background
        self._running: dict[str, asyncio.Task[None]] = {}

    def is_running(self, log: ManagedLedger) -> bool:
        """Whether a compaction of this log runs, whoever began it, or waits for its turn."""
        return log.name in self._running or log.compaction.status is CompactionStatus.RUNNING

    def begin(self, topic: Topic, log: ManagedLedger) -> None:
        """Compact a log, unless that runs already; its ``compaction`` tells how it goes."""
        if self.is_running(log):
            return
        log.compaction.status = CompactionStatus.RUNNING
        self._running[log.name] = self._background.once(
            "compaction of", self._compact(topic, log), about=log.name
        )

    async def _compact(self, topic: Topic, log: ManagedLedger) -> None:
        rules = rules_of(topic, self._settings())
        try:
            if rules.replaces:
                await log.roll()  # what is to make room must be sealed
            await log.compact(rules)
            report = log.compaction
            note_own("compacted", "log", log.name, took_ms=report.took_ms, removed=report.removed)
        except Exception as error:  # whatever it is, who asked is to be told, and may ask again
            log.compaction.status, log.compaction.error = CompactionStatus.ERROR, str(error)
            known = isinstance(error, LedgerError | MetadataError | RecordsError)
            _log.error("compaction of %s failed: %s", log.name, error, exc_info=None if known else error)
        finally:  # not by a callback: who is told the end may begin the next one at once
            self._running.pop(log.name, None)

    async def close(self) -> None:
        """End those that run; what they had done so far does not count."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def rules_of(topic: Topic, settings: Settings) -> CompactionRules:
    """Return the rules that are in force for a topic."""
    config = topic.config
    null_keys, buffer_bytes = (
        settings.topics.topic_compaction_retain_null_key,
        settings.topics.log_cleaner_dedupe_buffer_size,
    )
    if not config.compacted:
        return CompactionRules(null_keys=null_keys, buffer_bytes=buffer_bytes)
    return CompactionRules(
        replaces=True,
        tombstones_ms=config.delete_retention_ms,
        null_keys=null_keys,
        min_age_ms=config.min_compaction_lag_ms,
        buffer_bytes=buffer_bytes,
    )


def is_due(topic: Topic, log: ManagedLedger, rules: CompactionRules, now_ms: int) -> bool:
    """Return whether Kafka's cleaner would take the log now: enough of it is dirty, or something is for too long."""
    config = topic.config
    clean, dirty, since_ms = log.dirty_bytes(rules)
    if not dirty:
        return False
    overdue = now_ms - since_ms > config.max_compaction_lag_ms
    return overdue or dirty / (clean + dirty) > config.min_cleanable_dirty_ratio
