"""The log says what a start waits for, and where its time went."""

from __future__ import annotations

import asyncio
import logging

import pytest

from magnetar.base import start_steps

log = logging.getLogger("magnetar.test-of-steps")


async def test_what_takes_long_is_told_while_it_does(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(start_steps, "_SILENT_S", 0.0)
    caplog.set_level(logging.INFO)
    with start_steps.step(log, "Java"):
        while not caplog.messages:  # noqa: ASYNC110 - it is told by a timer
            await asyncio.sleep(0.01)
    assert caplog.messages == ["the start waits for Java"]
    with start_steps.step(log, "what is there"):
        pass
    await asyncio.sleep(0.01)
    assert caplog.messages == ["the start waits for Java"]


async def test_each_step_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(start_steps.time, "monotonic", lambda: now)
    assert start_steps.told(1.0) == ""
    start_steps.begin()
    for what, took in (("ZooKeeper", 0.5), ("topics", 0.04), ("Java", 1.25)):
        with start_steps.step(log, what):
            now += took
    assert start_steps.told(3.0) == "Java 1.2 s, ZooKeeper 0.5 s, all else 1.2 s"
