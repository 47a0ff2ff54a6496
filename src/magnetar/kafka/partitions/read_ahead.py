"""Reading on behind a consumer that catches up, so that its next fetch finds the bytes ready.

While the client takes one answer apart, the broker would have nothing to do for it; so the next piece is read then.
All of it together stays below a bound, and what nobody fetches soon is let go.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from magnetar.kafka.partitions.formats import Batch
from magnetar.serving.eager import Eager

Batches: TypeAlias = tuple[list[Batch], int]
Read: TypeAlias = Callable[[], Coroutine[Any, Any, Batches]]
MAX_BYTES = 16 << 20
MIN_BYTES = 256 << 10  # smaller reads are quick enough without
SOON_SECONDS = 0.0002  # after the answer before has been written
KEPT_SECONDS = 2.0


class _Key(NamedTuple):
    """Which read a piece serves."""

    owner: object
    offset: int
    max_bytes: int


class ReadAhead:
    """What was read before it was asked for, by partition and offset; each piece serves one fetch."""

    def __init__(self) -> None:
        self._ready: OrderedDict[_Key, tuple[Batches, float]] = OrderedDict()  # and until when, in that order
        self._bytes = 0
        self._planned: list[tuple[_Key, Read]] = []
        self._letting_go = False

    def take(self, owner: object, offset: int, max_bytes: int) -> Batches | None:
        """Return what is ready for this read, and forget it."""
        found = self._ready.pop(_Key(owner, offset, max_bytes), None)
        if found is None:
            return None
        self._bytes -= found[0][1]
        return found[0]

    def plan(self, owner: object, offset: int, max_bytes: int, read: Read) -> None:
        """Read from ``offset`` soon."""
        self._planned.append((_Key(owner, offset, max_bytes), read))
        if len(self._planned) == 1:
            asyncio.get_running_loop().call_later(SOON_SECONDS, self._begin)

    def _begin(self) -> None:
        planned, self._planned = self._planned, []
        for key, read in planned:
            Eager(read(), partial(self._keep, key))

    def _keep(self, key: _Key, found: Batches, error: BaseException | None) -> None:
        # A read that came to the end of the log would soon be out of date.
        if error is not None or found[1] < key.max_bytes // 2 or key in self._ready:
            return
        loop = asyncio.get_running_loop()
        self._ready[key] = found, loop.time() + KEPT_SECONDS
        self._bytes += found[1]
        while self._bytes > MAX_BYTES:
            self._drop_oldest()
        if not self._letting_go:
            self._letting_go = True
            loop.call_later(KEPT_SECONDS, self._let_go)

    def _let_go(self) -> None:
        """Drop what nobody fetched in time; one timer for all of it, since there may be thousands a second."""
        loop = asyncio.get_running_loop()
        while self._ready and next(iter(self._ready.values()))[1] <= loop.time():
            self._drop_oldest()
        self._letting_go = bool(self._ready)
        if self._letting_go:
            loop.call_at(next(iter(self._ready.values()))[1], self._let_go)

    def _drop_oldest(self) -> None:
        self._bytes -= self._ready.popitem(last=False)[1][0][1]
