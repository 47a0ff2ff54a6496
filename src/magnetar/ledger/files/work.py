"""Work of an engine outside the event loop's requests: blocking calls in threads, and background tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

from magnetar.ledger.errors import LedgerError
from magnetar.metadata.errors import MetadataError

T = TypeVar("T")
_log = logging.getLogger("magnetar.ledger")


class EngineWork:
    """The work of one engine."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self._tasks: set[asyncio.Task[None]] = set()

    def in_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run a blocking call away from the loop."""
        return asyncio.get_running_loop().run_in_executor(self.executor, call)

    def background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work`` in the background; `ended` waits for it."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            known = isinstance(error, LedgerError | MetadataError)
            _log.error("work in the background failed: %s", error, exc_info=None if known else error)

    async def ended(self) -> None:
        """Return when nothing runs in the background any more."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))
