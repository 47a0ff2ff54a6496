"""Requests with many rows let others have their turn: whoever asks for a million rows waits for them, nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Iterator
from heapq import merge
from time import perf_counter
from typing import Any, TypeVar

from magnetar.base.slices import SLICE_S

MAX_SECONDS = SLICE_S
"""That a request holds the event loop at a stretch, about."""
LONG_SECONDS = 0.001
"""A client whose requests took longer than that takes turns with others like it."""
MANY_ROWS = 1000
FEW_ROWS = 250
"""That are written down in a fraction of a millisecond."""
MOST_AGAIN = 10_000
"""Parts of rows that are told of once more because they were asked for once more."""
_FREED_AT_ONCE = 500
T = TypeVar("T")
H = TypeVar("H", bound=Hashable)


async def paced(rows: Iterable[T]) -> AsyncIterator[T]:
    """Yield the rows one by one, and between two of them, now and then, the event loop a turn.

    So whatever rests on a row may have changed when the next one comes, and ``rows`` must not be what others change.
    """
    began = perf_counter()
    for row in rows:
        yield row
        if perf_counter() - began > MAX_SECONDS:
            await asyncio.sleep(0)
            began = perf_counter()


def drained(rows: list[T]) -> Iterator[T]:
    """Return the rows in order, out of the list: each goes when the next one is asked for, not all of them at the
    end.
    """
    rows.reverse()
    while rows:
        yield rows.pop()


def distinct(rows: Iterable[H]) -> Iterator[H]:
    """Return each row the first time, in order, as it is asked for. ``dict.fromkeys`` of 200,000 names, which nobody
    has hashed before, takes 20 to 50 ms at a stretch.
    """
    seen: set[H] = set()
    for row in rows:
        if row not in seen:
            seen.add(row)
            yield row


async def told_of(names: Iterable[H], tell: Callable[[H], T], parts: Callable[[T], int]) -> list[T]:
    """Return what is told of each name, and the same once more for each time that it is named again, as Kafka does.

    As far as that comes to `MOST_AGAIN` of the ``parts`` that a row has: a request of a MB may name one group of a
    thousand members 200,000 times.
    """
    known: dict[H, T] = {}
    told: list[T] = []
    left = MOST_AGAIN
    async for name in paced(names):
        if name in known:
            row = known[name]
            left -= 1 + parts(row)
            if left < 0:
                continue
        else:
            row = known[name] = tell(name)
        told.append(row)
    return told


async def firsts(rows: Iterable[T], key: Callable[[T], H]) -> tuple[dict[H, T], set[H]]:
    """Return the first row of each key, in order, and the keys of which there are more."""
    found: dict[H, T] = {}
    again: set[H] = set()
    async for row in paced(rows):
        each = key(row)
        if found.setdefault(each, row) is not row:
            again.add(each)
    return found, again


async def in_order(names: Iterable[str]) -> Iterator[str]:
    """Return what `sorted` does. Nothing else is done meanwhile, by no thread, when that has 200,000 names."""
    runs: list[list[str]] = [[]]
    async for name in paced(names):
        if len(runs[-1]) == MANY_ROWS:
            runs[-1].sort()
            runs.append([])
        runs[-1].append(name)
    runs[-1].sort()
    return merge(*runs)


def let_go(message: Any) -> None:
    """Take long lists out of a message that nobody needs any more, some rows at a time; for a thread.

    To free 250,000 rows at once takes some tens of milliseconds in which the interpreter does nothing else. What others
    have, too, must be a tuple.
    """
    for rows in _lists(message):
        if len(rows) < MANY_ROWS:
            for row in rows:
                for inner in _lists(row):
                    if len(inner) >= MANY_ROWS:
                        _empty(inner)
        else:
            _empty(rows)


def is_long(message: Any) -> bool:
    """Whether a message has more than `FEW_ROWS` rows, those within rows among them; others are not looked at."""
    left, within = FEW_ROWS, [message]
    while within:
        message = within.pop()
        for name in getattr(message, "__slots__", ()):
            rows = getattr(message, name)
            if isinstance(rows, list | tuple):
                left -= len(rows)
                if left < 0:
                    return True
                within += rows
    return False


def _lists(message: Any) -> list[list[Any]]:
    found = (getattr(message, name) for name in getattr(message, "__slots__", ()))
    return [each for each in found if type(each) is list]


def _empty(rows: list[Any]) -> None:
    while rows:
        del rows[-_FREED_AT_ONCE:]


class SharedTurn:
    """What all who take long may take of one turn of the event loop together, so that sockets are looked at again.

    Ten clients whose answers take 15 ms each would otherwise be one turn of 150 ms, however paced each of them is. Who
    takes little asks for no turn, and does not wait behind them.
    """

    __slots__ = ("_is_over_at", "_under_way")

    def __init__(self) -> None:
        self._under_way = False
        self._is_over_at = 0.0

    @property
    def is_over(self) -> bool:
        """Whether others have taken enough of this turn; who is told no takes some of it."""
        if self._under_way:
            return perf_counter() > self._is_over_at
        self._under_way = True
        self._is_over_at = perf_counter() + MAX_SECONDS / 2
        asyncio.get_running_loop().call_soon(self._end)
        return False

    def _end(self) -> None:
        self._under_way = False

    async def wait(self) -> None:
        """Wait for a turn of which others have not taken enough."""
        while self.is_over:  # noqa: ASYNC110 - each of those who wait takes some of the next turn
            await asyncio.sleep(0)
