"""That the log tells of what does not come to an end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

FIRST_S = 30.0


@contextmanager
def told_if_long(log: logging.Logger, what: str, first_s: float = FIRST_S) -> Iterator[None]:
    """Warn that ``what`` is still under way after ``first_s``, and after twice as long each time, and where it waits.

    For work of one task that ends within seconds unless somebody waits for somebody who waits for it.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    began = loop.time()
    due: asyncio.TimerHandle

    def tell(after_s: float) -> None:
        nonlocal due
        log.warning("%s, for %.0f s now: it waits in %s", what, loop.time() - began, _place(task))
        due = loop.call_later(2 * after_s, tell, 2 * after_s)

    due = loop.call_later(first_s, tell, first_s)
    try:
        yield
    finally:
        due.cancel()


def _place(task: asyncio.Task[Any] | None) -> str:
    """Return the functions that a task is in, the innermost last; what a future's other tasks do is not seen."""
    names = []
    at: Any = None if task is None else task.get_coro()
    while (code := getattr(at, "cr_code", None) or getattr(at, "ag_code", None)) is not None:
        names.append(code.co_qualname)
        at = getattr(at, "cr_await", None) or getattr(at, "ag_await", None)
    return " > ".join(names)
