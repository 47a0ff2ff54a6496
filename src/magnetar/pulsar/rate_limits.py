"""How fast something may go on: a bucket that fills steadily, up to what one period brings, and is drawn from."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.broker.limits import Rate

_NO_BOUND = 1 << 62
_MIN_WAIT_S = 0.001


class RateLimit:
    """So many messages and bytes per period. What is spent beyond is owed, and waited for afterwards."""

    def __init__(self, rate: Rate, now: Callable[[], float]) -> None:
        self.rate = rate
        self._now = now
        self._filled_at = now()
        self._messages, self._bytes = float(rate.messages), float(rate.bytes)

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
            waits.append((1 - self._messages) * self.rate.period_s / self.rate.messages)
        if size <= 0:
            waits.append((1 - self._bytes) * self.rate.period_s / self.rate.bytes)
        return max(*waits, _MIN_WAIT_S)

    def _fill(self) -> None:
        now = self._now()
        periods = (now - self._filled_at) / self.rate.period_s
        self._filled_at = now
        self._messages = min(self._messages + periods * self.rate.messages, self.rate.messages)
        self._bytes = min(self._bytes + periods * self.rate.bytes, self.rate.bytes)


def renewed(limit: RateLimit | None, rate: Rate | None, now: Callable[[], float]) -> RateLimit | None:
    """Return the limit for a rate: the same as before if that has not changed, None where there is no bound."""
    if not rate:
        return None
    return limit if limit is not None and limit.rate == rate else RateLimit(rate, now)
