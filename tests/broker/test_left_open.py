"""Logs that a dead broker left open are opened side by side, so many at a time, before anybody asks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from magnetar.ledger.errors import StorageFailed
from magnetar.node.left_open import TAKEN_AT_ONCE, LeftOpen
from tests.broker.both import both

TOPICS = 3 * TAKEN_AT_ONCE


async def turns(count: int = 200) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_as_many_are_opened_at_once_as_may_be_and_one_that_fails_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with both() as house:
        broker, engine = house.broker, house.broker.engine
        for number in range(TOPICS):
            await broker.create_topic(f"t{number}", 1)
        opens, begun, at_once = engine.open, [], [0, 0]
        go = asyncio.Event()
        broken, closed = (f"public/default/persistent/t{number}-partition-0" for number in (3, 4))

        async def left_open(names: Sequence[str]) -> list[str]:
            return [each for each in names if each != closed]

        async def gated(name: str, *arguments: Any) -> Any:
            begun.append(name)
            at_once[:] = at_once[0] + 1, max(at_once[1], at_once[0] + 1)
            await go.wait()
            at_once[0] -= 1
            if name == broken:
                raise StorageFailed("no bookie has it")
            return await opens(name, *arguments)

        monkeypatch.setattr(engine, "left_open", left_open)
        monkeypatch.setattr(engine, "open", gated)
        taking = LeftOpen(broker)
        for bundle in broker.cluster.ownership.bundles("public/default"):
            await taking.acquired(bundle)
        await turns()
        assert len(begun) == TAKEN_AT_ONCE  # none of which has ended
        go.set()
        while len(begun) < TOPICS - 1 or at_once[0]:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await turns()
        assert at_once[1] == TAKEN_AT_ONCE
        names = {each.log.name for each in broker.logs.open_logs.all()}
        assert len(names) == TOPICS - 2
        assert names.isdisjoint({broken, closed})


async def test_what_comes_meanwhile_is_looked_through_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    async with both() as house:
        broker = house.broker
        await broker.create_topic("t", 1)
        asked: list[list[str]] = []
        go = asyncio.Event()

        async def left_open(names: Sequence[str]) -> list[str]:
            asked.append(list(names))
            await go.wait()
            return []

        monkeypatch.setattr(broker.engine, "left_open", left_open)
        taking = LeftOpen(broker)
        (bundle,) = broker.cluster.ownership.bundles("public/default")
        await taking.acquired(bundle)
        await turns()
        await taking.acquired(bundle)
        go.set()
        await turns()
        assert asked == [["public/default/persistent/t-partition-0"]] * 2
