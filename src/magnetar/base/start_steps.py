"""What a start waits for, and how long each step of it took."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_SILENT_S = 1.0
_TOLD_S = 0.1
_steps: ContextVar[list[tuple[str, float]] | None] = ContextVar("start_steps", default=None)


def begin() -> None:
    """Note the steps that this task takes from now on."""
    _steps.set([])


@contextmanager
def step(log: logging.Logger, what: str) -> Iterator[None]:
    """Note how long something took; the log tells that it is waited for once that took a second."""
    began = time.monotonic()
    due = asyncio.get_running_loop().call_later(_SILENT_S, log.info, "the start waits for %s", what)
    try:
        yield
    finally:
        due.cancel()
        noted = _steps.get()
        if noted is not None:
            noted.append((what, time.monotonic() - began))


def told(whole_s: float) -> str:
    """Return one line's worth of where a start's ``whole_s`` seconds went, the longest step first."""
    noted = sorted(_steps.get() or (), key=lambda each: -each[1])
    rest = whole_s - sum(took for _, took in noted)
    parts = [f"{what} {took:.1f} s" for what, took in noted if took >= _TOLD_S]
    return ", ".join([*parts, f"all else {rest:.1f} s"]) if parts else ""
