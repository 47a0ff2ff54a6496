"""What is read before it is asked for serves one fetch, stays below a bound, and is let go when nobody comes for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from magnetar.kafka.partitions import read_ahead
from magnetar.kafka.partitions.read_ahead import MIN_BYTES, Batches, ReadAhead
from magnetar.records.batch import read_header
from tests.admin.house import House

MOST = 1 << 20


def reading(
    size: int, done: list[int], *, error: Exception | None = None
) -> Callable[[], Coroutine[None, None, Batches]]:
    async def read() -> Batches:
        done.append(size)
        if error is not None:
            raise error
        return [], size

    return read


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110  what is waited for wakes nobody
        await asyncio.sleep(0.001)


async def test_a_piece_serves_the_one_read_it_is_for() -> None:
    ahead, done = ReadAhead(), list[int]()
    ahead.plan("p", 5, MOST, reading(MOST, done))
    ahead.plan("q", 5, MOST, reading(MOST - 1, done))
    assert done == []  # the answer before goes out first
    await until(lambda: len(done) == 2)
    assert ahead.take("p", 6, MOST) is None
    assert ahead.take("p", 5, MOST // 2) is None
    assert ahead.take("p", 5, MOST) == ([], MOST)
    assert ahead.take("p", 5, MOST) is None
    assert ahead.take("q", 5, MOST) == ([], MOST - 1)
    ahead.plan("p", 5, MOST, reading(MOST, done))  # and again, after all were taken
    await until(lambda: len(done) == 3)
    assert ahead.take("p", 5, MOST) == ([], MOST)


async def test_reads_at_the_end_of_the_log_and_failed_ones_are_not_kept() -> None:
    ahead, done = ReadAhead(), list[int]()
    ahead.plan("short", 0, MOST, reading(MOST // 2 - 1, done))
    ahead.plan("failed", 0, MOST, reading(MOST, done, error=OSError("the disk is gone")))
    ahead.plan("good", 0, MOST, reading(MOST, done))
    await until(lambda: len(done) == 3)
    assert ahead.take("short", 0, MOST) is None
    assert ahead.take("failed", 0, MOST) is None
    assert ahead.take("good", 0, MOST) is not None


async def test_the_oldest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "MAX_BYTES", 3 * MOST)
    ahead, done = ReadAhead(), list[int]()
    for offset in range(5):
        ahead.plan("p", offset, MOST, reading(MOST, done))
    await until(lambda: len(done) == 5)
    assert [ahead.take("p", offset, MOST) is not None for offset in range(5)] == [
        False,
        False,
        True,
        True,
        True,
    ]


async def test_what_nobody_fetches_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "KEPT_SECONDS", 0.05)
    ahead, done = ReadAhead(), list[int]()
    for offset in range(3):  # one after the other, so that the timer has to run again
        ahead.plan("p", offset, MOST, reading(MOST, done))
        await until(lambda offset=offset: len(done) == offset + 1)
        await asyncio.sleep(0.03)
    await until(lambda: not ahead._ready)
    assert ahead._bytes == 0
    ahead.plan("p", 9, MOST, reading(MOST, done))  # later ones are let go too
    await until(lambda: len(done) == 4)
    await until(lambda: not ahead._ready)


async def test_a_partition_reads_on_behind_a_large_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with House(tmp_path / "data") as house:
        partition = await house.topic()
        await house.produce(partition)
        while partition.log.size() < 4 * MIN_BYTES:
            await house.produce(partition, 1000)
        reads: list[int] = []
        read = partition.log.read

        async def noted(offset: int, **options: Any) -> Any:
            reads.append(offset)
            return await read(offset, **options)

        monkeypatch.setattr(partition.log, "read", noted)
        batches, _ = await partition.read(0, MIN_BYTES)
        following = read_header(batches[-1]).last_offset + 1
        await until(lambda: following in reads)
        await asyncio.sleep(0.01)
        await partition.read(following, MIN_BYTES)
        assert reads.count(following) == 1, "it was ready"
