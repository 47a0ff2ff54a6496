"""Ledgers on their way to tiered storage, and from this disk: what policies say, and what somebody asks for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from magnetar.base.background import Background, traced
from magnetar.base.errors import BrokerError, InvalidConfig, InvalidPolicy
from magnetar.base.slices import sliced
from magnetar.ledger.errors import CannotOffload, LedgerError
from magnetar.ledger.port import NOWHERE, LedgerEngine, LedgerSummary, ManagedLedger, Position, wall_clock_ms
from magnetar.logs.open_logs import OpenLog, OpenLogs, Reason
from magnetar.metadata import MetadataError
from magnetar.serving.memory import MemoryBudget
from magnetar.settings.offload import OffloadSettings
from magnetar.settings.settings import Settings
from magnetar.topics.offload_policies import (
    OffloadPolicy,
    decode_offload_policy,
    due_to_go_here,
    due_to_leave,
    needs_place,
    policy_of_broker,
)
from magnetar.topics.policies import NamespacePolicies
from magnetar.topics.topic import Topic
from magnetar.topics.topic_config import TopicConfig

_FAILURES = LedgerError, MetadataError, BrokerError, OSError
_log = logging.getLogger("magnetar.offload")


class OffloadState(StrEnum):
    """How the last offload that somebody asked for went, in Pulsar's words."""

    NOT_RUN = "NOT_RUN"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"


@dataclass(slots=True)
class OffloadReport:
    """That of one log."""

    state: OffloadState = OffloadState.NOT_RUN
    error: str = ""
    first_left: Position = NOWHERE
    """The first entry that was not to be offloaded."""


class AlreadyOffloading(BrokerError):
    """An offload of this log runs."""


class _Events(Protocol):
    history_leaves: list[Callable[[Topic, int], Awaitable[object]]]


class TieredBroker(Protocol):
    """What is needed of the broker."""

    settings: Settings
    engine: LedgerEngine

    @property
    def events(self) -> _Events: ...

    def topics(self) -> list[Topic]: ...

    def topic_policies(self, topic: Topic) -> NamespacePolicies: ...

    async def open_whole(self, topic: Topic, index: int) -> OpenLog: ...


class Offloading:
    """One round after the other, every ``remote.log.manager.task.interval.ms``; and offloads that are asked for."""

    def __init__(
        self,
        broker: TieredBroker,
        open_logs: OpenLogs,
        memory: MemoryBudget,
        background: Background,
        clock: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self.by_topic: list[Callable[[Topic], Mapping[str, Any]]] = []
        """Each returns a topic's own offload policies, as Pulsar's JSON; the last ones take precedence."""
        self.clock = clock
        self._broker = broker
        self._open_logs = open_logs
        self._memory = memory
        self._background = background
        self._reports: dict[str, OffloadReport] = {}
        self._busy: dict[str, asyncio.Lock] = {}

    def start(self) -> None:
        """Begin to look, where the engine has tiered storage."""
        if not self._broker.engine.can_offload:
            return
        settings, memory = self._broker.settings.of(OffloadSettings), self._memory
        account = memory.account(lambda: None, known=True)
        self._broker.engine.count_tier_cache(
            account.charge, lambda: not memory.is_short and memory.room_bytes > 0
        )
        self._background.repeat(
            "tiered storage",
            lambda: settings.remote_log_manager_task_interval_ms / 1000,
            self.look_around,
        )

    def log_closed(self, reason: Reason) -> None:
        """What was to be offloaded has closed: whoever has it now looks at it."""

    # -- what is in force

    def policy(self, topic: Topic) -> OffloadPolicy:
        """Return what is in force for a topic."""
        below = self._broker.topic_policies(topic).offload.over(
            policy_of_broker(self._broker.settings.of(OffloadSettings))
        )
        try:
            for own in self.by_topic:
                below = decode_offload_policy(own(topic)).over(below)
            return below
        except (ValueError, TypeError) as error:
            raise InvalidPolicy(f"offload policies of {topic.kafka_name}: {error}") from error

    def check(self, topic: Topic, config: TopicConfig) -> None:
        """Raise ``InvalidConfig`` where ``remote.storage.enable`` asks for what there is not."""
        if not config.remote_storage_enable:
            return
        if not self._broker.engine.can_offload or self.policy(topic).place is None:
            raise InvalidConfig(
                "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log "
                "storage (remote.storage.enable=true). Set managedLedgerOffloadDriver, and what it needs"
            )

    def acts_on(self, topic: Topic) -> bool:
        """Whether anything is done for a topic without being asked."""
        return self._acts(topic, self.policy(topic))

    def _acts(self, topic: Topic, policy: OffloadPolicy) -> bool:
        if topic.internal or not policy.driver:
            return False
        at = policy.threshold_bytes, policy.threshold_ms
        return topic.config.remote_storage_enable or any(each is not None and each >= 0 for each in at)

    # -- what is done regularly

    async def look_around(self) -> None:
        """Do what is due; what fails is logged and does not keep the rest from being done, and is raised at the end."""
        failures: list[Exception] = []
        every = ((topic, index) for topic in self._broker.topics() for index in range(topic.partitions))
        async for topic, index in sliced(every):
            try:
                await self._look_at(topic, index)
            except _FAILURES as error:
                failures.append(error)
                _log.error("%s-%d: %s", topic.kafka_name, index, error, exc_info=traced(error))
        try:
            await self._broker.engine.delete_doomed()
        except _FAILURES as error:
            failures.append(error)
        await self._open_logs.close_unheld()
        if failures:
            raise failures[0]

    async def _look_at(self, topic: Topic, index: int) -> None:
        policy, held = self.policy(topic), self._open_logs.get(topic, index)
        acts = self._acts(topic, policy)
        if not acts and held is None:
            return
        ledgers = held.log.ledgers() if held is not None else await self._summaries(topic, index)
        if not acts and not any(each.offload for each in ledgers):
            return
        now_ms = self.clock()
        leaving = due_to_leave(ledgers, policy, topic.config, now_ms) if acts else []
        going = due_to_go_here(ledgers, policy, topic.config, now_ms)
        if not (leaving or going):
            return
        if held is None:
            try:
                held = await self._broker.open_whole(topic, index)
            except BrokerError:
                return  # deleted meanwhile, or another broker's
        held.hold(self)
        try:
            async with self._lock(held.log):
                await self._offload(held.log, policy, leaving)
                await self._let_go(held, policy)
        finally:
            held.leave(self)

    async def _summaries(self, topic: Topic, index: int) -> list[LedgerSummary]:
        return await self._broker.engine.summaries(topic.name.ledger_name(index))

    async def _offload(self, log: ManagedLedger, policy: OffloadPolicy, ledger_ids: list[int]) -> None:
        place = needs_place(policy) if ledger_ids else None
        for ledger_id in ledger_ids:
            assert place is not None
            try:
                await log.offload(ledger_id, place)
            except CannotOffload:
                if any(each.ledger_id == ledger_id and not each.compacted for each in log.ledgers()):
                    raise  # otherwise retention or compaction took it meanwhile

    async def _let_go(self, held: OpenLog, policy: OffloadPolicy) -> None:
        """Have ledgers lie in tiered storage alone, but for those that somebody beside the broker reads."""
        log, now_ms = held.log, self.clock()
        due = due_to_go_here(log.ledgers(), policy, held.topic.config, now_ms)
        if not due:
            return
        needed = await self._broker.engine.leases.needed(log.name)
        if needed is not None:
            read = {each.ledger_id for each in log.ledgers() if each.last_offset >= needed}
            due = [each for each in due if each not in read]
        for learn in self._broker.events.history_leaves:
            await learn(held.topic, held.index)
        await log.delete_local(due)

    # -- what is asked for

    def report(self, log: ManagedLedger) -> OffloadReport:
        """Return how the last offload of a log that was asked for went."""
        return self._reports.get(log.name) or OffloadReport()

    def begin(self, held: OpenLog, up_to: Position) -> Position:
        """Offload all full ledgers before the one of ``up_to``; return the first entry that is not among them.

        Raises `AlreadyOffloading`, ``CannotOffload`` where nobody says where to, or ``OffsetOutOfRange``.
        """
        log = held.log
        if self.report(log).state is OffloadState.RUNNING:
            raise AlreadyOffloading(f"Offload already in progress of {log.name}")
        place = needs_place(self.policy(held.topic))
        if not self._broker.engine.can_offload:
            raise CannotOffload(f"{log.name}: this engine keeps its ledgers to itself")
        ledgers = log.ledgers()
        last = ledgers[-1].ledger_id if ledgers else -1
        before = min(up_to.ledger_id, last)
        wanted = [
            each.ledger_id
            for each in ledgers
            if each.ledger_id < before
            and each.sealed
            and each.entries
            and not each.compacted
            and not (each.offload and each.offload.complete)
        ]
        first_left = Position(before, 0)
        self._reports[log.name] = OffloadReport(OffloadState.RUNNING, first_left=first_left)
        held.hold(self)
        work = self._asked(held, wanted, place, first_left)
        self._background.once("offload of", work, about=log.name, answers=(LedgerError,))
        return first_left

    async def _asked(self, held: OpenLog, wanted: list[int], place: Any, first_left: Position) -> None:
        report = self._reports[held.log.name]
        try:
            async with self._lock(held.log):
                for ledger_id in wanted:
                    await held.log.offload(ledger_id, place)
                await self._let_go(held, self.policy(held.topic))
        except Exception as error:  # whatever it is, who asked is to be told, and may ask again
            report.state, report.error = OffloadState.ERROR, str(error)
            _log.error("offload of %s failed: %s", held.log.name, error, exc_info=traced(error))
        else:
            report.state = OffloadState.SUCCESS
        finally:
            held.leave(self)

    def _lock(self, log: ManagedLedger) -> asyncio.Lock:
        return self._busy.setdefault(log.name, asyncio.Lock())
