"""What Pulsar counts of a topic's entries in the last minute: by how long writing took, and by size."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from functools import partial
from time import perf_counter

from magnetar.ledger.pending import when_done

PERIOD_S = 60.0
"""Pulsar's ``statsUpdateFrequencyInSecs``; dashboards divide by it."""
_LATENCIES_S = (0.0005, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 1.0)
_SIZES = (128, 512, 1 << 10, 2 << 10, 4 << 10, 16 << 10, 100 << 10, 1 << 20)


class EntryBuckets:
    """Counts of one partition's entries. Each counts in the one bucket that it falls into, as in Pulsar."""

    __slots__ = ("_before", "_latencies", "_shown", "_since_s", "_sizes")

    def __init__(self, now_s: float) -> None:
        self._latencies = [0.0] * (len(_LATENCIES_S) + 2)  # and the sum, ms
        self._sizes = [0] * (len(_SIZES) + 2)
        self._since_s = now_s
        self._before = self._counted()
        self._shown: tuple[float, ...] | None = None

    def placed(self, nbytes: int, done: asyncio.Future[None] | None) -> None:
        """Count an entry of so many bytes that becomes durable with ``done``; None: it is acknowledged already."""
        sizes = self._sizes
        sizes[bisect_left(_SIZES, nbytes)] += 1
        sizes[-1] += nbytes
        if done is None:
            self._latencies[0] += 1
        else:
            when_done(done, partial(self._written, perf_counter()))

    def _written(self, began_s: float, done: asyncio.Future[None]) -> None:
        if done.exception() is None:
            took_s = perf_counter() - began_s
            self._latencies[bisect_left(_LATENCIES_S, took_s)] += 1
            self._latencies[-1] += took_s * 1000

    def last_minute(self, now_s: float) -> tuple[float, ...]:
        """Return the counts of the last period that is over, of the one under way before the first is.

        After a longer pause between two scrapes, a minute's share of what came since.
        """
        passed_s = now_s - self._since_s
        if self._shown is not None and passed_s < PERIOD_S:
            return self._shown
        counted = self._counted()
        share = min(PERIOD_S / passed_s, 1.0) if passed_s > 0 else 1.0
        grown = [(now - before) * share for now, before in zip(counted, self._before, strict=True)]
        found = self._as_told(grown)
        if passed_s >= PERIOD_S:
            self._before, self._since_s, self._shown = counted, now_s, found
        return found

    def _counted(self) -> list[float]:
        return [*self._latencies, *self._sizes]

    def _as_told(self, grown: list[float]) -> tuple[float, ...]:
        at = len(self._latencies)
        latencies, sizes = grown[:at], grown[at:]
        counts = sum(latencies[:-1]), sum(sizes[:-1])
        told = (
            *(*latencies[:-1], counts[0], latencies[-1]),
            *(*sizes[:-1], counts[1], sizes[-1], counts[1] / PERIOD_S),
        )
        return tuple(round(each, 3) for each in told)
