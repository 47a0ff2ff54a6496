"""Work that may hang (a broken disk, a name server), given so many seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def bounded(seconds: float, work: Callable[[], T]) -> T:
    """Return what ``work`` returns, or raise what it raises; ``TimeoutError`` after so long, and it goes on alone."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if results:
        return results[0]
    if errors:
        raise errors[0]
    raise TimeoutError(f"no answer after {seconds:g} s")
