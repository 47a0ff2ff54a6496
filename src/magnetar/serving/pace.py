"""Requests with many rows let others have their turn: a client that asks for a million rows is the only one to wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Iterator
from heapq import merge
from time import perf_counter
from typing import Any, TypeVar

from magnetar.base.slices import SLICE_S

MAX_SECONDS = SLICE_S
"""How long a request may hold the event loop at a stretch, about."""
LONG_SECONDS = 0.001
"""A client whose requests took longer than that takes turns with others like it."""
MANY_ROWS = 1000
FEW_ROWS = 250
"""So many rows are encoded in a fraction of a millisecond."""
MOST_AGAIN = 10_000
"""How many parts of rows are returned once more for names that a request repeats."""
_FREED_AT_ONCE = 500
T = TypeVar("T")
H = TypeVar("H", bound=Hashable)


async def paced(rows: Iterable[T]) -> AsyncIterator[T]:
    """Yield the rows one by one; between two of them, now and then, the event loop gets a turn.

    So anything may have changed when the next row comes, and ``rows`` must not be something that others change.
    """
    began = perf_counter()
    for row in rows:
        yield row
        if perf_counter() - began > MAX_SECONDS:
            await asyncio.sleep(0)
            began = perf_counter()


def drained(rows: list[T]) -> Iterator[T]:
    """Yield the rows in order and empty the list: each row is freed when the next one is taken, not all of them at
    the end.
    """
    rows.reverse()
    while rows:
        yield rows.pop()


def distinct(rows: Iterable[H]) -> Iterator[H]:
    """Yield each row the first time it occurs, in order. ``dict.fromkeys`` of 200,000 names whose hashes are not
    cached yet takes 20 to 50 ms at a stretch.
    """
    seen: set[H] = set()
    for row in rows:
        if row not in seen:
            seen.add(row)
            yield row


async def told_of(names: Iterable[H], tell: Callable[[H], T], parts: Callable[[T], int]) -> list[T]:
    """Return the row of each name, and the same row again for each repetition of the name, as Kafka does.

    Repetitions end at `MOST_AGAIN` of the ``parts`` that rows have: a request of a MB may name one group of a thousand
    members 200,000 times.
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
    """Return the first row of each key, in order, and the keys that have more rows."""
    found: dict[H, T] = {}
    again: set[H] = set()
    async for row in paced(rows):
        each = key(row)
        if found.setdefault(each, row) is not row:
            again.add(each)
    return found, again


async def in_order(names: Iterable[str]) -> Iterator[str]:
    """Return the names in order, sorted in turns: `sorted` of 200,000 names stops all threads until it is done."""
    runs: list[list[str]] = [[]]
    async for name in paced(names):
        if len(runs[-1]) == MANY_ROWS:
            runs[-1].sort()
            runs.append([])
        runs[-1].append(name)
    runs[-1].sort()
    return merge(*runs)


def let_go(message: Any) -> None:
    """Empty the long lists of a message that is not needed any more, some rows at a time; for a thread.

    To free 250,000 rows in one go takes some tens of milliseconds in which the interpreter does nothing else. A
    sequence that is shared with others must be a tuple.
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
    """True if a message has more than `FEW_ROWS` rows, those within rows among them; others are not looked at."""
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
    """Limits how long all slow clients together may take in one turn of the event loop, so that sockets are polled.

    Ten clients whose answers take 15 ms each would otherwise be one turn of 150 ms, however paced each of them is. A
    client that takes little needs no turn, and does not wait behind them.
    """

    __slots__ = ("_is_over_at", "_under_way")

    def __init__(self) -> None:
        self._under_way = False
        self._is_over_at = 0.0

    @property
    def is_over(self) -> bool:
        """True if others have taken enough of this turn; a caller that gets False takes some of it."""
        if self._under_way:
            return perf_counter() > self._is_over_at
        self._under_way = True
        self._is_over_at = perf_counter() + MAX_SECONDS / 2
        asyncio.get_running_loop().call_soon(self._end)
        return False

    def _end(self) -> None:
        self._under_way = False

    async def wait(self) -> None:
        """Wait for a turn that others have not used up."""
        while self.is_over:  # noqa: ASYNC110 - each of those who wait takes some of the next turn
            await asyncio.sleep(0)
