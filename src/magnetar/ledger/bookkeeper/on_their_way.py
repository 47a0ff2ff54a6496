"""Entries that were sent to bookies and not answered yet, of all writers of a client, counted in bytes.

Java holds each entry outside its heap until its bookies have it or are given up. If they hang, new entries wait for
their turn here, and their producers are not read meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque


class OnTheirWay:
    """``budget`` is in bytes; the last entry that is sent may go beyond it."""

    def __init__(self, budget: int) -> None:
        self.size = 0
        self._budget = budget
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def is_full(self) -> bool:
        return self.size >= self._budget

    @property
    def is_free(self) -> bool:
        """True if a sender that has not waited may send an entry now."""
        return not self.is_full and not self._waiting

    def sent(self, size: int) -> None:
        """Count an entry; `answered` follows in any case."""
        self.size += size

    def answered(self, size: int) -> None:
        """Note that an entry is stored, or has failed."""
        self.size -= size
        self._wake()

    async def turn(self) -> None:
        """Wait until an entry may be sent, in the order of arrival. The caller need not use its turn."""
        self._waiting.append(asyncio.get_running_loop().create_future())
        try:
            await self._waiting[-1]
        finally:
            asyncio.get_running_loop().call_soon(self._wake)  # the next one's turn, if there is still room

    def _wake(self) -> None:
        while self._waiting and not self.is_full:
            first = self._waiting.popleft()
            if not first.done():
                first.set_result(None)
                return
