"""What a shard does for a decider: facts first, then answers and actions, whose results come back as new decisions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from magnetar.base.background import Background
from magnetar.coordination.decision import Action, Decision, Fact, Release, Stated, Token
from magnetar.coordination.log import MemoryOffsetsLog
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.coordination.shard import Shard
from tests.turns import until

HELD_BACK, FAILS = b"held back", b"fails"


@dataclass(frozen=True, slots=True)
class Send(Action):
    """Have somebody else take an order."""

    order: bytes


class Orders:
    """Takes orders, has each sent, and answers whoever gave it when that is done: a decider of the smallest kind."""

    def __init__(self) -> None:
        self.foreign = 0
        self.sent: dict[bytes, bool] = {}
        self.waiting: dict[bytes, Token] = {}

    def order(self, order: bytes, token: Token) -> Decision[str]:
        self.sent[order] = False
        self.waiting[order] = token
        return Decision((Fact(order, b"to be sent"),), None, actions=(Send(order),))

    def replay(self, stated: Stated) -> None:
        assert isinstance(stated, Fact)
        self.sent[stated.key] = stated.value == b"sent"

    def resume(self, now_ms: int) -> Decision[None]:
        return Decision((), None, actions=tuple(Send(order) for order, sent in self.sent.items() if not sent))

    def done(self, action: Action, result: object, now_ms: int) -> Decision[None]:
        assert isinstance(action, Send)
        waits = self.waiting.pop(action.order, None)
        if isinstance(result, Exception):
            return Decision((), None, () if waits is None else (Release(waits, f"not sent: {result}"),))
        self.sent[action.order] = True
        released = () if waits is None else (Release(waits, f"sent to {result}"),)
        return Decision((Fact(action.order, b"sent"),), None, released)

    def wake_ms(self) -> int | None:
        return None

    def expire(self, now_ms: int) -> Decision[None]:
        return Decision((), None)

    def live_facts(self) -> int:
        return len(self.sent)

    def snapshot(self) -> Iterator[Sequence[Fact]]:
        yield [Fact(order, b"sent" if sent else b"to be sent") for order, sent in self.sent.items()]


class GatedLog(MemoryOffsetsLog):
    """Keeps nothing while the gate is closed; fails ``failing`` appends."""

    def __init__(self) -> None:
        super().__init__(1)
        self.gate = asyncio.Event()
        self.gate.set()
        self.failing = 0

    async def append(self, partition: int, batch: bytes, records: int) -> int:
        await self.gate.wait()
        if self.failing:
            self.failing -= 1
            raise OSError("no room")
        return await super().append(partition, batch, records)


class World:
    """Where orders are sent to."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.given_up: list[bytes] = []
        self.gate = asyncio.Event()

    async def act(self, action: Action) -> object:
        assert isinstance(action, Send)
        self.taken.append(action.order)
        if action.order == HELD_BACK:
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.given_up.append(action.order)
                raise
        if action.order == FAILS:
            raise ConnectionError("nobody there")
        return "them"


def taken_up(log: MemoryOffsetsLog, world: World, *, is_written: bool = False) -> Shard[Orders]:
    shard = Shard(0, log, Orders, lambda: 0, Background(), world.act)
    shard.begin(asyncio.Semaphore(1), 0, is_written=is_written)
    return shard


def order(shard: Shard[Any], what: bytes) -> asyncio.Future[str]:
    return shard.ask(lambda decider, token: decider.order(what, token))


async def test_nothing_is_sent_before_its_fact_is_durable() -> None:
    log, world = GatedLog(), World()
    log.gate.clear()
    shard = taken_up(log, world)
    answers = [order(shard, b"%d" % i) for i in range(100)]
    for _ in range(100):
        await asyncio.sleep(0)
    assert world.taken == []
    log.gate.set()
    assert await asyncio.gather(*answers) == ["sent to them"] * 100
    assert world.taken == [b"%d" % i for i in range(100)]
    again = taken_up(log, world, is_written=True)
    await again.reloaded()
    assert again.made is not None
    assert again.made.sent == {b"%d" % i: True for i in range(100)}
    assert len(world.taken) == 100, "what is known to be sent is not sent again"


async def test_an_action_alone_waits_for_the_facts_before_it_and_no_longer() -> None:
    log, world = GatedLog(), World()
    log.gate.clear()
    shard = taken_up(log, world)
    answer = order(shard, FAILS)
    await asyncio.sleep(0)
    shard.tell(lambda decider: Decision((), None, actions=(Send(b"second"),)))
    assert world.taken == []
    log.gate.set()
    await answer
    await until(lambda: world.taken == [FAILS, b"second"])
    await shard.close()


async def test_what_fails_is_heard_of_and_sent_again_after_a_restart() -> None:
    log, world = GatedLog(), World()
    shard = taken_up(log, world)
    assert await order(shard, FAILS) == "not sent: nobody there"
    assert await order(shard, b"fine") == "sent to them"
    await shard.close()
    again = taken_up(log, world, is_written=True)
    await until(lambda: len(world.taken) == 3)
    assert world.taken == [FAILS, b"fine", FAILS]
    await again.close()


async def test_a_shard_that_starts_over_does_not_hear_of_what_was_sent_before() -> None:
    log, world = GatedLog(), World()
    shard = taken_up(log, world)
    lost = order(shard, HELD_BACK)
    await until(lambda: world.taken == [HELD_BACK])
    log.failing = 1
    with pytest.raises(CoordinatorRefused):
        await order(shard, b"not kept")
    with pytest.raises(CoordinatorRefused):
        await lost
    await shard.reloaded()
    await until(lambda: len(world.taken) == 2)
    assert world.taken == [HELD_BACK] * 2, "it was asked for again, as nothing says that it was sent"
    assert world.given_up == [HELD_BACK]
    world.gate.set()
    await until(lambda: shard.made is not None and shard.made.sent == {HELD_BACK: True})
    await shard.close()


async def test_a_partition_that_goes_elsewhere_sends_no_more() -> None:
    log, world = GatedLog(), World()
    shard = taken_up(log, world)
    lost = order(shard, HELD_BACK)
    await until(lambda: world.taken == [HELD_BACK])
    await shard.unload()
    with pytest.raises(CoordinatorRefused):
        await lost
    await until(lambda: world.given_up == [HELD_BACK])
    world.gate.set()
    there = taken_up(log, world, is_written=True)
    await until(lambda: there.made is not None and there.made.sent == {HELD_BACK: True})
    assert world.taken == [HELD_BACK] * 2
    await there.close()
