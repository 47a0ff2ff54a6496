"""How much work a schema may ask for: steps are counted, and too many end it.

What schemas mean is found out by walks over them, which a client can make long with little text. Each walk counts its
steps on the one `Work` of its request, so no request has more than its share, whatever the walk is.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from typing import Any

MAX_STEPS = 2_000_000
"""For one request. A field compared with one of an older version is a step or two."""
MAX_S = 10.0
MAX_DEPTH = 200
"""How deep brackets may lie in each other."""
_BETWEEN_LOOKS = 256
_NAP_S = 20e-6


class TooComplex(ValueError):
    """A schema asks for more work than one may."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the schema is too complex: {why}")


class Work:
    """The steps of one request. ``step`` raises `TooComplex` once there are too many, it took too long, or all is over.

    In a thread beside the event loop (``nap``) the loop gets its turn every so often: it would otherwise wait for the
    interpreter's switch, five milliseconds, each time that it wakes.
    """

    __slots__ = ("_is_over", "_look_at", "_most", "_nap", "_until", "steps")

    def __init__(
        self, most: int = MAX_STEPS, *, is_over: Callable[[], bool] = lambda: False, nap: bool = False
    ) -> None:
        self.steps = 0
        self._most = most
        self._until = time.monotonic() + MAX_S
        self._is_over = is_over
        self._nap = nap
        self._look_at = min(_BETWEEN_LOOKS, most + 1)

    def step(self, count: int = 1) -> None:
        """Count steps; raise `TooComplex`."""
        self.steps += count
        if self.steps >= self._look_at:
            self._look()

    def _look(self) -> None:
        if self.steps > self._most:
            raise TooComplex(f"it takes more than {self._most} steps")
        self.check()
        self._look_at = min(self.steps + _BETWEEN_LOOKS, self._most + 1)
        if self._nap:
            time.sleep(_NAP_S)

    def check(self) -> None:
        """Raise `TooComplex` if time is up; for who waits for something that takes no steps here."""
        if self._is_over():
            raise TooComplex("the broker ends before it is understood")
        if time.monotonic() > self._until:
            raise TooComplex(f"it takes more than {MAX_S:.0f} seconds")


def read_json(text: str | bytes, work: Work) -> Any:
    """Return what a text holds; raise ``ValueError`` for no JSON, `TooComplex` for what is nested too deeply."""
    try:
        content = json.loads(text)
    except RecursionError:
        raise TooComplex(f"it is nested more than {MAX_DEPTH} deep") from None
    level: list[Any] = [content]
    for _ in range(MAX_DEPTH + 1):
        work.step(len(level))
        level = [each for node in level for each in _inside(node) if isinstance(each, dict | list)]
        if not level:
            return content
    raise TooComplex(f"it is nested more than {MAX_DEPTH} deep")


def _inside(node: Any) -> Iterable[Any]:
    if isinstance(node, dict):
        return node.values()
    return node if isinstance(node, list) else ()
