"""Turns of the event loop: waiting in them for what tells nobody that it has come, and counting those of others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

IN_TIME = 10_000


async def until(holds: Callable[[], bool]) -> None:
    """Give others turns until it holds; fail after so many that it never will."""
    for _ in range(IN_TIME):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to that")


class Turns:
    """How many somebody else has had."""

    count = 0

    async def take(self) -> None:
        """Take one whenever there is one."""
        while True:
            self.count += 1
            await asyncio.sleep(0)


@contextmanager
def of_others() -> Iterator[Turns]:
    """Count the turns that somebody else has meanwhile."""
    turns = Turns()
    taking = asyncio.ensure_future(turns.take())
    try:
        yield turns
    finally:
        taking.cancel()
