"""What consumers of one of Pulsar's subscriptions acknowledged, and what comes again of it.

An owner writes a cursor once a second, and a client groups acknowledgements for a tenth of one. So what was
acknowledged a little before a fault, or during it, may come again; what was acknowledged before that may not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from benchmarks.faults.book import Book

CERTAIN_S = 2.0
"""After which an acknowledgement is stored: a second, the grouping, and a commit on a busy machine."""


class Acknowledgements:
    """Those of one subscription."""

    def __init__(self, name: str, book: Book, clock: Callable[[], float] = time.monotonic) -> None:
        self.came_again = 0
        """Deliveries of what was acknowledged."""
        self._name, self._book, self._clock = name, book, clock
        self._acknowledged: dict[int, float] = {}
        self._lock = threading.Lock()

    def acknowledge(self, number: int) -> None:
        """Note that a consumer has acknowledged a message, the first time."""
        with self._lock:
            self._acknowledged.setdefault(number, self._clock())

    def deliver(self, number: int) -> None:
        """Note a delivery."""
        with self._lock:
            at = self._acknowledged.get(number)
            if at is None:
                return
            self.came_again += 1
            fault = self._book.last_fault
            if fault is not None and at < fault - CERTAIN_S:
                self._book.violate(
                    f"{self._name}: {number} comes again, acknowledged {fault - at:.2f} s before the last fault"
                )
