"""The pauses of what is tried again until it works, and what the log says of it meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from magnetar.base.errors import BrokerError

PAUSES_S = (0.02, 0.1, 0.5, 2.0)
"""Before the second try, the third, and so on; the last one before each that follows."""


class Retries:
    """Those of one piece of work: after each failure one of its methods is awaited, and then it is tried again.

    ``pauses_s`` are in seconds, the last of them is for all tries that follow.
    """

    __slots__ = ("_log", "_pauses_s", "_tries")

    def __init__(self, log: logging.Logger, pauses_s: Sequence[float] = PAUSES_S) -> None:
        self._log = log
        self._pauses_s = pauses_s
        self._tries = 0

    async def after(self, error: Exception, what: str, *about: object) -> None:
        """Pause after what is known to come and go (a partition on its way, a disk that is full).

        It is told once, when pauses have grown to their longest: "``what`` % ``about``: the error; tried again".
        """
        if self._tries == len(self._pauses_s):
            self._log.warning(what + ": %s; tried again", *about, error)
        await self.pause()

    async def after_unforeseen(self, error: Exception, what: str, *about: object) -> None:
        """Tell of a fault of the broker's own, and pause."""
        self.tell_unforeseen(error, what, *about)
        await self.pause()

    def tell_unforeseen(self, error: Exception, what: str, *about: object) -> None:
        """Tell of a fault of the broker's own, before the pause that follows it.

        It is told at once, with its traceback, and after 1, 3, 7, 15 ... further tries: ``what`` says what does not
        work, and what there is to do if the line comes again.
        """
        tried = self._tries + 1
        if tried & (tried - 1) == 0:
            self._log.error(
                "%s: %s: %s (tries: %d; the next one in %g s)",
                what % about, type(error).__name__, error, tried, self._next_s, exc_info=error,
            )  # fmt: skip

    @property
    def _next_s(self) -> float:
        return self._pauses_s[min(self._tries, len(self._pauses_s) - 1)]

    async def pause(self) -> None:
        """Wait for as long as it is time for now, whoever told of why."""
        wait_s = self._next_s
        self._tries += 1
        await asyncio.sleep(wait_s)


async def surely(work: Callable[[], Awaitable[None]], log: logging.Logger, what: str, *about: object) -> None:
    """Do ``work`` until it does not fail; see `Retries` for what the log says. Cancelled, it is tried no more."""
    retries = Retries(log)
    while True:
        try:
            await work()
            return
        except BrokerError as error:
            await retries.after(error, what, *about)
        except Exception as error:
            await retries.after_unforeseen(error, what, *about)
