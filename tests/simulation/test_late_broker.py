"""A whole broker in virtual time on the late engine: everything late, much of it failing, its logs taken by a rival.

The scenario is that of `test_broker`; only what the broker lives on is another.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from magnetar.ledger.errors import LedgerError
from magnetar.ledger.port import LedgerEngine, LedgerPolicy
from magnetar.metadata import MemoryStore, MetadataStore
from tests.engines.late import LateEngine, LateStore, Weather
from tests.simulation.loop import VirtualLoop
from tests.simulation.test_broker import (
    FIRST,
    PARTITIONS,
    SEEDS,
    TOPIC,
    Machine,
    _no_clock_but_the_simulations,
    one_world,
    quiet,
)

__all__ = ["_no_clock_but_the_simulations", "quiet"]
LOGS = [f"public/default/persistent/{TOPIC}-partition-{index}" for index in range(PARTITIONS)]


class LateMachine(Machine):
    """A late store, which also fails and is full at times."""

    def __init__(self, dice: Random) -> None:
        super().__init__(dice)
        self.weather = Weather(
            dice, slowest_s=dice.choice((0.001, 0.02, 0.2)), failing=dice.choice((0.0, 0.02, 0.1))
        )
        self.store, self.metadata = LateStore(self.weather), MemoryStore()

    def begin(self) -> MetadataStore:
        self.lasts_s = self.dice.expovariate(1 / 2)
        return self.metadata

    def engine(self, loop: VirtualLoop, clock: Callable[[], int]) -> LedgerEngine:
        self._clock = clock
        return LateEngine(self.store, self.metadata, clock=clock)

    def end(self) -> None:
        self.store.is_full = False

    async def mischief(self) -> None:
        self.store.is_full = self.dice.random() < 0.1

    def calm(self) -> None:
        self.store.is_full, self.weather.failing = False, 0.0


class RivalMachine(LateMachine):
    """Another engine on the same store takes logs over, and does not always give them back in order."""

    async def mischief(self) -> None:
        await super().mischief()
        if self.dice.random() < 0.5:
            rival = LateEngine(self.store, self.metadata, clock=self._clock)
            name = self.dice.choice(LOGS)
            try:
                await rival.open(name, LedgerPolicy())
                if self.dice.random() < 0.5:
                    await rival.release(name)
            except LedgerError:
                pass  # it was not quick enough, or the store is what it is


@pytest.mark.parametrize("machine", [LateMachine, RivalMachine])
def test_no_acknowledged_record_is_lost_doubled_or_moved(machine: Callable[[Random], Machine]) -> None:
    acknowledged = [one_world(seed, machine) for seed in range(FIRST, FIRST + SEEDS)]
    assert sum(acknowledged) > 20 * SEEDS, "nothing much happened"
