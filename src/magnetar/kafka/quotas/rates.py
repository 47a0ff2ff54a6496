"""Kafka's arithmetic of rates: what is recorded in windows, and how long to wait until a rate is within a bound.

`WindowedRate` is what Kafka's clients and brokers call Rate over SampledStat, `TokenBucket` is KIP-599's. Neither knows
a clock: each call is told the time, in ms.
"""

from __future__ import annotations

import math
from typing import NamedTuple

MAX_THROTTLE_MS = (1 << 31) - 1


class Windows(NamedTuple):
    """Over what a rate is taken: so many windows (``quota.window.num``) of so many ms."""

    number: int
    size_ms: int

    @property
    def span_ms(self) -> int:
        """All of them."""
        return self.number * self.size_ms


class WindowedRate:
    """What came in per second, over the last windows; the newest is not over yet.

    As in Kafka, one more window is kept than are counted, and a window begins with what is recorded first in it. As
    long as less time has gone by than all windows but one take, the rate is taken over these nonetheless: what comes at
    the very beginning does not look like an endless rate.
    """

    __slots__ = ("_current", "_ends", "_starts", "_values", "windows")

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self._starts: list[int] = []
        self._ends: list[int] = []
        """When something was last recorded in each."""
        self._values: list[float] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        """Count so much."""
        if not self._starts:
            self._open(now_ms)
        elif now_ms - self._starts[self._current] >= self.windows.size_ms:
            self._current = (self._current + 1) % (self.windows.number + 1)
            if self._current == len(self._starts):
                self._open(now_ms)
            else:
                self._reset(self._current, now_ms)
        self._values[self._current] += value
        self._ends[self._current] = now_ms

    def rate(self, now_ms: int) -> float:
        """Return what came in per second."""
        self._forget_old(now_ms)
        return sum(self._values) / (self._span_ms(now_ms) / 1000)

    def wait_ms(self, bound: float, now_ms: int, longest_ms: int = MAX_THROTTLE_MS) -> int:
        """Return how long nothing may come for the rate to be within a bound; 0 if it is."""
        rate = self.rate(now_ms)
        if rate <= bound:
            return 0
        wait = (rate - bound) / bound * self._span_ms(now_ms)
        return longest_ms if wait >= longest_ms else math.floor(wait + 0.5)

    def is_old(self, now_ms: int) -> bool:
        """Whether nothing of it counts any more."""
        return all(now_ms - end >= self.windows.span_ms for end in self._ends)

    def total(self, now_ms: int) -> float:
        """Return all that counts now."""
        self._forget_old(now_ms)
        return sum(self._values)

    def _open(self, now_ms: int) -> None:
        self._starts.append(now_ms)
        self._ends.append(now_ms)
        self._values.append(0.0)

    def _reset(self, at: int, now_ms: int) -> None:
        self._starts[at] = self._ends[at] = now_ms
        self._values[at] = 0.0

    def _forget_old(self, now_ms: int) -> None:
        span = self.windows.span_ms
        for at, end in enumerate(self._ends):
            if now_ms - end >= span:
                self._reset(at, now_ms)

    def _span_ms(self, now_ms: int) -> int:
        """Return over how long what counts came in, the windows that nothing came in included."""
        size, least = self.windows.size_ms, self.windows.number - 1
        elapsed = now_ms - min(self._starts, default=now_ms)
        return max(elapsed + max(least - elapsed // size, 0) * size, 1)


class TokenBucket:
    """Permits that come at a rate, and are kept up to so many windows' worth; what is taken may put it into debt."""

    __slots__ = ("_at_ms", "_tokens", "windows")

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self._tokens = 0.0
        self._at_ms: int | None = None

    def tokens(self, rate: float, now_ms: int) -> float:
        """Return how many there are; negative while there is a debt."""
        self._fill(rate, now_ms)
        return self._tokens

    def take(self, permits: float, rate: float, now_ms: int) -> None:
        """Take so many, also if there are none."""
        self._fill(rate, now_ms)
        self._tokens = min(self._most(rate), self._tokens - permits)

    def wait_ms(self, rate: float, now_ms: int) -> int:
        """Return how long it takes until there is no debt; 0 if there is none."""
        tokens = self.tokens(rate, now_ms)
        return 0 if tokens >= 0 else min(math.floor(-tokens / rate * 1000 + 0.5), MAX_THROTTLE_MS)

    def is_old(self, rate: float, now_ms: int) -> bool:
        """Whether it is full, as a new one is."""
        return self.tokens(rate, now_ms) >= self._most(rate)

    def _most(self, rate: float) -> float:
        return self.windows.span_ms / 1000 * rate

    def _fill(self, rate: float, now_ms: int) -> None:
        most = self._most(rate)
        if self._at_ms is None:
            self._tokens = most
        else:
            self._tokens = min(most, self._tokens + rate * max(now_ms - self._at_ms, 0) / 1000)
        self._at_ms = now_ms
