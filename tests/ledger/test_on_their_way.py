"""What is on its way to bookies is bounded: who comes later waits, each in its turn, and nobody for good."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from magnetar.ledger.bookkeeper.on_their_way import OnTheirWay


async def test_who_comes_when_it_is_full_waits_for_his_turn() -> None:
    way, went = OnTheirWay(100), list[int]()

    async def come(number: int) -> None:
        await way.turn()
        went.append(number)
        way.sent(50)

    way.sent(60)
    assert way.is_free
    way.sent(60)
    assert way.is_full
    coming = [asyncio.ensure_future(come(number)) for number in range(5)]
    await asyncio.sleep(0.01)
    assert went == []
    way.answered(60)
    assert not way.is_free, "those who wait come before who comes now"
    await asyncio.sleep(0.01)
    assert went == [0]
    for expected in (1, 2, 3, 4):
        way.answered(50)
        await asyncio.sleep(0.01)
        assert went == list(range(expected + 1))
    await asyncio.gather(*coming)
    assert way.size == 110


async def test_a_turn_that_is_not_used_goes_to_the_next() -> None:
    way, went = OnTheirWay(100), list[int]()

    async def come(number: int) -> None:
        await way.turn()
        went.append(number)

    way.sent(100)
    coming = [asyncio.ensure_future(come(number)) for number in range(20)]
    await asyncio.sleep(0.01)
    for each in coming[3:6]:
        each.cancel()
    way.answered(100)
    await asyncio.wait(coming, timeout=10)
    assert went == [0, 1, 2, *range(6, 20)]


@pytest.mark.parametrize("seed", range(20))
async def test_all_get_through_and_it_is_never_fuller_than_one_entry_more(seed: int) -> None:
    random, way, most = Random(seed), OnTheirWay(1000), 0
    under_way: list[int] = []

    async def send(sizes: list[int]) -> None:
        nonlocal most
        has_waited = False
        while sizes:
            if way.is_full or not (has_waited or way.is_free):
                await way.turn()
                has_waited = True
                if random.random() < 0.1:
                    return  # what it had was taken back
                continue
            way.sent(sizes[-1])
            under_way.append(sizes.pop())
            most, has_waited = max(most, way.size), False

    sending = [
        asyncio.ensure_future(send([random.randint(1, 400) for _ in range(30)]))
        for _ in range(random.randint(1, 30))
    ]
    for _ in range(20_000):
        if under_way and random.random() < 0.5:
            way.answered(under_way.pop(random.randrange(len(under_way))))
        await asyncio.sleep(0)
        if all(each.done() for each in sending):
            break
    assert all(each.done() for each in sending)
    assert most < 1400
