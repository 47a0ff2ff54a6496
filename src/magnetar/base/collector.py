"""Python's garbage collector, kept from holding up the event loop.

Its full collections look through every object that has lived for a while, in one piece, again and again as they become
more: with 20,000 topics or groups that is a third of a second, in which nobody is heard. Nearly nothing here is
garbage that only the collector finds; references are counted, and rings of them are few. So:

    what a full collection took too long to look through, and what outlived a request with many rows, is *frozen*:
    no collection looks at it, and it goes, as all does, when nobody refers to it any more
    once in an hour, in a second in which next to nothing is done, all is thawed, collected, and frozen again

What is made in great number and goes again soon, such as logs that are opened for one marker each, has rings that a
freeze would keep for that hour: 10 KB a log. While that is done (`fleeting`) a full collection may take longer.

Nothing is frozen in a process in which nobody made a `Collector`.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

MAX_SECONDS = 0.002
"""That a full collection may take before what it looked through is frozen."""
MAX_FLEETING_SECONDS = 0.01
"""The same while what is made goes again soon."""
MIDDLE_AFTER = 4
"""Collections of the young, of 700 objects more each, before one of middle age."""
FULL_AFTER = 1
"""Those of middle age before a full one. With Python's 10 and 10 a full one of what a thousand opened topics are made
of, 70,000 objects, took 30 ms."""
MANY_OBJECTS = 20_000
THAW_EVERY_S = 3600.0
LATEST_THAW_S = 24 * 3600.0
"""By then the thaw takes place though the broker has much to do."""
QUIET_CPU_S = 0.005
"""Of the processor's time in a second: then nobody notices."""
_LOOK_EVERY_S = 1.0
_waiting = 0  # how many are in `uncollected`
_fleeting = 0  # how many are in `fleeting`
_collector: Collector | None = None


class Collector:
    """The process's collector, as a broker wants it, from now until `stop`. There is one at most."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        processor_time: Callable[[], float] = time.process_time,
    ) -> None:
        global _collector
        assert _collector is None
        self._clock = clock
        self._processor_time = processor_time
        self._began = 0.0
        self._has_frozen = False  # since the last thaw
        self._thresholds = gc.get_threshold()
        gc.set_threshold(self._thresholds[0], MIDDLE_AFTER, FULL_AFTER)
        gc.collect()
        gc.freeze()  # what start-up made lives as long as the process
        gc.collect()  # from nothing on: Python waits with a full one for a quarter of what the last one has left
        self._thawed_at = clock()
        gc.callbacks.append(self._told)
        _collector = self

    def stop(self) -> None:
        """Leave the collector as Python has it."""
        global _collector
        _collector = None
        gc.callbacks.remove(self._told)
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    def _told(self, phase: str, about: Mapping[str, Any]) -> None:
        if about["generation"] < 2:
            return
        # The processor's time: on a busy machine others' would be taken for the collector's.
        if phase == "start":
            self._began = time.thread_time()
        elif time.thread_time() - self._began > (MAX_FLEETING_SECONDS if _fleeting else MAX_SECONDS):
            self.freeze()

    def freeze(self) -> None:
        """Have no collection look at what is there now, until the next thaw."""
        gc.freeze()
        self._has_frozen = True

    async def thaw_when_quiet(self, second: Callable[[], Awaitable[None]] | None = None) -> None:
        """Look through all, if that is due and nobody would notice. ``second`` waits for one."""
        if not self._has_frozen or self._clock() - self._thawed_at < THAW_EVERY_S:
            return
        used = self._processor_time()
        await (asyncio.sleep(_LOOK_EVERY_S) if second is None else second())
        is_quiet = self._processor_time() - used < QUIET_CPU_S
        if is_quiet or self._clock() - self._thawed_at > LATEST_THAW_S:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            self._has_frozen = False
            self._thawed_at = self._clock()


@contextmanager
def uncollected() -> Iterator[None]:
    """Have no garbage collected meanwhile. Rows are no garbage, they are many, and to look through all of them, again
    and again while they become more, would hold up everybody for longer than all that is done with them.
    """
    global _waiting
    _waiting += 1
    gc.disable()
    try:
        yield
    finally:
        _waiting -= 1
        if not _waiting:
            if _collector is not None and gc.get_count()[0] > MANY_OBJECTS:
                _collector.freeze()  # otherwise the next collection looks through all that is left of them
            gc.enable()


@contextmanager
def fleeting() -> Iterator[None]:
    """Have what is made meanwhile, and goes again soon, not be frozen: rings of it would stay for an hour."""
    global _fleeting
    _fleeting += 1
    try:
        yield
    finally:
        _fleeting -= 1
