"""What is done now and then for very many things is done in slices: nobody waits for all of them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from time import perf_counter
from typing import TypeVar

SLICE_S = 0.001
"""That such work holds the event loop at a stretch, about, in seconds."""
T = TypeVar("T")


async def sliced(things: Iterable[T]) -> AsyncIterator[T]:
    """Yield a copy of ``things`` one by one, and between two of them, now and then, the event loop a turn.

    So a thing may be gone when it comes. What an iterator makes is taken as it comes: a list of many thousand tuples
    would be made at a stretch, and the collector of garbage look through all of them, again and again.
    """
    began = perf_counter()
    for thing in things if isinstance(things, Iterator) else list(things):
        yield thing
        if perf_counter() - began > SLICE_S:
            await asyncio.sleep(0)
            began = perf_counter()


def batched(things: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """Return ``things`` in parts of ``most`` at most."""
    return (things[at : at + most] for at in range(0, len(things), most))


class PacedTurns:
    """Work that may come in crowds, of which some are done in each turn of the event loop.

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
        waiting, until = self._waiting, perf_counter() + SLICE_S
        try:
            while waiting:
                waiting.popleft()()
                if perf_counter() > until:
                    break
        finally:
            self._under_way = bool(waiting)
            if waiting:
                asyncio.get_running_loop().call_soon(self._do_some)


class FairTurns:
    """Work that is done immediately while there is little of it; of more, each lane has its share of a turn.

    Two hundred requests of one client that come together are a tenth of a second of the event loop. One request of
    another client's, in a lane of its own, is next all the same. A lane is whatever names a client, as its address.
    """

    __slots__ = ("_lanes", "_left_s", "_under_way")

    def __init__(self) -> None:
        self._lanes: OrderedDict[str, deque[Callable[[], None]]] = OrderedDict()
        self._left_s = SLICE_S  # of this turn
        self._under_way = False

    @property
    def are_waited_for(self) -> bool:
        """True if what is added now is done in a later turn."""
        return bool(self._lanes) or self._left_s <= 0

    def add(self, lane: str, work: Callable[[], None]) -> None:
        """Do ``work`` now if this turn has time for it, otherwise behind what its lane has added before."""
        self._begin()
        if self.are_waited_for:
            self._lanes.setdefault(lane, deque()).append(work)
        else:
            self._do(work)

    def add_later(self, lane: str, work: Callable[[], None]) -> None:
        """Do ``work`` in a later turn: it goes on with what was too much for this one."""
        self._begin()
        self._lanes.setdefault(lane, deque()).append(work)

    def _begin(self) -> None:
        if not self._under_way:
            self._under_way = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _do(self, work: Callable[[], None]) -> None:
        began = perf_counter()
        try:
            work()
        finally:
            self._left_s -= perf_counter() - began

    def _next_turn(self) -> None:
        self._left_s = SLICE_S
        self._under_way = False
        if not self._lanes:
            return
        self._begin()
        while self._lanes and self._left_s > 0:
            lane, waiting = self._lanes.popitem(last=False)
            work = waiting.popleft()
            if waiting:
                self._lanes[lane] = waiting  # behind all others
            self._do(work)
