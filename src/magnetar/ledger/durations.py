"""Counts and durations of an operation."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

MAX_RECENT = 1024
"""So many of the last durations count for quantiles."""


class Durations:
    """The count and the durations of an operation, in seconds; quantiles are those of the last times."""

    __slots__ = ("count", "recent", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self.recent: deque[float] = deque(maxlen=MAX_RECENT)

    def add(self, seconds: float) -> None:
        """Count one more."""
        self.count += 1
        self.seconds += seconds
        self.recent.append(seconds)

    def quantiles(self, wanted: Sequence[float]) -> list[float]:
        """Return for each fraction the duration, s, that so many did not exceed; none if nothing was done."""
        ordered = sorted(self.recent)
        return (
            [ordered[min(int(each * len(ordered)), len(ordered) - 1)] for each in wanted] if ordered else []
        )
