"""A partition of a coordinator's log as a machine, against a list as the log: faults, moves and ends in any order.

After each step its state says what goes on, and nothing was answered that the log does not hold. At the end, where the
world works again, whatever was ordered and is in the log has been sent.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from magnetar.base import retries
from magnetar.base.background import Background
from magnetar.coordination import shard as shards
from magnetar.coordination.batches import stated_in
from magnetar.coordination.decision import Action, Decision, Fact
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.coordination.shard import Shard
from magnetar.coordination.shard_states import ShardState
from magnetar.records.batch import batches
from magnetar.wire.kafka.errors import ErrorCode
from tests.coordinators.test_effects import GatedLog, Orders
from tests.models import assert_noticed

TURNS = 40
DECIDES = (ShardState.READY, ShardState.WRITING)


class StopsAndFails(GatedLog):
    """Also fails ``unreadable`` replays."""

    unreadable = 0

    async def replay(self, partition: int) -> Any:
        await asyncio.sleep(0)
        if self.unreadable:
            self.unreadable -= 1
            raise OSError("cannot be read")
        async for each in super().replay(partition):
            yield each

    def held(self, *values: bytes) -> set[bytes]:
        """Return the orders of which one of these is among the facts."""
        return {
            stated.key
            for _, data in self._batches.get(0, [])
            for header, batch in batches(data)
            for stated in stated_in(header, batch)
            if isinstance(stated, Fact) and stated.value in values
        }


class Faulty(Orders):
    """Raises in as many decisions as the world says."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def _may_fail(self, where: str) -> None:
        if self._world.faults.get(where):
            self._world.faults[where] -= 1
            raise KeyError(where)

    def order(self, order: bytes, token: object) -> Decision[str]:
        found = super().order(order, token)
        self._may_fail("order")
        return found

    def resume(self, now_ms: int) -> Decision[None]:
        self._may_fail("resume")
        return super().resume(now_ms)

    def done(self, action: Action, result: object, now_ms: int) -> Decision[None]:
        found = super().done(action, result, now_ms)
        self._may_fail("done")
        return found


class World:
    """What decisions do, and what fails of it."""

    def __init__(self) -> None:
        self.faults: dict[str, int] = {}
        self.sent: list[bytes] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def act(self, action: Any) -> object:
        await self.gate.wait()
        self.sent.append(action.order)
        return "them"


class ShardMachine(RuleBasedStateMachine):
    """One broker that gets and loses one partition."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(retries, "asyncio", SimpleNamespace(sleep=lambda _: asyncio.sleep(0)))
        self.patch.setattr(shards, "_RETRY_S", (0, 0, 0))
        self.loop = asyncio.new_event_loop()
        self.log, self.world = StopsAndFails(), World()
        self.shard = Shard(0, self.log, lambda: Faulty(self.world), lambda: 0, Background(), self.world.act)
        self.number = 0
        self.asked: dict[bytes, asyncio.Future[str]] = {}
        self.leaving: asyncio.Task[None] | None = None
        self.is_mine = False

    def run(self, turns: int = 1) -> None:
        async def some() -> None:
            for _ in range(turns):
                await asyncio.sleep(0)

        self.loop.run_until_complete(some())

    def teardown(self) -> None:
        self.log.gate.set()
        self.world.gate.set()
        self.loop.run_until_complete(self.shard.close())
        self.run(TURNS)
        assert all(future.done() for future in self.asked.values()), "each client was answered or sent away"
        self.patch.undo()
        self.loop.close()

    @property
    def is_leaving(self) -> bool:
        return self.leaving is not None and not self.leaving.done()

    @precondition(lambda self: not self.is_mine and not self.is_leaving)
    @rule()
    def comes(self) -> None:
        async def begin() -> None:
            written = bool(self.log._batches.get(0))
            self.shard.begin(asyncio.Semaphore(1), 0, is_written=written)

        self.loop.run_until_complete(begin())
        self.is_mine = True

    @precondition(lambda self: self.is_mine)
    @rule()
    def goes(self) -> None:
        async def leave() -> None:
            self.leaving = asyncio.ensure_future(self.shard.unload())

        self.loop.run_until_complete(leave())
        self.is_mine = False

    @rule()
    def is_asked(self) -> None:
        self.number += 1
        what = b"%d" % self.number

        async def ask() -> None:
            was = self.shard.state
            try:
                asked = self.shard.ask(lambda decider, token: decider.order(what, token))
                asked.add_done_callback(lambda done: done.cancelled() or done.exception())
                self.asked[what] = asked
            except CoordinatorRefused as refused:
                is_loading = refused.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                assert was not in DECIDES
                assert is_loading is (was is ShardState.LOADING)
            except KeyError:
                assert was in DECIDES
                assert self.shard.state is ShardState.LOADING, "a fault is begun anew from the facts"

        self.loop.run_until_complete(ask())

    @rule(where=st.sampled_from(["order", "resume", "done"]))
    def shall_fail_in(self, where: str) -> None:
        self.world.faults[where] = 1

    @rule()
    def cannot_be_kept(self) -> None:
        self.log.failing += 1

    @rule()
    def cannot_be_read(self) -> None:
        self.log.unreadable += 1

    @rule(stops=st.booleans())
    def log_stops(self, *, stops: bool) -> None:
        self.log.gate.clear() if stops else self.log.gate.set()

    @rule(stops=st.booleans())
    def world_stops(self, *, stops: bool) -> None:
        self.world.gate.clear() if stops else self.world.gate.set()

    @rule(turns=st.integers(1, TURNS))
    def time_goes_by(self, turns: int) -> None:
        self.run(turns)

    @rule()
    def all_is_well_again(self) -> None:
        self.log.failing = self.log.unreadable = 0
        self.world.faults.clear()
        self.log.gate.set()
        self.world.gate.set()
        self.run(20 * TURNS)
        assert not self.is_leaving
        if self.is_mine:
            assert self.shard.state is ShardState.READY
            assert self.log.held(b"to be sent") <= set(self.world.sent), "what was decided was carried out"
        assert all(future.done() for future in self.asked.values())

    @invariant()
    def the_state_says_what_goes_on(self) -> None:
        shard = self.shard
        assert shard.is_mine is self.is_mine
        assert shard.is_loaded is (shard.state in DECIDES)
        writes = shard._writer is not None
        if shard.state in DECIDES:
            assert writes is (shard.state is ShardState.WRITING)
        if shard.state is ShardState.LOADING:
            assert shard.made is None
            assert shard._loader is not None
            assert not shard._loader.done()
            assert not shard._waiting
        if shard.state is ShardState.ELSEWHERE:
            assert shard.made is None
            assert not writes
            assert not shard._waiting

    @invariant()
    def an_answer_never_overtakes_a_fact(self) -> None:
        held = self.log.held(b"sent")
        for what, future in self.asked.items():
            if future.done() and not future.cancelled() and future.exception() is None:
                assert what in held


EXAMPLES = settings(deadline=None, stateful_step_count=40)
ShardMachine.TestCase.settings = EXAMPLES
TestShardMachine = pytest.mark.filterwarnings(
    "ignore:coroutine 'World.act'"  # of actions that were given up before their first step
)(ShardMachine.TestCase)


@pytest.mark.filterwarnings("ignore:coroutine 'World.act'")
def test_the_model_notices_a_fault_that_forgets_to_load_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets(self: Any) -> None:
        self._dismiss(ErrorCode.NOT_COORDINATOR)
        if self.state in DECIDES:
            self._go_to(ShardState.LOADING)

    monkeypatch.setattr(Shard, "_start_over", forgets)
    assert_noticed(ShardMachine, EXAMPLES)


@pytest.mark.filterwarnings("ignore:coroutine 'World.act'")
def test_the_model_notices_answers_that_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    carry_out = Shard._carry_out

    def hurries(self: Any, facts: Any, releases: Any, actions: Any) -> None:
        shards._give(releases)
        carry_out(self, facts, (), actions)

    monkeypatch.setattr(Shard, "_carry_out", hurries)
    assert_noticed(ShardMachine, EXAMPLES)
