"""Compaction as Pulsar's operators know it: begun by itself when a topic is past its ``compactionThreshold``."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.base.background import Background
from magnetar.base.slices import sliced
from magnetar.logs.compaction import rules_of
from magnetar.logs.parts import LogParts
from magnetar.settings.settings import Settings


class CompactionMonitor:
    """Begins to compact logs that are open and past their topic's threshold."""

    def __init__(self, logs: LogParts, settings: Callable[[], Settings], background: Background) -> None:
        self._logs = logs
        self._settings = settings
        self._background = background

    def start(self) -> None:
        """Begin to look."""
        self._background.repeat(
            "looking for topics past their compactionThreshold",
            lambda: self._settings().topics.broker_service_compaction_monitor_interval_ms / 1000,
            self.look_around,
        )

    async def look_around(self) -> None:
        """Begin now what is past its threshold."""
        async for held in sliced(self._logs.open_logs.all()):
            threshold = held.topic.config.compaction_threshold
            if threshold <= 0 or held.closed is not None:
                continue
            rules = rules_of(held.topic, self._settings())
            if held.log.dirty_bytes(rules)[1] >= threshold:
                self._logs.compactions.begin(held.topic, held.log)
