"""The garbage collector does not look through what lives long, and rings of garbage still go in the end."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from magnetar.base import collector
from magnetar.base.collector import (
    LATEST_THAW_S,
    MANY_OBJECTS,
    THAW_EVERY_S,
    Collector,
    fleeting,
    uncollected,
)
from magnetar.cli.limits import SWITCH_SECONDS


class Ring:
    """Garbage once nobody knows it, which the collector alone finds."""

    def __init__(self) -> None:
        self.myself = self


class Clock:
    def __init__(self) -> None:
        self.now = self.used = 0.0
        self.each_second = 0.0

    async def second(self) -> None:
        self.used += self.each_second


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def made(clock: Clock) -> Iterator[Collector]:
    made = Collector(lambda: clock.now, lambda: clock.used)
    yield made
    made.stop()
    gc.collect()


def test_what_took_too_long_to_look_through_is_looked_through_once(
    made: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty thousand groups, a third of a second again and again."""
    monkeypatch.setattr(collector, "MAX_SECONDS", 0.0)
    before = gc.get_freeze_count()
    kept = [[] for _ in range(10_000)]
    gc.collect()
    assert gc.get_freeze_count() >= before + len(kept)
    assert len(gc.get_objects()) < 1000


@pytest.mark.parametrize("is_fleeting", [False, True])
def test_what_goes_again_soon_is_not_frozen(
    made: Collector, monkeypatch: pytest.MonkeyPatch, is_fleeting: bool
) -> None:
    """Ten thousand logs that were opened for a marker each left 90 MB for an hour."""
    monkeypatch.setattr(collector, "MAX_SECONDS", 0.0)
    monkeypatch.setattr(collector, "MAX_FLEETING_SECONDS", 60.0)
    with fleeting() if is_fleeting else nullcontext():
        ring = Ring()
        gone = weakref.ref(ring)
        gc.collect()
        del ring
    gc.collect()
    assert (gone() is None) is is_fleeting
    kept = [Ring()]
    gc.collect()
    assert gc.get_freeze_count() > 0, "afterwards as before"
    del kept


def test_not_even_then_may_a_collection_take_long(made: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "MAX_FLEETING_SECONDS", 0.0)
    before = gc.get_freeze_count()
    with fleeting():
        kept = [[] for _ in range(10_000)]
        gc.collect()
    assert gc.get_freeze_count() >= before + len(kept)


def test_full_collections_have_little_to_look_through(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first one on, though start-up, of which Python waits for a quarter more, made very much."""
    monkeypatch.setattr(collector, "MAX_SECONDS", 0.0)
    old = [[] for _ in range(200_000)]
    before = gc.get_threshold()
    made = Collector(lambda: clock.now, lambda: clock.used)
    found: list[int] = []

    def look(phase: str, about: dict[str, int]) -> None:
        if phase == "start" and about["generation"] == 2:
            found.append(len(gc.get_objects()))

    gc.callbacks.append(look)
    kept = [[] for _ in range(100_000)]
    gc.callbacks.remove(look)
    made.stop()
    assert gc.get_threshold() == before
    assert len(found) > 5
    assert max(found) < 20_000
    del kept, old


@pytest.mark.slow
def test_what_is_soon_looked_through_is_not_frozen(made: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "MAX_SECONDS", 3600.0)
    before = gc.get_freeze_count()
    kept = [[] for _ in range(10_000)]
    gc.collect()
    assert gc.get_freeze_count() <= before
    del kept


@pytest.mark.slow
def test_rows_that_outlive_their_request_are_not_looked_through(made: Collector) -> None:
    looked: list[int] = []
    gc.callbacks.append(lambda phase, about: looked.append(gc.get_count()[0]) if phase == "start" else None)
    before = gc.get_freeze_count()
    with uncollected():
        few = [[] for _ in range(MANY_OBJECTS // 2)]
        with uncollected():
            rows = [[] for _ in range(2 * MANY_OBJECTS)]
        assert not looked, "nothing is collected before the last is done"
    more = [[] for _ in range(10_000)]
    gc.callbacks.pop()
    assert gc.get_freeze_count() >= before + len(rows) + len(few)
    assert looked
    assert max(looked) < MANY_OBJECTS
    del more


def test_few_rows_are_left_to_the_collector(made: Collector) -> None:
    before = gc.get_freeze_count()
    with uncollected():
        kept = [[] for _ in range(100)]
    assert gc.get_freeze_count() <= before
    del kept


async def test_a_ring_that_was_frozen_goes_at_the_thaw(made: Collector, clock: Clock) -> None:
    ring = weakref.ref(each := Ring())
    made.freeze()
    del each
    clock.now = THAW_EVERY_S - 1
    await made.thaw_when_quiet(clock.second)
    assert ring() is not None, "not yet"
    clock.now, clock.each_second = THAW_EVERY_S, 0.5
    await made.thaw_when_quiet(clock.second)
    assert ring() is not None, "somebody would notice"
    clock.each_second = 0.001
    await made.thaw_when_quiet(clock.second)
    assert ring() is None
    assert gc.get_freeze_count() > 0, "what is left is frozen again"


async def test_a_broker_that_is_never_quiet_thaws_once_a_day(made: Collector, clock: Clock) -> None:
    ring = weakref.ref(each := Ring())
    made.freeze()
    del each
    clock.each_second, clock.now = 1.0, LATEST_THAW_S
    await made.thaw_when_quiet(clock.second)
    assert ring() is not None
    clock.now += 1
    await made.thaw_when_quiet(clock.second)
    assert ring() is None


@pytest.mark.slow
async def test_nothing_is_thawed_where_nothing_was_frozen(made: Collector, clock: Clock) -> None:
    clock.now = 10 * THAW_EVERY_S
    collections = gc.get_stats()[2]["collections"]
    await made.thaw_when_quiet(clock.second)
    assert gc.get_stats()[2]["collections"] == collections


def test_a_broker_has_its_threads_hand_over_the_interpreter_soon(tmp_path: Path) -> None:
    """At Python's own 5 ms the loop waited so long in each of its turns while a thread read many rows."""
    (tmp_path / "file").touch()
    said = f"""
import sys
from pathlib import Path
from magnetar.cli.standalone import run
print(run(Path({str(tmp_path / "file")!r}), None, None, None, None, None, []), sys.getswitchinterval())
"""
    told = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["1", str(SWITCH_SECONDS)], told.stderr


def test_a_proxy_does_so_too_and_leaves_what_start_up_made_alone() -> None:
    said = """
import asyncio, gc, os, signal, sys
from magnetar.cli import proxy
print(proxy.run(None, []), sys.getswitchinterval(), gc.get_freeze_count())

class Service:
    served = {}

    def __init__(self, settings):
        pass

    async def start(self):
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)

    def close(self):
        print(gc.get_freeze_count() > 0)

proxy.ProxyService = Service
asyncio.run(proxy._serve(None))
"""
    told = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["2", str(SWITCH_SECONDS), "0", "ready", "True"], told.stderr
