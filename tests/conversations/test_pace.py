"""What many clients ask at once is done in turns that are short together."""

from __future__ import annotations

import asyncio
from functools import partial
from time import perf_counter

import pytest
import uvloop

from magnetar.base import slices
from magnetar.base.slices import FairTurns, PacedTurns
from magnetar.serving import pace
from magnetar.serving.pace import SharedTurn, drained


def test_work_of_ten_at_once_takes_turns() -> None:
    """Ten clients asked for all topics; the turn of the loop took ten times as long as each answer."""

    async def each(turn: SharedTurn) -> None:
        await turn.wait()
        until = perf_counter() + 2 * pace.MAX_SECONDS
        while perf_counter() < until:
            pass

    async def run() -> list[float]:
        turn, turns = SharedTurn(), []
        tasks = [asyncio.ensure_future(each(turn)) for _ in range(10)]
        while not all(task.done() for task in tasks):
            began = perf_counter()
            await asyncio.sleep(0)
            turns.append(perf_counter() - began)
        return turns

    turns = uvloop.run(run())
    assert len(turns) >= 10, "one at most was begun in each turn"


def test_a_turn_that_has_only_begun_is_nobodys_wait() -> None:
    async def run() -> int:
        turn, waits = SharedTurn(), 0
        for _ in range(50):
            waiting = turn.wait()
            try:
                waiting.send(None)
            except StopIteration:
                continue
            waits += 1
            waiting.close()
        return waits

    assert uvloop.run(run()) == 0


async def test_a_failure_does_not_keep_others_from_their_turn() -> None:
    turns, done = PacedTurns(), []
    failed: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, about: failed.append(about["exception"]))
    turns.add(lambda: done.append(1))
    turns.add(lambda: 1 / 0)  # type: ignore[arg-type]
    turns.add(lambda: done.append(2))
    for _ in range(5):
        await asyncio.sleep(0)
    assert done == [1, 2]
    assert [type(each) for each in failed] == [ZeroDivisionError]
    turns.add(lambda: done.append(3))
    await asyncio.sleep(0)
    assert done == [1, 2, 3]


async def test_a_lane_of_one_is_next_to_a_lane_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 1e-9)  # each piece of work is all that a turn has time for
    turns, done = FairTurns(), []
    turns.add("crowd", partial(done.append, None))
    for number in range(10):
        turns.add("crowd", partial(done.append, number))
    turns.add("innocent", partial(done.append, -1))
    assert done == [None]
    for _ in range(20):
        await asyncio.sleep(0)
    assert done == [None, 0, -1, *range(1, 10)], "in their order, and the other client's is next"


async def test_little_work_is_done_at_once_and_much_is_not() -> None:
    turns, done = FairTurns(), []
    turns.add("a", partial(done.append, 1))
    assert done == [1]
    assert not turns.are_waited_for
    turns.add_later("a", partial(done.append, 2))
    turns.add("b", partial(done.append, 3))
    assert done == [1], "what is behind others waits, too"
    await asyncio.sleep(0)
    assert done == [1, 2, 3]
    turns.add("a", partial(slept, 2 * slices.SLICE_S))
    turns.add("b", partial(done.append, 4))
    assert done == [1, 2, 3], "this turn was used up"
    await asyncio.sleep(0)
    assert done == [1, 2, 3, 4]


async def test_a_lane_that_fails_does_not_keep_others_from_their_turn() -> None:
    turns, done = FairTurns(), []
    failed: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, about: failed.append(about["exception"]))
    turns.add_later("a", lambda: 1 / 0)  # type: ignore[arg-type]
    turns.add_later("b", partial(done.append, 1))
    for _ in range(3):
        await asyncio.sleep(0)
    assert done == [1]
    assert [type(each) for each in failed] == [ZeroDivisionError]


def slept(seconds: float) -> None:
    until = perf_counter() + seconds
    while perf_counter() < until:
        pass


def test_rows_go_when_the_next_is_asked_for() -> None:
    rows = [1, 2, 3]
    seen = [(row, len(rows)) for row in drained(rows)]
    assert seen == [(1, 2), (2, 1), (3, 0)]


class Row:
    __slots__ = ("number", "rows", "shared")

    def __init__(self, rows: list[Row], shared: tuple[Row, ...] = ()) -> None:
        self.rows, self.shared, self.number = rows, shared, 1


def test_long_lists_are_let_go_of_and_what_others_have_stays() -> None:
    """Rows of Metadata are one tuple for all topics of a size."""
    leaf = Row([])
    shared = (leaf,) * (2 * pace.MANY_ROWS)
    for message, long in (
        (Row([Row([], shared) for _ in range(pace.MANY_ROWS)]), lambda top: top.rows),
        (Row([Row([leaf] * pace.MANY_ROWS, shared)]), lambda top: top.rows[0].rows),
    ):
        assert len(long(message)) == pace.MANY_ROWS
        pace.let_go(message)
        assert long(message) == []
    few = Row([Row([leaf] * (pace.MANY_ROWS - 1))])
    pace.let_go(few)
    assert len(few.rows[0].rows) == pace.MANY_ROWS - 1, "they go quickly enough"
    assert len(shared) == 2 * pace.MANY_ROWS
