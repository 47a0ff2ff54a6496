"""What is not as it should be though the broker serves: a disk that fills up, a slow journal, a clock that jumped.

Each is logged when it begins, once a minute while it lasts, and when it is over. Meanwhile ``/health``, ``/ready`` and
``/metrics`` show it. Health stays 200: a restart would help none of them, and readers are served.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from magnetar.auth import Access
from magnetar.figures.figures import Family, FigureTable, labelled

_AGAIN_AFTER_S = 60.0
_DEGRADED = Family(
    "magnetar_degraded", "gauge", "1 while this is not as it should be; /health and the log say more."
)
_log = logging.getLogger("magnetar.conditions")


class Condition(StrEnum):
    """Kinds of trouble."""

    DISK = "disk"
    JOURNAL = "journal"
    CLOCK = "clock"
    DESCRIPTORS = "descriptors"
    MEMORY = "memory"
    CERTIFICATE = "certificate"


class Conditions:
    """Those of one broker that last now."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lasting: dict[Condition, str] = {}
        self._told_at: dict[Condition, float] = {}

    def note(self, what: Condition, text: str, *, more: str = "") -> None:
        """It is so, or not where ``text`` is empty; ``more`` is for the log alone."""
        if not text:
            if self._lasting.pop(what, None) is not None:
                del self._told_at[what]
                _log.warning("%s: as it should be again", what)
            return
        self._lasting[what] = text
        if self.is_due(what):
            self._told_at[what] = self._clock()
            _log.warning("%s: %s%s", what, text, f"; {more}" if more else "")

    def is_due(self, what: Condition) -> bool:
        """Return whether `note` would log it now."""
        told_at = self._told_at.get(what)
        return told_at is None or self._clock() - told_at >= _AGAIN_AFTER_S

    def texts(self) -> list[str]:
        """Return those that last, each as one sentence."""
        return [f"{what}: {text}" for what, text in self._lasting.items()]

    def figures(self, access: Access | None) -> Iterator[FigureTable | None]:
        """Yield a line for each condition; see `magnetar.figures.figures.Source`."""
        rows = [(labelled(reason=what), int(what in self._lasting)) for what in Condition]
        yield FigureTable((_DEGRADED,), rows)


@dataclass(frozen=True, slots=True)
class HealthParts:
    """Reports of a broker on its own state."""

    conditions: Conditions
    readiness: list[Callable[[], Sequence[str]]]
    """Each returns, in words, what a handler still waits for."""
