"""Run a coroutine immediately, and suspend it only where it really has to wait.

A task would be started by the event loop's next turn; most produce and fetch requests need no turn at all. Such
a coroutine may await futures and other coroutines, but nothing that asks for the current task (``timeout``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from magnetar.ledger.port import when_done
from magnetar.serving.wakeups import Wakeup


class Eager:
    """One running coroutine. ``ended(result, error)`` is called once, maybe before the constructor returns."""

    __slots__ = ("_coroutine", "_ended")

    def __init__(
        self, coroutine: Coroutine[Any, Any, Any], ended: Callable[[Any, BaseException | None], None]
    ) -> None:
        self._coroutine = coroutine
        self._ended: Callable[[Any, BaseException | None], None] | None = ended
        self._step(None)

    def stop(self) -> None:
        """Cancel the coroutine where it waits; ``ended`` is not called any more."""
        if self._ended is None:
            return
        self._ended = None
        try:
            # Not ``close``: where it waits in an asynchronous generator, that would never end (Python 3.11).
            self._coroutine.throw(asyncio.CancelledError())
        except (StopIteration, asyncio.CancelledError):
            pass
        else:
            self._coroutine.close()  # it waits again

    def _step(self, woken_by: object) -> None:
        # A future that failed: its error's traceback refers to this frame, and together they would keep MB alive.
        del woken_by
        if self._ended is None:
            return
        try:
            waited = self._coroutine.send(None)
        except StopIteration as stop:
            self._end(stop.value, None)
        except Exception as error:
            self._end(None, error)
        else:
            if waited is None:
                asyncio.get_running_loop().call_soon(self._step, None)
            else:
                waited._asyncio_future_blocking = False
                if isinstance(waited, Wakeup):
                    waited.step = self._step
                else:
                    when_done(waited, self._step)

    def _end(self, result: Any, error: BaseException | None) -> None:
        # The callback and this object refer to each other: cut that, or MB of answers wait for the garbage collector.
        ended, self._ended = self._ended, None
        assert ended is not None
        ended(result, error)
