"""Work that many may ask for at once and that is done once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Once(Generic[K, V]):
    """Does what is asked for by a key once, for all who ask while it is under way; none of them can cancel it."""

    def __init__(self) -> None:
        self._under_way: dict[K, asyncio.Task[V]] = {}

    async def do(self, key: K, work: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """Return what ``work`` returns, or raise what it raises."""
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.get_running_loop().create_task(work())
            task.add_done_callback(lambda done: self._ended(key, done))
        waiting = asyncio.shield(task)  # whoever asked first may go away: others wait, too
        waiting.add_done_callback(_looked_at)  # and nobody looks at what one who has gone would have got
        return await waiting

    def _ended(self, key: K, task: asyncio.Task[V]) -> None:
        del self._under_way[key]
        _looked_at(task)


def _looked_at(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()
