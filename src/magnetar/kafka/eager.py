"""Run a coroutine at once, and go on only where it really has to wait.

A task would be started by the event loop's next turn; most produce and fetch requests need no turn at all. Such
a coroutine may await futures and other coroutines, but nothing that asks for the current task (``timeout``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Eager:
    """One coroutine on its way. ``ended(result, error)`` is called once, maybe before the constructor returns."""

    __slots__ = ("_coroutine", "_ended", "_stopped")

    def __init__(
        self, coroutine: Coroutine[Any, Any, Any], ended: Callable[[Any, BaseException | None], None]
    ) -> None:
        self._coroutine = coroutine
        self._ended = ended
        self._stopped = False
        self._step(None)

    def stop(self) -> None:
        """Give the coroutine up where it waits; ``ended`` is not called any more."""
        if not self._stopped:
            self._stopped = True
            self._coroutine.close()

    def _step(self, _: object) -> None:
        if self._stopped:
            return
        try:
            waited = self._coroutine.send(None)
        except StopIteration as stop:
            self._stopped = True
            self._ended(stop.value, None)
        except Exception as error:
            self._stopped = True
            self._ended(None, error)
        else:
            if waited is None:
                asyncio.get_running_loop().call_soon(self._step, None)
            else:
                waited._asyncio_future_blocking = False
                waited.add_done_callback(self._step)
