"""Deadlines as values: nothing here knows what time it is."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import NamedTuple


class TimerKey(NamedTuple):
    """The subject of a deadline: ``session`` of a member, ``join`` or ``sync`` of a group."""

    kind: str
    group_id: str
    member_id: str = ""


class Timers:
    """One deadline per key. To postpone one is cheap: the heap is only corrected when its old time comes."""

    def __init__(self) -> None:
        self._deadlines: dict[TimerKey, int] = {}
        self._queued: dict[TimerKey, int] = {}
        self._heap: list[tuple[int, TimerKey]] = []

    def __contains__(self, key: TimerKey) -> bool:
        return key in self._deadlines

    def deadline(self, key: TimerKey) -> int | None:
        """Return when the key is due, ms, or None if it is not set."""
        return self._deadlines.get(key)

    def schedule(self, key: TimerKey, deadline_ms: int) -> None:
        """Set the key's deadline; it replaces any other."""
        self._deadlines[key] = deadline_ms
        if self._queued.get(key, deadline_ms + 1) > deadline_ms:
            self._queue(key, deadline_ms)

    def cancel(self, key: TimerKey) -> None:
        """Forget the key's deadline, if it has one."""
        self._deadlines.pop(key, None)

    def wake_ms(self) -> int | None:
        """Return when to call `take_due` again; sometimes too early, never too late."""
        while self._heap:
            queued_ms, key = self._heap[0]
            if self._queued.get(key) == queued_ms and key in self._deadlines:
                return queued_ms
            heapq.heappop(self._heap)
            if self._queued.get(key) == queued_ms:
                del self._queued[key]
        return None

    def take_due(self, now_ms: int) -> Iterator[TimerKey]:
        """Take keys that are due, the earliest first, those set meanwhile as well."""
        while self._heap and self._heap[0][0] <= now_ms:
            queued_ms, key = heapq.heappop(self._heap)
            if self._queued.get(key) != queued_ms:
                continue
            del self._queued[key]
            deadline_ms = self._deadlines.get(key)
            if deadline_ms is None:
                continue
            if deadline_ms > queued_ms:  # postponed since it was queued: sort it in again
                self._queue(key, deadline_ms)
                continue
            del self._deadlines[key]
            yield key

    def _queue(self, key: TimerKey, deadline_ms: int) -> None:
        self._queued[key] = deadline_ms
        heapq.heappush(self._heap, (deadline_ms, key))
