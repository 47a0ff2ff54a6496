"""How late things are, and which of them fail."""

from __future__ import annotations

from random import Random


class Weather:
    """A seed's weather. ``slowest_s`` is the longest way to the store, or back; chances lie between 0 and 1."""

    def __init__(self, seed: int | Random = 0, *, slowest_s: float = 0.002, failing: float = 0.0) -> None:
        self.dice = seed if isinstance(seed, Random) else Random(seed)
        self.slowest_s = slowest_s
        self.failing = failing
        """How often the store fails to do, or to tell of, what it is asked."""

    def delay_s(self) -> float:
        """Return how long something is on its way: often next to nothing, sometimes much longer than usual."""
        return self.slowest_s * self.dice.choice((0.0, 0.01, 0.1, 1.0)) * self.dice.random()

    def fails(self) -> bool:
        """Return whether the next thing goes wrong."""
        return self.failing > 0 and self.dice.random() < self.failing

    def happens(self, chance: float) -> bool:
        """Return whether something happens that does so with this chance."""
        return self.dice.random() < chance
