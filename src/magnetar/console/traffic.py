"""What comes in and goes out per second, of all partitions of this broker: two looks at its counters, and what changed.

Counters are those of ``/metrics``. A page that comes long after the last look waits a second for its second one; while
pages are open, each look serves all of them. Nothing is done while no page is asked for.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import NamedTuple

from magnetar.base.slices import sliced
from magnetar.pulsar.services import PulsarServices
from magnetar.topics.topic import Topic

_FRESH_S = 2.0
_OLD_S = 60.0
_APART_S = 1.0
_AT_ONCE = 100
"""Partitions of one topic, at 5 us each."""
Key = tuple[bytes, int]
"""A topic's id and a partition."""


class Flow(NamedTuple):
    """Records and bytes, counted or per second. ``to_pulsar`` is the part of what went out by Pulsar's protocol."""

    records_in: float = 0
    bytes_in: float = 0
    records_out: float = 0
    bytes_out: float = 0
    records_to_pulsar: float = 0
    bytes_to_pulsar: float = 0

    def plus(self, other: Flow) -> Flow:
        return Flow(*[mine + others for mine, others in zip(self, other, strict=True)])


_NONE = Flow()


class _Look(NamedTuple):
    at_s: float
    counters: dict[Key, Flow]


class Traffic:
    """The last two looks of one broker."""

    def __init__(self, services: PulsarServices) -> None:
        self._services = services
        self._before: _Look | None = None
        self._last: _Look | None = None
        self._looking: asyncio.Task[None] | None = None

    async def refresh(self) -> None:
        """Take a look, unless the last one is fresh: `of` gives the rates of the last few seconds then."""
        if self._before is not None and self._last is not None and monotonic() - self._last.at_s < _FRESH_S:
            return
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_twice())
        await asyncio.shield(self._looking)

    def of(self, key: Key) -> Flow | None:
        """Return what a partition has per second; None if its log was not open at both looks."""
        if self._before is None or self._last is None:
            return None
        before, last = self._before.counters.get(key), self._last.counters.get(key)
        if before is None or last is None:
            return None
        passed = max(self._last.at_s - self._before.at_s, 0.001)
        return Flow(*[max(now - was, 0) / passed for now, was in zip(last, before, strict=True)])

    @property
    def seconds(self) -> float:
        """Over how many seconds the rates go."""
        if self._before is None or self._last is None:
            return 0.0
        return self._last.at_s - self._before.at_s

    async def _look_twice(self) -> None:
        if self._last is None or monotonic() - self._last.at_s > _OLD_S:
            self._last = await self._look()
            await asyncio.sleep(_APART_S)
        self._before, self._last = self._last, await self._look()

    async def _look(self) -> _Look:
        open_logs, topics = self._services.broker.logs.open_logs, self._services.topics
        found: dict[Key, Flow] = {}
        async for each in sliced(open_logs.all()):
            figures = each.figures
            records = octets = 0
            opened = topics.opened(each.topic, each.index)
            if opened is not None:
                for subscription in opened.subscriptions.values():
                    records += subscription.delivered_messages
                    octets += subscription.delivered_bytes
            found[each.topic.topic_id, each.index] = Flow(
                figures.messages_in,
                figures.bytes_in,
                figures.messages_out + records,
                figures.bytes_out + octets,
                records,
                octets,
            )
        return _Look(monotonic(), found)


def traffic_of(services: PulsarServices) -> Traffic:
    """Return that of a broker, made by the first page that asks."""
    found = services.broker.offers.find(Traffic)
    if found is None:
        found = Traffic(services)
        services.broker.offers.add(found)
    return found


async def sums_of(services: PulsarServices, topic: Topic) -> tuple[Flow, int | None]:
    """Return what a topic's partitions have together: per second, and bytes on disk.

    The size is that of partitions that were open since the broker began; None if none was. Of many partitions others
    have turns meanwhile.
    """
    traffic, open_logs = traffic_of(services), services.broker.logs.open_logs
    flow, size = _NONE, None
    for index in range(topic.partitions):
        if index and index % _AT_ONCE == 0:
            await asyncio.sleep(0)
        figures = open_logs.figures(topic, index)
        bounds = None if figures is None else figures.bounds
        if bounds is not None:
            size = (size or 0) + bounds.size
        one = traffic.of((topic.topic_id, index))
        if one is not None:
            flow = one if flow is _NONE else flow.plus(one)
    return flow, size
