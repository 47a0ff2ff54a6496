"""What was measured, and what it is held against."""

from __future__ import annotations

import statistics
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

_T = TypeVar("_T")


def in_turn(servers: Sequence[_T], number: int) -> Sequence[_T]:
    """Return the servers in the order of a round: who comes first finds memory that the host has to make ready."""
    return servers[::-1] if number % 2 else servers


class Bar(NamedTuple):
    """What a measure must reach: a multiple of what ``against`` reaches, or without it a plain figure."""

    measure: str
    ours: str
    against: str | None
    limit: float
    higher_is_better: bool = False

    def is_met(self, value: float) -> bool:
        return value >= self.limit if self.higher_is_better else value <= self.limit


class Medians(ABC):
    """What tables are made of: a run's samples, or the figures of the newest runs."""

    @abstractmethod
    def median(self, measure: str, server: str) -> float | None:
        """Return a measure's median, None if there is none."""

    def value(self, bar: Bar) -> float | None:
        """Return the figure that ``bar`` is about: a ratio of medians or a median; None if it was not measured."""
        ours = self.median(bar.measure, bar.ours)
        if ours is None or bar.against is None:
            return ours
        theirs = self.median(bar.measure, bar.against)
        return ours / theirs if theirs else None


class Samples(Medians):
    """Figures by measure (its name ends with the unit) and server; each round adds one of each."""

    def __init__(self) -> None:
        self.values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def add(self, measure: str, server: str, value: float) -> None:
        self.values[measure][server].append(value)
        print(f"  {measure:<44} {server:<24} {value:>12,.2f}", flush=True)

    def median(self, measure: str, server: str) -> float | None:
        found = self.values.get(measure, {}).get(server)
        return statistics.median(found) if found else None

    def fill_in(self, earlier: dict[str, dict[str, list[float]]]) -> None:
        """Take over the measures of an earlier run that this one did not make."""
        for measure in earlier.keys() - self.values.keys():
            for server, values in earlier[measure].items():
                self.values[measure][server] = values
