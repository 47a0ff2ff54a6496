"""How fast something may go on: a bucket that fills steadily, up to what one period brings, and is drawn from."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.topics.limits import Rate

_NO_BOUND = 1 << 62
_MIN_WAIT_S = 0.001


_LOOK_S = 1.0
"""How often it is looked at how much was published."""

Came = Callable[[], tuple[int, int]]
"""Gives how many messages and bytes were published so far."""


class RateLimit:
    """So many messages and bytes per period. What is spent beyond is owed, and waited for afterwards.

    A relative rate is that many more than are published: ``came`` tells how many were, and what it grows by in a second
    may go in the next one.
    """

    def __init__(self, rate: Rate, now: Callable[[], float], came: Came | None = None) -> None:
        self.rate = rate
        self._now = now
        self._came = came if rate.relative else None
        self._filled_at = self._looked_at = now()
        self._before = (0, 0) if self._came is None else self._came()
        self._may_messages, self._may_bytes = float(rate.messages), float(rate.bytes)
        """How much may go in one period now."""
        self._messages, self._bytes = self._may_messages, self._may_bytes

    def spend(self, messages: int, size: int) -> None:
        """Draw what was just sent."""
        self._messages -= messages
        self._bytes -= size

    def budget(self) -> tuple[int, int]:
        """Return how many messages and bytes may go now; 0 or less is none."""
        self._fill()
        messages = int(self._messages) if self.rate.messages > 0 else _NO_BOUND
        return messages, int(self._bytes) if self.rate.bytes > 0 else _NO_BOUND

    def wait_s(self) -> float:
        """Return how long to wait until something may go again; 0 if it may now."""
        messages, size = self.budget()
        if messages > 0 and size > 0:
            return 0.0
        waits = [0.0]
        if messages <= 0:
            waits.append((1 - self._messages) * self.rate.period_s / self._may_messages)
        if size <= 0:
            waits.append((1 - self._bytes) * self.rate.period_s / self._may_bytes)
        return max(*waits, _MIN_WAIT_S)

    def _fill(self) -> None:
        now = self._now()
        if self._came is not None and now - self._looked_at >= _LOOK_S:
            self._look(now, *self._came())
        periods = (now - self._filled_at) / self.rate.period_s
        self._filled_at = now
        self._messages = min(self._messages + periods * self._may_messages, self._may_messages)
        self._bytes = min(self._bytes + periods * self._may_bytes, self._may_bytes)

    def _look(self, now: float, messages: int, size: int) -> None:
        periods = (now - self._looked_at) / self.rate.period_s
        self._may_messages = self.rate.messages + (messages - self._before[0]) / periods
        self._may_bytes = self.rate.bytes + (size - self._before[1]) / periods
        self._looked_at, self._before = now, (messages, size)


def renewed(
    limit: RateLimit | None, rate: Rate | None, now: Callable[[], float], came: Came | None = None
) -> RateLimit | None:
    """Return the limit for a rate: the same as before if that has not changed, None where there is no bound."""
    if not rate:
        return None
    return limit if limit is not None and limit.rate == rate else RateLimit(rate, now, came)
