"""What checks say of outcomes: two things are the same, or will be so in a while. Clients' programs have `harness`."""

from __future__ import annotations

import time
from collections.abc import Callable


def same(got: object, expected: object, what: str) -> None:
    """Raise with both values, shortened, when they differ."""
    if got != expected:
        raise AssertionError(f"{what}: {str(got)[:600]}, expected {str(expected)[:600]}")


def until(what: str, ready: Callable[[], object], seconds: float = 30, *, forgiving: bool = False) -> None:
    """Ask again until it is so; what ``ready`` raises ends the wait, unless it is ``forgiving``."""
    end = time.monotonic() + seconds
    last: object = None
    while time.monotonic() < end:
        try:
            last = ready()
            if last:
                return
        except Exception as error:
            if not forgiving:
                raise
            last = error
        time.sleep(0.3)
    raise TimeoutError(f"waited {seconds:.0f} s for {what}; last: {last!r}")
