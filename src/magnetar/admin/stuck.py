"""Which groups are stuck, and the one reason that `why` gives for each, as figures: an alert has its cause with it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from magnetar.admin.errors import AdminError
from magnetar.admin.reasons import Reason
from magnetar.admin.why_partition import MOVING_MS
from magnetar.auth import Access, Right, may
from magnetar.base.slices import sliced
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.figures.figures import Family, FigureTable, labelled
from magnetar.kafka.coordinators.group import GroupState
from magnetar.kafka.services import KafkaServices
from magnetar.ledger.port import wall_clock_ms

if TYPE_CHECKING:
    from magnetar.kafka.coordinators.kinds import AnyGroup
    from magnetar.node.broker import Broker

_STUCK = Family(
    "magnetar_group_stuck",
    "gauge",
    "1 for a group that leaves records unread, by the reason that 'magnetar why' names.",
)
_WELL = (Reason.MOVING, Reason.CAUGHT_UP, Reason.ELSEWHERE, Reason.LOADING, Reason.NO_GROUP)
_WAITS = (Reason.WAITS_FOR_JOIN, Reason.WAITS_FOR_SYNC)
"""A rebalance that has just begun delays no member yet."""
BUDGET_S = 0.25
"""So long a scrape waits for the reasons; those of before stand until there are new ones."""
_REBALANCES = (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)


class StuckGroups:
    """The groups of one broker that were stuck when they were last looked at."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._reasons: dict[str, Reason] = {}
        self._looking: asyncio.Task[None] | None = None

    async def look(self) -> None:
        """Ask why of the groups that have something left to read, as far as the budget of time goes."""
        services = self._broker.offers.find(KafkaServices)
        if services is None:
            return
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look(services))
        await asyncio.wait([self._looking], timeout=BUDGET_S)

    async def _look(self, services: KafkaServices) -> None:
        found: dict[str, Reason] = {}
        most = self._broker.settings.metrics.metrics_max_lines_per_figure
        now_ms = wall_clock_ms()
        async for group in sliced(services.groups.loaded_groups()):
            if len(found) >= most:
                break
            reason = await self._reason(services, group, now_ms)
            if reason is not None:
                found[group.group_id] = reason
        self._reasons = found

    async def _reason(self, services: KafkaServices, group: AnyGroup, now_ms: int) -> Reason | None:
        lag, committed_ms = self._lag(group)
        if not group.members:
            # Without members no partition is opened for it: a look each minute would keep it open.
            return Reason.NO_MEMBERS if lag and now_ms - committed_ms > MOVING_MS else None
        if lag == 0 and group.state not in _REBALANCES:
            return None
        from magnetar.admin.live import LiveBroker  # most brokers are never asked

        try:
            why = await LiveBroker(self._broker).why_group(group.group_id)
            since_ms = services.groups.describe(group.group_id).since_ms
        except (AdminError, CoordinatorRefused):
            return None  # it ended meanwhile
        if why.reason in _WELL or (why.reason in _WAITS and now_ms - since_ms <= MOVING_MS):
            return None
        return why.reason

    def _lag(self, group: AnyGroup) -> tuple[int | None, int]:
        """Return how many records it has not committed, None where it has committed nothing; and its last commit."""
        if not group.offsets:
            return None, 0
        lag = latest_ms = 0
        for name, committed in group.offsets.items():
            topic = self._broker.get(name)
            for index, commit in committed.items():
                latest_ms = max(latest_ms, commit.commit_timestamp)
                figures = None if topic is None else self._broker.logs.open_logs.figures(topic, index)
                bounds = None if figures is None else figures.bounds
                if bounds is not None:
                    lag += abs(bounds.high_watermark - commit.offset)
        return lag, latest_ms

    def __call__(self, access: Access | None) -> Iterator[FigureTable | None]:
        """Yield the table; see `magnetar.figures.figures.Source`."""
        rows = []
        if may(access, Right.operate):
            for name, reason in self._reasons.items():
                rows.append((labelled(consumergroup=name, reason=str(reason)), 1))
        yield FigureTable((_STUCK,), rows)
