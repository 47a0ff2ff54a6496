"""An event loop in virtual time, and threads that are none: a seed decides what ends when."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor, Future
from random import Random
from typing import Any


class Stuck(AssertionError):
    """Everybody waits, and nothing is left that could happen."""


class VirtualSelector(selectors.SelectSelector):
    """Never waits: the time that would have been waited has passed at once."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise Stuck
        self.loop.now += max(timeout, 0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, now: float) -> None:
        selector = VirtualSelector()
        selector.loop = self
        self.now = now
        super().__init__(selector)
        self.set_exception_handler(lambda loop, context: None)  # a crash leaves broken tasks behind

    def end(self) -> None:
        """End as a process ends: whoever still waits is not told, and nothing more happens."""
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]

    def _make_self_pipe(self) -> None:
        """There is no other thread to wake this one, so it needs no pipe and leaves nothing to close."""

    def __del__(self) -> None: ...

    def time(self) -> float:
        return self.now

    def _write_to_self(self) -> None:
        """There is no other thread to wake this one from."""


class SimulatedThreads(Executor):
    """Runs each call on the loop, whole, some virtual time later: in any order, as threads would end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, dice: Random) -> None:
        self._loop = loop
        self._dice = dice

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = call(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        self._loop.call_later(self._dice.choice((0.0, 0.0002, 0.001, 0.02)) * self._dice.random(), run)
        return future
