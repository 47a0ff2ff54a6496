"""Slow work for clients that are not known yet, in turns: one at a time for each user, then by address.

So a client that guesses one user's password delays that user's logins from its own address only, and no others; and
never more than two threads are busy with it, whatever is requested.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TypeVar

THREADS = 2
MAX_WAITING = 8
"""The most waiting logins of one address for one user."""
MAX_ADDRESSES = 1000
"""The most addresses that wait for one user."""

T = TypeVar("T")


class TooManyWait(Exception):
    """Too many logins wait already: one more would not be answered in time."""


class PasswordTurns:
    """Schedules one turn per user, and in it the next address that waits for that user."""

    def __init__(self, threads: Executor | None = None) -> None:
        self._threads = threads or ThreadPoolExecutor(THREADS, "passwords")
        self._waiting: dict[str, dict[str, deque[asyncio.Future[None]]]] = {}
        """By user, by address. Dictionaries keep their order: the next one comes first."""
        self._at_work: set[str] = set()

    async def work(self, user: str, address: str, task: Callable[[], T]) -> T:
        """Do a task in a thread when it is its turn; raise `TooManyWait`."""
        await self._turn(user, address)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, task)
        finally:
            self._at_work.discard(user)
            self._next()

    async def _turn(self, user: str, address: str) -> None:
        addresses = self._waiting.setdefault(user, {})
        queue = addresses.setdefault(address, deque())
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if len(queue) >= MAX_WAITING or len(addresses) > MAX_ADDRESSES:
            self._tidy(user, address)
            raise TooManyWait
        queue.append(turn)
        self._next()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was given its turn, and does not take it
                self._at_work.discard(user)
                self._next()
            elif turn in queue:
                queue.remove(turn)
                self._tidy(user, address)
            raise

    def _next(self) -> None:
        """Begin the logins whose turn it is."""
        for user in list(self._waiting):
            if len(self._at_work) >= THREADS:
                return
            if user in self._at_work:
                continue
            addresses = self._waiting.pop(user)
            address, queue = next(iter(addresses.items()))
            del addresses[address]
            turn = queue.popleft()
            if queue:
                addresses[address] = queue  # after the others
            if addresses:
                self._waiting[user] = addresses
            if turn.cancelled():
                self._next()
                return
            self._at_work.add(user)
            turn.set_result(None)

    def _tidy(self, user: str, address: str) -> None:
        addresses = self._waiting.get(user, {})
        if address in addresses and not addresses[address]:
            del addresses[address]
        if not addresses:
            self._waiting.pop(user, None)
