"""Reading on behind a consumer that catches up, so that its next fetch finds the bytes ready.

While the client takes one answer apart, the broker would have nothing to do for it; so the next piece is read then.
All of it together stays below a bound, and what nobody fetches soon is let go.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from magnetar.kafka.eager import Eager
from magnetar.kafka.partitions.formats import Batch

Batches: TypeAlias = tuple[list[Batch], int]
MOST_BYTES = 16 << 20
LEAST_BYTES = 256 << 10  # smaller reads are quick enough without
SOON_SECONDS = 0.0002  # after the answer before has been written
KEPT_SECONDS = 2.0


class ReadAhead:
    """What was read before it was asked for, by partition and offset; each piece serves one fetch."""

    def __init__(self) -> None:
        self._ready: OrderedDict[tuple[object, int, int], Batches] = OrderedDict()
        self._bytes = 0

    def take(self, owner: object, offset: int, max_bytes: int) -> Batches | None:
        """Give what is ready for this read, and forget it."""
        found = self._ready.pop((owner, offset, max_bytes), None)
        if found is not None:
            self._bytes -= found[1]
        return found

    def plan(
        self, owner: object, offset: int, max_bytes: int, read: Callable[[], Coroutine[Any, Any, Batches]]
    ) -> None:
        """Read from ``offset`` soon."""
        key = (owner, offset, max_bytes)
        loop = asyncio.get_running_loop()

        def keep(found: Batches, error: BaseException | None) -> None:
            # A read that came to the end of the log would soon be out of date.
            if error is None and found[1] >= max_bytes // 2 and key not in self._ready:
                self._keep(key, found)
                loop.call_later(KEPT_SECONDS, self.take, *key)

        loop.call_later(SOON_SECONDS, lambda: Eager(read(), keep))

    def _keep(self, key: tuple[object, int, int], found: Batches) -> None:
        self._ready[key] = found
        self._bytes += found[1]
        while self._bytes > MOST_BYTES:
            self._bytes -= self._ready.popitem(last=False)[1][1]
