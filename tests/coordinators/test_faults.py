"""A decider that fails unforeseen: its shard goes back to what the facts say, after pauses that grow, and tells."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from magnetar.base import retries
from magnetar.base.background import Background
from magnetar.coordination.decision import Action, Decision
from magnetar.coordination.log import MemoryOffsetsLog
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.coordination.shard import Shard
from tests.coordinators.test_effects import GatedLog, Orders, World, order
from tests.turns import until


class Faults:
    """What shall fail yet, and how often, of all deciders that are made; how often each was read again."""

    def __init__(self) -> None:
        self.done = self.resume = self.expire = 0
        self.made: list[Faulty] = []
        self.expired = asyncio.Event()

    def decider(self) -> Faulty:
        self.made.append(Faulty(self))
        return self.made[-1]


class Faulty(Orders):
    """Raises as long as it shall."""

    def __init__(self, faults: Faults) -> None:
        super().__init__()
        self._faults = faults
        self.resumed = 0

    def done(self, action: Action, result: object, now_ms: int) -> Decision[None]:
        if self._faults.done:
            self._faults.done -= 1
            raise KeyError("done")
        return super().done(action, result, now_ms)

    def resume(self, now_ms: int) -> Decision[None]:
        if self._faults.resume:
            self._faults.resume -= 1
            raise KeyError("resume")
        self.resumed += 1
        return super().resume(now_ms)

    def wake_ms(self) -> int | None:
        return 0 if self._faults.expire else None

    def expire(self, now_ms: int) -> Decision[None]:
        self._faults.expire -= 1
        if not self._faults.expire:
            self._faults.expired.set()
        raise KeyError("expire")


class Sleeps:
    """The pauses that were made; they take a turn of the loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[float] = []
        monkeypatch.setattr(retries, "asyncio", SimpleNamespace(sleep=self._sleep))

    async def _sleep(self, seconds: float) -> None:
        self.made.append(seconds)
        await asyncio.sleep(0)


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> Sleeps:
    return Sleeps(monkeypatch)


def shard_of(
    faults: Faults,
    log: MemoryOffsetsLog,
    world: World,
    *,
    at_once: bool = False,
    on_loaded: Callable[[object], None] | None = None,
) -> Shard[Faulty]:
    """Take up a shard; where ``at_once``, there is nothing to wait for in what it does."""
    act = (lambda action: None) if at_once else world.act
    shard: Shard[Faulty] = Shard(0, log, faults.decider, lambda: 0, Background(), act, on_loaded=on_loaded)
    shard.begin(asyncio.Semaphore(1), 0, is_written=False)
    return shard


async def settled(shard: Shard[Faulty], what: bytes) -> None:
    await until(lambda: shard.made is not None and shard.made.sent.get(what) is True)


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_result_that_cannot_be_heard_is_asked_for_again_after_pauses_that_grow(
    sleeps: Sleeps, caplog: pytest.LogCaptureFixture, *, at_once: bool
) -> None:
    faults, log, world = Faults(), GatedLog(), World()
    shard = shard_of(faults, log, world, at_once=at_once)
    faults.done = 40
    with caplog.at_level(logging.ERROR):
        with pytest.raises(CoordinatorRefused):
            await order(shard, b"one")
        await settled(shard, b"one")
    assert sleeps.made == [*retries.PAUSES_S, *[retries.PAUSES_S[-1]] * 36]
    assert len(faults.made) == 41, "each time it was read again once"
    assert [each.resumed for each in faults.made[1:]] == [1] * 40
    if not at_once:
        assert world.taken == [b"one"] * 41
    told = [each.getMessage() for each in caplog.records if "done" in each.getMessage()]
    assert len(told) == 6, "at once, and after 1, 3, 7, 15, 31 further tries"
    assert "groups of partition 0" in told[0]
    assert [each.exc_info is not None for each in caplog.records] == [True] * 6
    await shard.close()


async def test_an_action_that_cannot_even_be_begun_has_failed(sleeps: Sleeps) -> None:
    def act(action: Action) -> None:
        raise ConnectionError("nobody there")

    shard: Shard[Orders] = Shard(0, GatedLog(), Orders, lambda: 0, Background(), act)
    shard.begin(asyncio.Semaphore(1), 0, is_written=False)
    assert await order(shard, b"one") == "not sent: nobody there"
    assert sleeps.made == []
    await shard.close()


async def test_what_cannot_be_gone_on_with_is_tried_again_after_pauses(sleeps: Sleeps) -> None:
    faults, log, world = Faults(), GatedLog(), World()
    loaded: list[object] = []
    shard = shard_of(faults, log, world, on_loaded=loaded.append)
    assert await order(shard, b"fine") == "sent to them"
    await shard.unload()
    faults.resume = 7
    shard.begin(asyncio.Semaphore(1), 1, is_written=True)
    heard: list[bool] = []

    def hear(decider: Faulty) -> Decision[None]:
        heard.append(decider.sent[b"fine"])
        return Decision((), None)

    shard.tell(hear, though_loading=True)
    await until(lambda: bool(heard))
    assert sleeps.made == [*retries.PAUSES_S, *[retries.PAUSES_S[-1]] * 3]
    assert heard == [True]
    assert shard.is_loaded
    assert loaded == [shard.made], "whoever waits for what was loaded hears of it once it is"
    await shard.close()


async def test_a_deadline_that_cannot_be_kept_is_tried_again_after_pauses(sleeps: Sleeps) -> None:
    faults, log, world = Faults(), GatedLog(), World()
    shard = shard_of(faults, log, world)
    faults.expire = 5
    shard.tell(lambda decider: Decision((), None))
    await faults.expired.wait()
    await until(lambda: shard.is_loaded)
    assert sleeps.made == [*retries.PAUSES_S, retries.PAUSES_S[-1]]
    assert shard.is_loaded
    await shard.close()


async def test_facts_that_cannot_be_kept_are_decided_again_after_pauses(sleeps: Sleeps) -> None:
    faults, log, world = Faults(), GatedLog(), World()
    shard = shard_of(faults, log, world)
    world.gate.clear()
    lost = order(shard, b"held back")
    await until(lambda: bool(world.taken))
    log.failing = 10
    world.gate.set()
    with pytest.raises(CoordinatorRefused):
        await lost
    await until(lambda: len(faults.made) == 11)
    await settled(shard, b"held back")
    assert sleeps.made == [*retries.PAUSES_S, *[retries.PAUSES_S[-1]] * 6]
    assert len(faults.made) == 11
    await shard.close()


@pytest.mark.parametrize("kept", [False, True])
async def test_a_fault_while_facts_are_written_has_it_read_again_once(sleeps: Sleeps, *, kept: bool) -> None:
    faults, log, world = Faults(), GatedLog(), World()
    shard = shard_of(faults, log, world)
    log.gate.clear()
    lost = order(shard, b"one")
    await asyncio.sleep(0)  # it is being appended
    faults.expire = 1
    shard._ring()
    log.failing = not kept
    log.gate.set()
    with pytest.raises(CoordinatorRefused):
        await lost
    await until(lambda: shard.is_loaded)
    if kept:
        await settled(shard, b"one")
    assert len(faults.made) == 2
    assert len(sleeps.made) == 1
    assert world.taken == [b"one"] * kept, "what is kept is sent once, by what read it"
    await shard.close()


async def test_who_asks_for_what_cannot_be_decided_is_told_and_nobody_else_waits(sleeps: Sleeps) -> None:
    def fails(decider: Faulty, token: object) -> Decision[str]:
        raise KeyError("ask")

    faults, log, world = Faults(), GatedLog(), World()
    shard = shard_of(faults, log, world)
    for asked in range(20):
        with pytest.raises(KeyError):
            await shard.ask(fails)
        await shard.reloaded()
        assert await order(shard, b"%d" % asked) == "sent to them"
    assert sleeps.made == []
    await shard.close()


async def test_after_a_calm_hour_pauses_begin_anew(sleeps: Sleeps) -> None:
    faults, log, world, now_ms = Faults(), GatedLog(), World(), [0]
    shard: Shard[Faulty] = Shard(0, log, faults.decider, lambda: now_ms[0], Background(), world.act)
    shard.begin(asyncio.Semaphore(1), 0, is_written=False)
    for hour in range(3):
        now_ms[0] = 3_600_000 * hour
        faults.done = 2
        with pytest.raises(CoordinatorRefused):
            await order(shard, b"%d" % hour)
        await settled(shard, b"%d" % hour)
    assert sleeps.made == [*retries.PAUSES_S[:2]] * 3
    await shard.close()


async def test_after_a_calm_hour_pauses_begin_anew_where_facts_could_not_be_kept_too(sleeps: Sleeps) -> None:
    faults, log, now_ms = Faults(), GatedLog(), [0]
    shard: Shard[Faulty] = Shard(0, log, faults.decider, lambda: now_ms[0], Background(), World().act)
    shard.begin(asyncio.Semaphore(1), 0, is_written=False)
    for hour in range(3):
        now_ms[0] = 3_600_000 * hour
        for _ in range(2):
            log.failing = 1
            with pytest.raises(CoordinatorRefused):
                await order(shard, b"%d" % hour)
            await shard.reloaded()
            now_ms[0] += 1000
    assert sleeps.made == [*retries.PAUSES_S[:2]] * 3
    await shard.close()
