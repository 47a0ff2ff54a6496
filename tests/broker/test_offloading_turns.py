"""The duty of tiered storage looks at all topics in many turns of the loop, however few partitions each has."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest

from magnetar.broker import slices
from tests.admin.house import House

TOPICS = 30


async def test_looking_around_for_what_is_to_be_offloaded_gives_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count()
    monkeypatch.setattr(slices, "perf_counter", lambda: next(clock) * slices.SLICE_S * 0.6)
    given: list[float] = []

    async def sleep(seconds: float) -> None:
        given.append(seconds)

    monkeypatch.setattr(slices, "asyncio", SimpleNamespace(sleep=sleep))
    async with House(tmp_path / "data") as house:
        broker = house.services.broker
        for number in range(TOPICS):
            await broker.create_topic(f"t{number}", 1, {})
        given.clear()
        await broker.offloading.look_around()
        assert len(given) >= TOPICS // 3
