"""What a process that serves many clients asks of the system: descriptors, and memory that is given back."""

from __future__ import annotations

import contextlib
import ctypes
import resource
import time
from collections.abc import Callable

SWITCH_SECONDS = 0.001
"""That a thread may keep the interpreter while the event loop wants it: Python's own 5 ms came for each turn of it."""
LOOK_EVERY_S = 5.0
BUSY_CPU_S = 0.05
"""Of the processor's time between two looks: below it nobody notices that memory is given back."""


def raise_file_limit() -> None:
    """Let this process open as many files as it is allowed to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def bound_allocator() -> None:
    """Have buffers of a few MB reused, and larger ones, and more than 8 MB at rest, given back at once.

    Left alone, glibc comes to keep tens of MB per thread, and gives back each buffer of 1 MB only to be asked for
    the next: a read of 1 MB then spends a third of its time on page faults. With 2 MB at rest Fetch took twice the
    processor's time; from 4 MB on, which is the largest answer, it does not.
    """
    mmap_threshold, trim_threshold, arenas = -3, -1, -8
    with contextlib.suppress(AttributeError):  # not glibc
        allocator = ctypes.CDLL(None)
        allocator.mallopt(mmap_threshold, 4 << 20)
        allocator.mallopt(trim_threshold, 8 << 20)
        allocator.mallopt(arenas, 2)


def _trim() -> None:
    with contextlib.suppress(AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)


class Spare:
    """What the allocator keeps for the next burst of requests: given back to the system once a burst is over."""

    def __init__(
        self, processor_time: Callable[[], float] = time.process_time, trim: Callable[[], None] = _trim
    ) -> None:
        self._processor_time = processor_time
        self._trim = trim
        self._before = processor_time()
        self._owed = False

    async def give_back_when_quiet(self) -> None:
        """Look how much was done since the last look; after much, the first quiet time is the one."""
        now = self._processor_time()
        used, self._before = now - self._before, now
        if used >= BUSY_CPU_S:
            self._owed = True
        elif self._owed:
            self._owed = False
            self._trim()
