"""How much a micro-batch takes, as Spark's Kafka source decides it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from magnetar.pipeline.options import Offsets, TopicPartition


def admit(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], most: int) -> Offsets:
    """Return ends that admit about ``most`` records, in proportion to what each partition has to give.

    Each partition with records gives at least one, so that none starves. One that ends before its start goes back to
    that end.
    """
    waiting = {which: end - starts.get(which, 0) for which, end in ends.items()}
    total = sum(max(count, 0) for count in waiting.values())
    if total <= most:
        return dict(ends)
    return {
        which: starts.get(which, 0) + (max(count * most // total, 1) if count > 0 else count)
        for which, count in waiting.items()
    }


class Delay:
    """minOffsetsPerTrigger and maxTriggerDelay: wait for more, but not for ever. The first batch never waits."""

    def __init__(self, least: int | None, max_ms: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._least = least
        self._max_s = max_ms / 1000
        self._clock = clock
        self._last: float | None = None

    def waits(self, count: int) -> bool:
        """Return whether a batch of ``count`` offsets has to wait; if not, the next one waits from now on."""
        if self._least is None:
            return False
        now = self._clock()
        overdue = self._last is None or now - self._last >= self._max_s
        if count < self._least and not overdue:
            return True
        self._last = now
        return False
