"""What was sent, acknowledged and received, checked while it comes; and for how long nothing came."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field


class Pulse:
    """The longest silence of one stream of acknowledgements, or of records received, since it was asked for last."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self._last = time.monotonic()
        self._longest = 0.0

    def beat(self) -> None:
        now = time.monotonic()
        self._longest = max(self._longest, now - self._last)
        self._last = now
        self.count += 1

    def begin(self) -> None:
        """Forget silences that are over."""
        self._longest = 0.0

    def longest(self) -> float:
        """Return seconds: the longest silence, one that goes on included."""
        return max(self._longest, time.monotonic() - self._last)


@dataclass
class Book:
    """What all flows tell of. A violation is a sentence about what may not be."""

    violations: list[str] = field(default_factory=list)
    told: Counter[str] = field(default_factory=Counter)
    """What clients' libraries said, by flow."""
    produced: list[Pulse] = field(default_factory=list)
    consumed: list[Pulse] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    last_fault: float | None = None
    """When the last fault began."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def violate(self, what: str) -> None:
        with self._lock:
            if len(self.violations) < 1000:
                self.violations.append(f"{time.monotonic() - self.began:.1f} s: {what}")
                if len(self.violations) <= 20:  # whoever watches can look before all is over
                    print("VIOLATION", self.violations[-1], flush=True)

    def tell(self, flow: str, what: object) -> None:
        with self._lock:
            self.told[f"{flow}: {what}"[:200]] += 1

    def producing(self, name: str) -> Pulse:
        self.produced.append(Pulse(name))
        return self.produced[-1]

    def consuming(self, name: str) -> Pulse:
        self.consumed.append(Pulse(name))
        return self.consumed[-1]

    @property
    def pulses(self) -> list[Pulse]:
        return self.produced + self.consumed


class Line:
    """One partition's numbers, sent in order by one producer, each once: what readers may see, and when.

    Readers may go back and see a record again, at the same place. What is new is the next number.
    """

    def __init__(self, name: str, book: Book, *, late: bool = False) -> None:
        """``late`` is whether the producer may be told of a record after one behind it."""
        self.name = name
        self._late = late
        self.acknowledged: dict[int, object] = {}
        """By number, the place that the producer was told; None if it was told none."""
        self._last: tuple[int, object] | None = None
        """The highest number with a place, and that."""
        self._book = book
        self._lock = threading.Lock()
        self._readers: dict[str, list[object]] = {}

    def acknowledge(self, number: int, place: object) -> None:
        """Note what a producer was told: of each once, at places that are in order, and in order unless ``late``.

        That librdkafka sends a batch again, whose answer was lost, and is told where that is, takes longer than the
        answer to the next. Without a place it concluded it from one behind.
        """
        if number in self.acknowledged:
            self._book.violate(f"{self.name}: number {number} is acknowledged twice")
        elif number != len(self.acknowledged) and not self._late:
            self._book.violate(
                f"{self.name}: number {number} is acknowledged after {len(self.acknowledged) - 1}"
            )
        self.acknowledged[number] = place
        if place is None:
            return
        if self._last is not None:
            last, its_place = self._last
            if (number > last) != (place > its_place):  # type: ignore[operator]
                self._book.violate(f"{self.name}: number {number} is at {place}, and {last} at {its_place}")
        if self._last is None or number > self._last[0]:
            self._last = number, place

    def receive(self, reader: str, number: int, place: object) -> bool:
        """Note what a reader got, and whether it is new to all of that name."""
        with self._lock:
            seen = self._readers.setdefault(reader, [])
            if number == len(seen):
                seen.append(place)
                return True
            if number < len(seen):
                if seen[number] != place:
                    self._book.violate(
                        f"{self.name}: {reader} finds {number} at {seen[number]} and at {place}: it is there twice"
                    )
                return False
            self._book.violate(
                f"{self.name}: {reader} gets {number} (at {place}) after {len(seen) - 1}: a gap"
            )
            seen.extend([None] * (number - len(seen)))
            seen.append(place)
            return True

    def seen(self, reader: str) -> int:
        with self._lock:
            return len(self._readers.get(reader, ()))
