"""Retention: what policies no longer hold leaves the disk, of topics of all protocols, whoever is served."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from magnetar.base.audit import note_own
from magnetar.base.background import traced
from magnetar.base.errors import BrokerError
from magnetar.base.slices import sliced
from magnetar.ledger.errors import LedgerError
from magnetar.logs.open_logs import OpenLog, Reason
from magnetar.metadata import MetadataError
from magnetar.node.broker import Broker
from magnetar.records.errors import RecordsError
from magnetar.topics.topic import Topic

_FAILURES = LedgerError, MetadataError, RecordsError, OSError
_log = logging.getLogger("magnetar.broker")


class Retention:
    """One round after the other, every ``log.retention.check.interval.ms``."""

    def __init__(self, broker: Broker, clock: Callable[[], int]) -> None:
        self._broker = broker
        self._clock = clock

    def start(self) -> None:
        """Begin to look."""
        self._broker.background.repeat(
            "retention",
            lambda: self._broker.settings.topics.log_retention_check_interval_ms / 1000,
            self.retain,
            essential=True,
        )

    def log_closed(self, reason: Reason) -> None:
        """What was to be looked at has closed: whoever has it now looks at it."""

    async def retain(self) -> None:
        """Let go of what retention no longer holds; what fails is logged, and tried again in the next round."""
        now_ms = self._clock()
        opened: list[OpenLog] = []
        unforeseen: list[Exception] = []
        try:
            await self._open_overdue(now_ms, opened, unforeseen)
            for held in self._broker.logs.open_logs.all():
                try:
                    if held.closed is None and "delete" in held.topic.config.cleanup_policy:
                        await _retained(held, now_ms)
                except Exception as error:  # the others have their turn all the same
                    _tell(held.topic, held.index, error, unforeseen)
                await asyncio.sleep(0)
        finally:
            for held in opened:
                held.leave(self)
        await self._broker.logs.open_logs.close_unheld()
        if unforeseen:
            raise unforeseen[0]

    async def _open_overdue(self, now_ms: int, opened: list[OpenLog], unforeseen: list[Exception]) -> None:
        """Open, and hold, the logs that nobody has asked for, but that hold something which retention may take."""
        async for topic in sliced(self._broker.topics()):
            config = topic.config
            if "delete" not in config.cleanup_policy or (
                config.retention_ms < 0 and config.retention_bytes < 0
            ):
                continue
            async for index in sliced(range(topic.partitions)):
                if self._broker.logs.open_logs.get(topic, index) is not None:
                    continue
                try:
                    if await self._is_overdue(topic, index, now_ms):
                        held = await self._broker.open_whole(topic, index)
                        held.hold(self)
                        opened.append(held)
                except BrokerError:
                    pass  # deleted meanwhile, or another broker's
                except Exception as error:
                    _tell(topic, index, error, unforeseen)
            await asyncio.sleep(0)

    async def _is_overdue(self, topic: Topic, index: int, now_ms: int) -> bool:
        config = topic.config
        ledgers = await self._broker.engine.summaries(topic.name.ledger_name(index))
        aged = bool(ledgers) and 0 <= config.retention_ms < now_ms - ledgers[0].created_ms
        return aged or 0 <= config.retention_bytes < sum(ledger.size for ledger in ledgers)


async def _retained(held: OpenLog, now_ms: int) -> None:
    log = held.log
    before, size = log.log_start_offset, sum(each.size for each in log.ledgers())
    await log.retain(now_ms)
    if log.log_start_offset > before:
        note_own(
            "retention deleted", "records", f"{held.topic.kafka_name}-{held.index}", from_offset=before,
            to_offset=log.log_start_offset, bytes=size - sum(each.size for each in log.ledgers()),
        )  # fmt: skip


def _tell(topic: Topic, index: int, error: Exception, unforeseen: list[Exception]) -> None:
    if not isinstance(error, _FAILURES):
        unforeseen.append(error)
    _log.error("retention of %s-%d failed: %s", topic.kafka_name, index, error, exc_info=traced(error))
