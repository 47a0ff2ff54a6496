"""To wait for what is going to be so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PATIENCE_S = 120.0


def until(is_so: Callable[[], bool], pause_s: float = 0.1) -> None:
    """Return once it is so; fail if that takes longer than a test has patience."""
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(pause_s)


async def until_so(is_so: Callable[[], bool], pause_s: float = 0.01) -> None:
    """`until` for tests in the loop that it has to come about on."""
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, "it did not come about"
        await asyncio.sleep(pause_s)
