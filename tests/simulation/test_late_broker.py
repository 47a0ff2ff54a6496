"""A whole broker in virtual time on the late engine: everything late, much of it failing, its logs taken by a rival.

The scenario is that of `test_broker`; only what the broker lives on is another.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from magnetar.kafka.handlers import produce
from magnetar.kafka.partitions.due_batches import DueBatches
from magnetar.kafka.partitions.partition import Partition
from magnetar.ledger.errors import LedgerError
from magnetar.ledger.port import LedgerEngine, LedgerPolicy, ManagedLedger, NewEntry
from magnetar.logs import producer_log
from magnetar.logs.producers import ProducerStates
from magnetar.metadata import MemoryStore, MetadataStore
from tests.engines.late import LateEngine, LateStore, Weather
from tests.engines.late.appends import Appends, Placed
from tests.engines.late.log import LateLog
from tests.simulation.loop import VirtualLoop
from tests.simulation.test_broker import (
    FIRST,
    PARTITIONS,
    SEEDS,
    TOPIC,
    Machine,
    _no_clock_but_the_simulations,
    many_worlds,
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


@pytest.mark.slow
@pytest.mark.parametrize("machine", [LateMachine, RivalMachine])
def test_no_acknowledged_record_is_lost_doubled_or_moved(machine: Callable[[Random], Machine]) -> None:
    acknowledged = [one_world(seed, machine) for seed in range(FIRST, FIRST + SEEDS)]
    assert sum(acknowledged) > 20 * SEEDS, "nothing much happened"


# -- planted bugs


def answers_before_it_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Partition.produce
    monkeypatch.setattr(Partition, "produce", lambda self, draft: original(self, draft)._replace(done=None))


def takes_a_batch_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerStates, "check", lambda self, batch: None)


def remembers_batches_that_were_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerStates, "take_back", lambda self, offset: None)


def forgets_what_was_due_when_a_log_is_opened_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerStates, "expect", lambda self, before: None)


def forgets_what_was_refused_where_no_log_could_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "_note_refused", lambda *about: None)


def forgets_what_was_on_its_way_when_a_log_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DueBatches, "closed", lambda self, partition: None)


def reads_no_batches_when_it_opens_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    async def load(log: ManagedLedger) -> ProducerStates:
        return ProducerStates()

    monkeypatch.setattr(producer_log, "load", load)


def shows_what_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    send = Appends._send

    def hasty(self: Appends, placed: Placed) -> None:
        send(self, placed)
        self._log.high_watermark = placed.row.last_offset + 1

    monkeypatch.setattr(Appends, "_send", hasty)


def takes_back_what_failed_and_nothing_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def alone(self: Appends, error: LedgerError) -> None:
        self._sent.popleft().done.settle(error)
        self._wake()

    monkeypatch.setattr(Appends, "_failed", alone)


def tells_of_a_failure_and_leaves_the_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LateLog, "tell_taken_back", lambda self, what: None)


def goes_on_in_a_ledger_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def left_as_it_is(self: LateStore, ledger_id: int, entries: int) -> None:
        await self.on_the_way()

    monkeypatch.setattr(LateStore, "end", left_as_it_is)


def fences_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    async def looked_at(self: LateStore, ledger_id: int) -> list[NewEntry]:
        await self.on_the_way()
        return list(self.rows(ledger_id))

    monkeypatch.setattr(LateStore, "fence", looked_at)


def finds_one_entry_less_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    fence = LateStore.fence

    async def cut_short(self: LateStore, ledger_id: int) -> list[NewEntry]:
        return (await fence(self, ledger_id))[:-1]

    monkeypatch.setattr(LateStore, "fence", cut_short)


@pytest.mark.parametrize(
    "plant",
    [
        answers_before_it_is_kept,
        takes_a_batch_twice,
        remembers_batches_that_were_taken_back,
        forgets_what_was_due_when_a_log_is_opened_anew,
        forgets_what_was_refused_where_no_log_could_be_opened,
        forgets_what_was_on_its_way_when_a_log_closed,
        reads_no_batches_when_it_opens_a_log,
        shows_what_is_on_its_way,
        takes_back_what_failed_and_nothing_behind_it,
        tells_of_a_failure_and_leaves_the_offsets,
        goes_on_in_a_ledger_that_failed,
        fences_nobody,
        finds_one_entry_less_at_the_end,
    ],
)
def test_planted_bugs_are_found(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="seed"):
        many_worlds(200, RivalMachine)
