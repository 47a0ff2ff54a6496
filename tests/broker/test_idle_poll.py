"""The loop stays awake for a moment after it has heard something, as long as that pays."""

from __future__ import annotations

import asyncio

from magnetar.serving.idle_poll import IdlePoll


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_the_loop_is_kept_awake_for_so_long_after_the_last_that_was_heard() -> None:
    clock = Clock()
    poll = IdlePoll(0.001, clock)
    poll.heard(100)
    clock.now += 0.0009
    await turns(5)
    assert poll.awake
    poll.heard(100)
    clock.now += 0.0009
    await turns(5)
    assert poll.awake
    clock.now += 0.0002
    await turns(2)
    assert not poll.awake


async def test_without_a_time_it_never_is() -> None:
    poll = IdlePoll(0.0)
    poll.heard(100)
    assert not poll.awake


async def test_who_sends_much_is_not_waited_for() -> None:
    poll = IdlePoll(1.0)
    poll.heard(64 << 10)
    assert not poll.awake


async def test_where_nothing_ever_comes_it_is_hardly_tried() -> None:
    assert await tries(400) < 25


async def test_once_something_came_in_time_it_is_done_again() -> None:
    clock = Clock()
    poll = IdlePoll(0.001, clock)
    await one_by_one(poll, clock, 400)
    while not poll.awake:
        poll.heard(100)
    for _ in range(8):
        poll.heard(100)  # in time
    clock.now += 0.002
    await turns(2)
    assert await one_by_one(poll, clock, 5) == 5


async def tries(times: int) -> int:
    clock = Clock()
    return await one_by_one(IdlePoll(0.001, clock), clock, times)


async def one_by_one(poll: IdlePoll, clock: Clock, times: int) -> int:
    """Say something so often, each time too late for the last; give how often the loop was kept awake for it."""
    awake = 0
    for _ in range(times):
        poll.heard(100)
        awake += poll.awake
        clock.now += 0.002
        await turns(2)
        assert not poll.awake
    return awake


async def test_the_loop_asks_its_sockets_while_it_is_kept_awake() -> None:
    poll = IdlePoll(5.0)
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        poll.heard(100)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await reader.read() == b""
        assert poll.awake
        writer.close()
