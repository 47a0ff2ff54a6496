"""What does not come to an end is told of, ever more seldom, with the place where it waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from magnetar.base.long_waits import told_if_long

_log = logging.getLogger("magnetar.test")


async def waits(answer: asyncio.Future[None]) -> None:
    await answer


async def lets_go(answer: asyncio.Future[None]) -> None:
    with told_if_long(_log, "bundle a/b is let go of", first_s=0.02):
        await waits(answer)


async def test_it_is_told_where_something_waits_ever_more_seldom(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[None] = loop.create_future()
    pauses: list[float] = []
    call_later = loop.call_later

    def noted(delay: float, callback: Callable[..., object], *given: Any) -> asyncio.TimerHandle:
        if callback.__name__ == "tell":
            pauses.append(delay)
        return call_later(delay, callback, *given)

    monkeypatch.setattr(loop, "call_later", noted)
    task = asyncio.create_task(lets_go(answer))
    async with asyncio.timeout(60):
        while len(caplog.records) < 3:  # noqa: ASYNC110 - the log tells nobody
            await asyncio.sleep(0.01)
    told = [record.getMessage() for record in caplog.records]
    assert all(each.startswith("bundle a/b is let go of, for 0 s now: it waits in ") for each in told)
    assert all(each.endswith("lets_go > waits") for each in told)
    assert pauses[:4] == [0.02, 0.04, 0.08, 0.16]
    answer.set_result(None)
    await task
    count = len(caplog.records)
    await asyncio.sleep(0.5)
    assert len(caplog.records) == count


async def test_nothing_is_told_of_what_ends(caplog: pytest.LogCaptureFixture) -> None:
    with told_if_long(_log, "bundle a/b is let go of", first_s=0.02):
        pass
    await asyncio.sleep(0.1)
    assert not caplog.records
