"""Runs of offsets that are in one state: what a share partition's books are made of."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

NEVER_MS = 1 << 62
"""The deadline of offsets that a holder has until it acknowledges them, or goes."""


class RecordState(IntEnum):
    """The state of a record; numbers and names as Kafka stores them (KIP-932)."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """Given up, and not yet in the dead-letter queue (KIP-1191)."""
    ARCHIVED = 4
    """Done though no worker accepted it: rejected, delivered too often, or not there at all."""


DONE = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})


class OffsetRun(NamedTuple):
    """Offsets from ``first`` to ``last`` that are alike."""

    first: int
    last: int
    state: RecordState
    deliveries: int
    """How often they were delivered."""
    holder: str = ""
    until_ms: int = NEVER_MS
    """When the holder loses them."""

    @property
    def records(self) -> int:
        """The number of its offsets."""
        return self.last - self.first + 1


class Runs:
    """Runs side by side in the order of their offsets, without gaps; neighbours always differ."""

    def __init__(self) -> None:
        self._runs: list[OffsetRun] = []

    def __iter__(self) -> Iterator[OffsetRun]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def append(self, run: OffsetRun) -> None:
        """Add offsets after the last ones."""
        assert not self._runs or run.first == self._runs[-1].last + 1
        if self._runs and _alike(self._runs[-1], run):
            self._runs[-1] = self._runs[-1]._replace(last=run.last)
        else:
            self._runs.append(run)

    def between(self, first: int, last: int) -> list[OffsetRun]:
        """Return the runs of these offsets, cut to them."""
        found = []
        for place in range(max(self._place(first), 0), len(self._runs)):
            run = self._runs[place]
            if run.first > last:
                break
            if run.last >= first:
                found.append(run._replace(first=max(run.first, first), last=min(run.last, last)))
        return found

    def rewrite(self, first: int, last: int, change: Callable[[OffsetRun], OffsetRun]) -> None:
        """Replace each run of these offsets, which are all there, by what ``change`` makes of it."""
        low, high = self._place(first), self._place(last)
        made: list[OffsetRun] = []
        for run in self._runs[low : high + 1]:
            inside = run._replace(first=max(run.first, first), last=min(run.last, last))
            if run.first < inside.first:
                made.append(run._replace(last=inside.first - 1))
            made.append(change(inside))
            if run.last > inside.last:
                made.append(run._replace(first=inside.last + 1))
        before, behind = max(low - 1, 0), min(high + 2, len(self._runs))
        around = (*self._runs[before:low], *made, *self._runs[high + 1 : behind])
        self._runs[before:behind] = _merged(around)

    def drop_first(self) -> None:
        """Forget the first run."""
        del self._runs[0]

    def cut(self, before: int) -> None:
        """Forget all offsets below ``before``."""
        while self._runs and self._runs[0].last < before:
            del self._runs[0]
        if self._runs and self._runs[0].first < before:
            self._runs[0] = self._runs[0]._replace(first=before)

    def _place(self, offset: int) -> int:
        """Return the index of the run of an offset; the last one for those after it, -1 for those before the first."""
        return bisect_right(self._runs, offset, key=_first) - 1


def _first(run: OffsetRun) -> int:
    return run.first


def _alike(one: OffsetRun, other: OffsetRun) -> bool:
    return one[2:] == other[2:]


def _merged(runs: Iterable[OffsetRun]) -> list[OffsetRun]:
    merged: list[OffsetRun] = []
    for run in runs:
        if merged and _alike(merged[-1], run):
            merged[-1] = merged[-1]._replace(last=run.last)
        else:
            merged.append(run)
    return merged
