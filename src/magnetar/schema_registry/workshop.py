"""Where schemas are understood: threads of their own, beside the event loop and the loop's other helpers.

A registration may take seconds where a schema is large or asks for much, and protoc is a process to wait for. Here that
keeps nobody waiting but those who ask for the same subject: a few threads, a `Work` for each request, and a lock for
each name. A request whose client is gone ends at its next step, and all end when the broker does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from magnetar.schema_registry.work import TooComplex, Work

THREADS = 4
T = TypeVar("T")


class Workshop:
    """The threads of one broker that understand schemas."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._is_closed = False

    async def do(self, work: Callable[[Work], T]) -> T:
        """Return what a function gives that is called with its `Work` in a thread; raise `TooComplex`."""
        if self._is_closed:
            raise TooComplex("the broker ends before it is understood")
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, "schemas")
        is_gone = False

        def run() -> T:
            return work(Work(is_over=lambda: is_gone or self._is_closed, nap=True))

        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, run)
        except asyncio.CancelledError:
            is_gone = True
            raise

    def close(self) -> None:
        """End what is under way at its next step; wait for nothing."""
        self._is_closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


class Locks:
    """A lock for each name, which is there as long as somebody holds it or waits for it."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def of(self, *name: Hashable) -> AsyncIterator[None]:
        """Hold a name's lock."""
        lock, users = self._locks.get(name, (None, 0))
        lock = lock or asyncio.Lock()
        self._locks[name] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            users = self._locks[name][1] - 1
            if users:
                self._locks[name] = lock, users
            else:
                del self._locks[name]

    def __len__(self) -> int:
        return len(self._locks)
