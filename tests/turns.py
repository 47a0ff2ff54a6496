"""Waiting in turns of the event loop, for what tells nobody that it has come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

IN_TIME = 10_000


async def until(holds: Callable[[], bool]) -> None:
    """Give others turns until it holds; fail after so many that it never will."""
    for _ in range(IN_TIME):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to that")
