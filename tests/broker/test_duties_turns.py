"""What is done now and then for all topics is done in many turns of the loop, and for those alone that it concerns."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from magnetar.base import slices
from magnetar.logs.open_logs import OpenLog, Reason
from magnetar.node.broker import Broker
from magnetar.node.cleaner import Cleaner
from tests.admin.house import House

TOPICS = 30


class Holder:
    def log_closed(self, reason: Reason) -> None:
        raise AssertionError(f"a log that is held was closed: {reason}")


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Each time that the loop was given a turn, by a clock that goes on by half a slice with each look at it."""
    clock = itertools.count()
    monkeypatch.setattr(slices, "perf_counter", lambda: next(clock) * slices.SLICE_S * 0.6)
    given: list[float] = []

    async def sleep(seconds: float) -> None:
        given.append(seconds)

    monkeypatch.setattr(slices, "asyncio", SimpleNamespace(sleep=sleep))
    return given


@pytest.fixture
async def broker(tmp_path: Path, given: list[float]) -> AsyncIterator[Broker]:
    async with House(tmp_path / "data") as house:
        broker = house.services.broker
        for number in range(TOPICS):
            await broker.create_topic(f"t{number}", 1, {})
        yield broker


async def opened(broker: Broker) -> list[OpenLog]:
    return [await broker.logs.open_logs.open(broker.topic(f"t{number}"), 0) for number in range(TOPICS)]


async def test_looking_around_for_what_is_to_be_offloaded_gives_way(
    broker: Broker, given: list[float]
) -> None:
    given.clear()
    await broker.logs.offloading.look_around()
    assert len(given) >= TOPICS // 3


async def test_so_does_looking_for_what_is_to_be_compacted(broker: Broker, given: list[float]) -> None:
    given.clear()
    await Cleaner(broker, lambda: 0).clean()
    assert len(given) >= TOPICS // 3


async def test_logs_that_are_held_are_not_looked_at_for_closing(broker: Broker, given: list[float]) -> None:
    held, holder = await opened(broker), Holder()
    for each in held:
        each.hold(holder)
    given.clear()
    await broker.logs.open_logs.close_unheld()
    assert given == []
    assert set(held) <= set(broker.logs.open_logs.all())
    for each in held:
        each.leave(holder)
    await broker.logs.open_logs.close_unheld()
    assert len(given) >= TOPICS // 3
    assert not set(held) & set(broker.logs.open_logs.all())


async def test_what_an_iterator_makes_is_taken_as_it_comes() -> None:
    made: list[int] = []

    def make() -> Iterator[int]:
        for number in range(TOPICS):
            made.append(number)
            yield number

    seen = []
    async for number in slices.sliced(make()):
        seen.append(number)
        assert made == seen
    assert len(seen) == TOPICS
