"""A transaction over very many partitions: they are ended some at a time, and none of them waits for another."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from magnetar.base import collector
from magnetar.cluster.ownership import Owned
from magnetar.kafka.partitions import registry
from magnetar.kafka.transactions import markers
from magnetar.kafka.transactions.markers import Markers
from magnetar.kafka.transactions.metadata import TransactionPartition
from magnetar.ledger.errors import LedgerError
from magnetar.logs.producers import EndTransactionMarker
from tests.admin.house import House

MARKER = EndTransactionMarker(7, 0, committed=True)


def of(house: House) -> Markers:
    return Markers(house.services.broker, house.services.partitions, cast(Any, None), cast(Any, None))


@pytest.mark.slow
@pytest.mark.parametrize("count", [20, 1000])
async def test_partitions_that_nobody_opened_are_not_kept_open(
    tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60,000 of them were 900 MB."""
    async with House(tmp_path / "data") as house:
        first = await house.topic("t", count)
        await house.produce(first)
        opened, most = house.services.partitions, 0
        assert collector._fleeting == 0
        load = type(first).load

        async def watched(self: Any) -> None:
            nonlocal most
            most = max(most, len(opened.all_open()))
            assert collector._fleeting == 1, "what is opened for a marker is garbage soon"
            await load(self)

        monkeypatch.setattr(type(first), "load", watched)
        await of(house).write_all(MARKER, (TransactionPartition("t", index) for index in range(count)))
        assert most <= registry._LENT_AT_ONCE + markers._HERE_AT_ONCE + 1
        assert first in opened.all_open(), "it was open before"
        monkeypatch.setattr(type(first), "load", load)
        for index in range(0, count, 7):
            partition = await opened.get(first.topic, index)
            assert partition.log.log_end_offset == (11 if index == 0 else 1), index


class Crowd:
    """Partitions of this broker (below 5,000) and of another, and how many of each are ended at the same time."""

    def __init__(self) -> None:
        self.ended: Counter[int] = Counter()
        self.under_way: set[int] = set()
        self.most: Counter[bool] = Counter()
        self.hangs: set[int] = set()
        self.goes_on = asyncio.Event()
        self.awaited, self.came = 0, asyncio.Event()
        self.fails: set[int] = set()
        owner = lambda name, index: Owned(1 if index < 5000 else 2, 0)  # noqa: E731
        topic = SimpleNamespace(name="t", internal=False)
        broker = SimpleNamespace(
            background=None,
            cluster=SimpleNamespace(ownership=SimpleNamespace(node_id=1, owner=owner)),
            topic=lambda name: topic,
        )
        self.markers = Markers(cast(Any, broker), cast(Any, None), cast(Any, None), cast(Any, None))
        self.markers.write = self.here  # type: ignore[method-assign]
        self.markers._of_others = cast(Any, SimpleNamespace(write=self.there))

    async def here(self, marker: EndTransactionMarker, where: TransactionPartition) -> None:
        await self.there(1, marker, where)

    async def there(self, node_id: int, marker: EndTransactionMarker, where: TransactionPartition) -> None:
        index = where.partition
        self.under_way.add(index)
        own = sum(each < 5000 for each in self.under_way) if index < 5000 else 0
        self.most[index < 5000] = max(self.most[index < 5000], own or len(self.under_way))
        try:
            if index in self.hangs:
                await self.goes_on.wait()
            await asyncio.sleep(0)
            if index in self.fails:
                raise LedgerError("not now")
            self.ended[index] += 1
            if len(self.ended) == self.awaited:
                self.came.set()
        finally:
            self.under_way.discard(index)

    def write_all(self, *indexes: range) -> asyncio.Task[None]:
        where = (TransactionPartition("t", index) for some in indexes for index in some)
        return asyncio.get_running_loop().create_task(self.markers.write_all(MARKER, where))


async def test_partitions_are_ended_some_at_a_time_each_once() -> None:
    crowd = Crowd()
    await crowd.write_all(range(3000), range(5000, 8000))
    assert crowd.ended == Counter({*range(3000), *range(5000, 8000)})
    assert crowd.most[True] == markers._HERE_AT_ONCE
    assert crowd.most[False] <= markers.MOST_FOR_ANOTHER + markers._HERE_AT_ONCE


@pytest.mark.slow
async def test_a_broker_that_hangs_and_partitions_that_fail_hold_up_no_others() -> None:
    crowd = Crowd()
    crowd.hangs = {*range(5000, 8000), 3}
    crowd.fails = {*range(10, 500)}
    writing = crowd.write_all(range(3000), range(5000, 8000))
    expected = {*range(3000)} - crowd.hangs - crowd.fails
    crowd.awaited = len(expected)
    await crowd.came.wait()
    assert set(crowd.ended) == expected
    assert not writing.done()
    crowd.fails.clear()
    crowd.goes_on.set()
    await writing
    assert set(crowd.ended.values()) == {1}
    assert len(crowd.ended) == 6000


async def test_an_end_of_the_broker_ends_it() -> None:
    crowd = Crowd()
    crowd.hangs, crowd.fails = {1, 5001}, {2}
    writing = crowd.write_all(range(100), range(5000, 5100))
    crowd.awaited = 197
    await crowd.came.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert not crowd.under_way
