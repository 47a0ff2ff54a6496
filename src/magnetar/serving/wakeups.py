"""Resume fetches that an append wakes immediately: before its producer is answered, not by way of the event loop.

A record then leaves for its consumer some loop turns earlier. Only a few go first; more would hold up the producer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

MAX_FIRST = 4


class Wakeups:
    """Fetches to resume. Between `begin` and `end` they are gathered; otherwise they resume in the loop's next turn."""

    __slots__ = ("_depth", "_running", "_soon", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[Callable[[Any], None]] = deque()
        self._depth = 0
        self._running = False
        self._soon = False

    def add(self, step: Callable[[Any], None]) -> None:
        """Schedule a call of ``step(None)``."""
        self._waiting.append(step)
        if not self._depth and not self._running:
            self._later()

    def begin(self) -> None:
        """Begin to carry out requests: what they wake resumes at their `end`."""
        self._depth += 1

    def end(self) -> None:
        """Resume the first few now."""
        self._depth -= 1
        if self._waiting and not self._depth and not self._running:
            self._run(MAX_FIRST)

    def _later(self) -> None:
        if not self._soon:
            self._soon = True
            asyncio.get_running_loop().call_soon(self._run_all)

    def _run_all(self) -> None:
        self._soon = False
        self._run(len(self._waiting))

    def _run(self, most: int) -> None:
        waiting, self._running = self._waiting, True
        try:
            while waiting and most:
                most -= 1
                waiting.popleft()(None)
        finally:
            self._running = False
            if waiting:
                self._later()


class Wakeup(asyncio.Future[None]):
    """Wakes once. An `Eager` that waits for it resumes by way of ``wakeups``; other waiters as for any future."""

    def __init__(self, wakeups: Wakeups) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self._wakeups = wakeups
        self.step: Callable[[Any], None] | None = None

    def wake(self) -> None:
        if not self.done():
            self.set_result(None)
            if self.step is not None:
                self._wakeups.add(self.step)
