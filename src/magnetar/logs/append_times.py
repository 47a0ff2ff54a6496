"""When the oldest records that a reader has left were appended: its lag in seconds, exact by the broker's clock.

The time stands in the entry's metadata, so it is read from the log, once for each place that a reader stands at.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Hashable, Mapping
from time import perf_counter

from magnetar.base.errors import BrokerError
from magnetar.ledger.errors import LedgerError
from magnetar.ledger.port import ManagedLedger
from magnetar.logs.open_logs import OpenLogs
from magnetar.metadata import MetadataError
from magnetar.records.entry import index_of
from magnetar.records.errors import RecordsError
from magnetar.topics.topic import Topic

BUDGET_S = 0.25
"""So long a scrape waits for reads; what is not known by then is read for the next."""
_READS_AT_ONCE = 16

Read = Callable[[], Awaitable[int | None]]


class AppendTimes:
    """Those that readers' places have, by the places; a place that is not asked for again is forgotten."""

    def __init__(self) -> None:
        self._known: dict[Hashable, int] = {}
        self._reading: asyncio.Task[None] | None = None

    def of(self, place: Hashable) -> int | None:
        """Return the time, ms; None as long as it is not known."""
        return self._known.get(place)

    async def look(self, wanted: Mapping[Hashable, Read]) -> None:
        """Find the times of these places, as far as the budget goes; the others go on being looked for."""
        self._known = {place: at for place, at in self._known.items() if place in wanted}
        if self._reading is None or self._reading.done():
            unknown = [(place, read) for place, read in wanted.items() if place not in self._known]
            if not unknown:
                return
            self._reading = asyncio.ensure_future(self._read(unknown))
        await asyncio.wait([self._reading], timeout=BUDGET_S)

    async def _read(self, unknown: list[tuple[Hashable, Read]]) -> None:
        waiting = iter(unknown)

        async def some() -> None:
            began = perf_counter()
            for place, read in waiting:
                with contextlib.suppress(LedgerError, BrokerError, MetadataError, RecordsError):
                    at = await read()
                    if at is not None:
                        self._known[place] = at
                if perf_counter() - began > 0.001:
                    await asyncio.sleep(0)
                    began = perf_counter()

        await asyncio.gather(*(some() for _ in range(min(_READS_AT_ONCE, len(unknown)))))


async def appended_ms(log: ManagedLedger, offset: int) -> int | None:
    """Return when the record at ``offset``, or the first one behind it, was appended; None if there is none."""
    entries = await log.read(max(offset, log.log_start_offset), max_bytes=1)
    return index_of(entries[0].data).broker_timestamp if entries else None


def at_offset(logs: OpenLogs, topic: Topic, index: int, offset: int) -> Read:
    """Return what reads the time of a partition's record, opening its log if need be."""

    async def read() -> int | None:
        return await appended_ms((await logs.open(topic, index)).log, offset)

    return read
