"""Lines of the log that clients can provoke: some of them a minute, and how many there were beside."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

MOST = 20
EVERY_S = 60.0


class SomeLines:
    """Warns at most `MOST` times in `EVERY_S` seconds; the first line after that tells how many were left out."""

    __slots__ = ("_clock", "_count", "_log", "_since_s")

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._count = 0
        self._since_s = clock()

    def warning(self, what: str, *about: object) -> None:
        """Log ``what % about``, or count it."""
        now_s = self._clock()
        if now_s - self._since_s >= EVERY_S:
            left_out, self._since_s, self._count = self._count - MOST, now_s, 0
            if left_out > 0:
                self._log.warning("%d more lines like the next one were left out", left_out)
        self._count += 1
        if self._count <= MOST:
            self._log.warning(what, *about)


class OneLineEach:
    """Logs one error in `EVERY_S` seconds about each of many things (topics), and at most `MOST` about all of them."""

    __slots__ = ("_clock", "_left_out", "_log", "_said", "_since_s")

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._left_out = 0
        self._said: set[str] = set()
        self._since_s = clock()

    def error(self, thing: str, what: str, *about: object, exc_info: BaseException | None = None) -> None:
        """Log ``what % about`` about ``thing``, or count it."""
        now_s = self._clock()
        if now_s - self._since_s >= EVERY_S:
            self._since_s = now_s
            self._said.clear()
        if thing in self._said or len(self._said) >= MOST:
            self._left_out += 1
            return
        self._said.add(thing)
        if self._left_out:
            what += " (%d more lines like this one were left out)"
            about = (*about, self._left_out)
            self._left_out = 0
        self._log.error(what, *about, exc_info=exc_info)
