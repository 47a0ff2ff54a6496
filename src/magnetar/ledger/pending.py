"""The port's part about appends: futures for the outcome of one that was placed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from magnetar.ledger.errors import LedgerError
from magnetar.ledger.values import NOWHERE, Position


class Pending:
    """One entry in flight: its offset is known, and its outcome as soon as ``done`` is done.

    ``done`` is None if the flush policy is met already. Otherwise it tells when that is so, or fails with the
    ``LedgerError`` for which the entry was taken back. Many may wait for the same one, so nobody may cancel it.
    ``position`` is where the entry lies; before ``done`` nobody may count on it. It is ``NOWHERE`` as long as no ledger
    has the entry even on its way, which then waits in memory.
    """

    __slots__ = ("base_offset", "done", "position")

    def __init__(
        self, base_offset: int, done: asyncio.Future[None] | None, position: Position = NOWHERE
    ) -> None:
        self.base_offset = base_offset
        self.done = done
        self.position = position

    async def settled(self) -> Position:
        """Wait until the flush policy is met, and return the entry's position; raise why it was taken back."""
        if self.done is not None:
            await self.done
        return self.position


class Done(asyncio.Future[None]):
    """The outcome of appends. Many wait for the same one, so none of them may cancel it for the others."""

    def cancel(self, msg: object = None) -> bool:
        return False

    def settle(self, error: BaseException | None = None) -> None:
        """Report that they are stored, or why they are not, unless that was reported before."""
        if self.done():
            return
        if error is None:
            self.set_result(None)
        else:
            self.set_exception(error)
            self.exception()  # waiters see it; there need not be any


class DoneTogether(Done):
    """Passes the outcome on to several, each of which has it before the waiters of this one."""

    def __init__(self, those: list[Done]) -> None:
        super().__init__()
        self.those = those

    def settle(self, error: BaseException | None = None) -> None:
        for each in self.those:
            each.settle(error)
        super().settle(error)


class Gathered(Done):
    """The outcome of appends that needed only to be written: at the end of a `gathering`, not a turn later."""

    steps: list[Callable[[object], None]] | None = None  # most have one, and many none

    def settle(self, error: BaseException | None = None) -> None:
        """Resume immediately the callers that registered with `when_done`."""
        if error is not None:
            super().settle(error)
        elif not self.done():
            self.set_result(None)  # as above; nearly all end so, and each call is one more for such a batch
        steps, self.steps = self.steps, None
        for step in steps or ():
            step(self)


def when_done(done: asyncio.Future[None], step: Callable[[Any], None]) -> None:
    """Call ``step(done)`` as soon as the outcome of an append is known."""
    if isinstance(done, Gathered) and not done.done():
        if done.steps is None:
            done.steps = [step]
        else:
            done.steps.append(step)
    else:
        done.add_done_callback(step)


class TakenBack(NamedTuple):
    """Why all that was appended from ``offset`` on is not in the log, nor will be: its offsets are assigned again."""

    offset: int
    error: LedgerError
