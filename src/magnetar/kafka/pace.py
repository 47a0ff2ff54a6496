"""Requests with many rows let others have their turn: whoever asks for a million rows waits for them, nobody else."""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TypeVar

MOST_SECONDS = 0.005
"""That a request holds the event loop at a stretch, about."""
T = TypeVar("T")
_without_collector = 0


async def paced(rows: Iterable[T]) -> AsyncIterator[T]:
    """Give the rows one by one, and between two of them, now and then, the event loop a turn.

    So whatever rests on a row may have changed when the next one comes, and ``rows`` must not be what others change.
    """
    began = perf_counter()
    for row in rows:
        yield row
        if perf_counter() - began > MOST_SECONDS:
            await asyncio.sleep(0)
            began = perf_counter()


class Turns:
    """Work that may come in crowds, of which some milliseconds are done in each turn of the event loop.

    A thousand clients that leave at once are a thousand events of one turn; nobody else would be heard until all are
    taken leave of.
    """

    __slots__ = ("_under_way", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._under_way = False

    def add(self, work: Callable[[], None]) -> None:
        """Have ``work`` done soon, behind all that was added before."""
        self._waiting.append(work)
        if not self._under_way:
            self._under_way = True
            asyncio.get_running_loop().call_soon(self._do_some)

    def _do_some(self) -> None:
        waiting, until = self._waiting, perf_counter() + MOST_SECONDS
        try:
            while waiting:
                waiting.popleft()()
                if perf_counter() > until:
                    break
        finally:
            self._under_way = bool(waiting)
            if waiting:
                asyncio.get_running_loop().call_soon(self._do_some)


@contextmanager
def many_rows() -> Iterator[None]:
    """Have no garbage collected meanwhile. Rows are no garbage, they are many, and to look through all of them, again
    and again while they become more, would hold up everybody for longer than all that is done with them.
    """
    global _without_collector
    _without_collector += 1
    gc.disable()
    try:
        yield
    finally:
        _without_collector -= 1
        if not _without_collector:
            gc.enable()
