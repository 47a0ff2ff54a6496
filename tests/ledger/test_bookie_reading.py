"""Damaged entries of a ledger on bookies hide no others: what is before and behind them is read by its offset."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.ledger.bookkeeper import read_ahead
from magnetar.ledger.bookkeeper.reading import BookieReader
from magnetar.ledger.bookkeeper.tail import Tail
from magnetar.ledger.errors import LedgerCorrupt
from magnetar.records.entry import broker_entry_head, kafka_message_head
from tests.ledger.entries import NOW_MS, batch

ENTRIES, EACH = 400, 3


def entry(number: int) -> bytes:
    head = broker_entry_head(NOW_MS, (number + 1) * EACH - 1) + kafka_message_head(NOW_MS, EACH)
    return head + batch(*(b"%d" % (number * EACH + at) for at in range(EACH)))


ROWS = [entry(number) for number in range(ENTRIES)]


def reader(damaged: range) -> BookieReader:
    async def ask(first: int, last: int) -> list[bytes]:
        if any(number in damaged for number in range(first, last + 1)):
            raise LedgerCorrupt(f"entries {first} to {last}")
        return ROWS[first : last + 1]

    return BookieReader(7, 0, ask, Tail(0), ENTRIES, sum(map(len, ROWS)))


# The first place that a search by halves looks at, others on its way, a run of some, the ends.
@pytest.mark.parametrize(
    "damaged", [range(200, 201), range(100, 104), range(195, 215), range(1), range(399, 400)]
)
@pytest.mark.parametrize("max_bytes", [1, 5_000, 1 << 20])
async def test_every_offset_of_a_whole_entry_is_read_and_no_other(damaged: range, max_bytes: int) -> None:
    for number in {*range(0, ENTRIES, 7), *range(95, 110), *range(190, 220), 0, 399}:
        fresh = reader(damaged)  # one that has learnt nothing of where what lies
        offset = number * EACH + 1
        if number in damaged:
            with pytest.raises(LedgerCorrupt):
                await fresh.read(offset, max_bytes=max_bytes, up_to=1 << 60)
            continue
        found = await fresh.read(offset, max_bytes=max_bytes, up_to=1 << 60)
        assert found[0].entry_id == number
        ids = [each.entry_id for each in found]
        assert ids == list(range(number, number + len(ids)))
        assert not set(ids) & set(damaged)


class Bookies:
    """Rows, and what was asked for of them."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.damaged = range(0)
        self.broken: Exception | None = None
        self.wait: asyncio.Event | None = None

    async def ask(self, first: int, last: int) -> list[bytes]:
        self.asked.append((first, last))
        if self.wait is not None:
            await self.wait.wait()
        await asyncio.sleep(0)
        if self.broken is not None:
            raise self.broken
        if any(number in self.damaged for number in range(first, last + 1)):
            raise LedgerCorrupt(f"entries {first} to {last}")
        return ROWS[first : last + 1]

    def reader(self, tail: Tail) -> BookieReader:
        return BookieReader(7, 0, self.ask, tail, ENTRIES, sum(map(len, ROWS)))


MUCH = 4 * sum(map(len, ROWS))
SOME = 10 * len(ROWS[200])


async def read_on(reader: BookieReader, offset: int = 0, max_bytes: int = SOME, times: int = 1 << 30) -> int:
    """Read as consumers do, check what is read, and return where it ended."""
    while offset < ENTRIES * EACH and times:
        found = await reader.read(offset, max_bytes=max_bytes, up_to=1 << 60)
        first = offset // EACH
        assert [bytes(each.data) for each in found] == ROWS[first : first + len(found)]
        assert found
        offset, times = found[-1].last_offset + 1, times - 1
    return offset


async def test_what_comes_next_is_read_before_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "AHEAD_BYTES", SOME)
    bookies = Bookies()
    reader = bookies.reader(Tail(MUCH))
    offset = await read_on(reader, times=3)
    await asyncio.sleep(0.01)
    known = len(bookies.asked)
    await asyncio.sleep(0.01)
    assert len(bookies.asked) == known, "it is read ahead once, not on and on"
    assert bookies.asked[-1][1] >= offset // EACH + 5
    bookies.wait = asyncio.Event()  # nothing more is answered
    assert await asyncio.wait_for(read_on(reader, offset, times=1), 10) > offset
    bookies.wait.set()
    bookies.wait = None
    await read_on(reader, offset)
    rows = [number for first, last in bookies.asked for number in range(first, last + 1)]
    assert len(rows) < 1.1 * ENTRIES, "hardly anything is read twice"


async def test_who_reads_here_and_there_has_nothing_read_ahead() -> None:
    bookies = Bookies()
    tail = Tail(MUCH)
    reader = bookies.reader(tail)
    for number in (300, 40, 200, 100):
        await read_on(reader, number * EACH, times=1)
    await asyncio.sleep(0.01)
    assert tail.ahead.size == 0


@pytest.mark.parametrize("budget", [0, 8 * SOME, MUCH])
async def test_several_read_at_once_each_at_its_own_place(
    budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "AHEAD_BYTES", SOME)
    bookies, tail = Bookies(), Tail(budget)
    reader = bookies.reader(tail)
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, tail.ahead.size)
            await asyncio.sleep(0)

    watching = asyncio.ensure_future(watch())
    starts = (0, 60, 120, 121, 180, 300, 30, 90, 240, 150)  # more than are remembered
    await asyncio.gather(*(read_on(reader, start * EACH) for start in starts))
    watching.cancel()
    assert most <= budget // 4 + 2 * len(ROWS[-1]) * 10
    assert bool(most) is bool(budget)


async def test_what_nobody_came_for_makes_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "AHEAD_BYTES", SOME)
    now = 0.0
    tail = Tail(0)
    tail.ahead = read_ahead.AheadBudget(3 * SOME, clock=lambda: now)
    readers = [Bookies().reader(tail) for _ in range(6)]
    for each in readers[:3]:
        await read_on(each, times=3)
    await asyncio.sleep(0.01)
    full = tail.ahead.size
    await read_on(readers[4], times=3)
    await asyncio.sleep(0.01)
    assert SOME < full <= tail.ahead.size <= 3 * SOME, "it is taken from nobody who may read on"
    now = 60.0
    bookies = Bookies()
    late = bookies.reader(tail)
    offset = await read_on(late, times=3)
    await asyncio.sleep(0.01)
    assert bookies.asked[-1][1] > offset // EACH
    for each in readers[:3]:
        await read_on(each)  # whole, though what was kept for them is gone
    assert tail.ahead.size <= 3 * SOME


async def test_damage_ahead_is_told_to_who_asks_for_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "AHEAD_BYTES", SOME)
    bookies, tail = Bookies(), Tail(MUCH)
    bookies.damaged = range(55, 56)
    reader = bookies.reader(tail)
    offset = 0
    with pytest.raises(LedgerCorrupt):
        while True:
            offset = await read_on(reader, offset, times=1)
    assert offset == 55 * EACH
    offset = await read_on(reader, 56 * EACH, times=4)
    await asyncio.sleep(0.01)
    assert bookies.asked[-1][1] > offset // EACH, "behind it all goes on"
    await read_on(reader, offset)


async def test_reading_ahead_goes_on_when_bookies_answer_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "AHEAD_BYTES", SOME)
    bookies, tail = Bookies(), Tail(MUCH)
    reader = bookies.reader(tail)
    offset = await read_on(reader, times=1)
    bookies.damaged = range(20, 60)
    offset = await read_on(reader, offset, times=1)
    await asyncio.sleep(0.01)  # what comes next fails, and nobody has asked for it
    bookies.damaged = range(0)
    offset = await read_on(reader, offset, times=2)
    await asyncio.sleep(0.01)
    assert bookies.asked[-1][1] > offset // EACH


async def test_places_at_which_nobody_reads_any_more_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "AHEAD_BYTES", SOME)
    monkeypatch.setattr(read_ahead, "_MOST_USED", 5)
    tail = Tail(100 * MUCH)
    for _ in range(20):
        await read_on(Bookies().reader(tail), times=3)
        await asyncio.sleep(0.001)
    assert len(tail.ahead._used) == 5
    assert tail.ahead.size <= 5 * 3 * SOME


async def test_no_more_than_two_reads_are_ahead_of_who_reads_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "AHEAD_BYTES", SOME)
    bookies = Bookies()
    reader, offset = bookies.reader(Tail(MUCH)), 0
    for _ in range(10):
        offset = await read_on(reader, offset, max_bytes=SOME // 5, times=1)
        await asyncio.sleep(0.001)
    assert offset // EACH + 10 <= bookies.asked[-1][1] < offset // EACH + 22


async def test_who_reads_on_has_it_read_ahead_though_many_look_here_and_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(read_ahead, "AHEAD_BYTES", SOME)
    bookies = Bookies()
    reader, offset = bookies.reader(Tail(MUCH)), 0
    offset = await read_on(reader, offset, times=2)
    for number in range(12):
        await read_on(reader, (390 - 3 * number) * EACH, max_bytes=1, times=1)
        offset = await read_on(reader, offset, times=1)
    await asyncio.sleep(0.01)
    bookies.asked.clear()
    assert await read_on(reader, offset, times=1) > offset
    assert all(first > offset // EACH for first, _ in bookies.asked), "what it came for was there"


async def test_whatever_ends_reading_ahead_does_not_end_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "AHEAD_BYTES", SOME)
    bookies, tail = Bookies(), Tail(MUCH)
    reader = bookies.reader(tail)
    offset = await read_on(reader, times=1)
    bookies.broken = RuntimeError("Java has no memory")
    with pytest.raises(RuntimeError):
        await read_on(reader, offset, times=3)
    await asyncio.sleep(0.01)
    bookies.broken = None
    await read_on(reader, offset)
    await asyncio.sleep(0.01)
    assert tail.ahead.size <= 3 * SOME
