"""Poll for the next request a little longer before the event loop goes to sleep.

To fall asleep and to be woken takes a thread some tens of microseconds on each side, more in a virtual machine: for one
record on its way from producer to consumer that was a fifth of the time. So for a moment after it has received
something the loop only polls whether there is more. Seastar, and Redpanda with it, does so by ``idle-poll-time-us``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

_SMALL_BYTES = 4 << 10
_MAX_CREDIT = 8
_TRY_EVERY = 32


class IdlePoll:
    """Keeps a loop awake for ``seconds`` after each `heard`; 0 never does.

    It stops where it does not pay: after a number of polls in a row that found nothing it polls only now and then,
    until something comes again. A thousand parked consumers that fetch twice a second would otherwise cost a tenth of
    a processor.
    """

    __slots__ = ("_awake", "_clock", "_credit", "_seconds", "_skipped", "_until")

    def __init__(self, seconds: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self._seconds = seconds
        self._clock = clock  # the loop's own stands still during a turn, and counts in ms
        self._credit = _MAX_CREDIT
        self._skipped = 0
        self._until = 0.0
        self._awake = False

    @property
    def awake(self) -> bool:
        """True if it keeps the loop from sleeping now."""
        return self._awake

    def heard(self, nbytes: int) -> None:
        """Note so many bytes from a client: if they are few, it may wait for the answer and go on immediately."""
        if nbytes > _SMALL_BYTES:  # this client batches, and the processor's time is worth more to it
            return
        if self._awake:
            self._credit = min(self._credit + 1, _MAX_CREDIT)
            self._until = self._clock() + self._seconds
            return
        if not self._seconds:
            return
        if not self._credit:
            self._skipped += 1
            if self._skipped < _TRY_EVERY:
                return
            self._skipped = 0
        self._awake = True
        self._until = self._clock() + self._seconds
        asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        """Schedule one more turn of the loop, which polls its sockets and does not wait for them."""
        if self._clock() < self._until:
            asyncio.get_running_loop().call_soon(self._look)
        else:
            self._awake = False
            self._credit = max(self._credit - 1, 0)
