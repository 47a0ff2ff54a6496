"""Cursors against a model that is a set, through any sequence of calls and restarts."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from magnetar.ledger.cursor import BEFORE_FIRST, Cursor, Cursors, Start
from magnetar.ledger.cursor_info import CursorInfo, cursor_path, decode_cursor, encode_cursor
from magnetar.ledger.errors import LedgerCorrupt, LedgerFenced, LedgerNotFound
from magnetar.ledger.memory import MemoryDisk, MemoryEngine
from magnetar.ledger.port import Flush, LedgerPolicy, ManagedLedger, Position
from magnetar.metadata import MemoryStore
from tests.contracts.managed_ledger import settled
from tests.ledger.entries import NOW_MS, append_durably, prepared

NAME = "public/default/persistent/t-partition-0"
POLICY = LedgerPolicy(flush=Flush.os, max_ledger_entries=4)
AnyEntry = st.integers(0, 10_000)


class CursorMachine(RuleBasedStateMachine):
    """``entries`` is every entry ever appended, ``done`` the places in it that are done with, ``next`` is read next."""

    log: ManagedLedger
    cursor: Cursor

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.metadata, self.disk = MemoryStore(), MemoryDisk()
        self.entries: list[Position] = []
        self.done: set[int] = set()
        self.first = self.next = 0
        self.engine: MemoryEngine | None = None

    @initialize()
    def open(self) -> None:
        self.loop.run_until_complete(self._open())

    async def _open(self) -> None:
        if self.engine is not None:
            await self.engine.close()
        self.engine = MemoryEngine(self.metadata, self.disk)
        await self.engine.start()
        self.log = await prepared(await self.engine.open(NAME, POLICY))
        self.cursors = Cursors(self.log, self.metadata)
        self.cursor = self.cursors.open("c", Start.earliest)
        self.next = self._mark() + 1

    def _mark(self) -> int:
        """Give the place up to which everything is done with."""
        mark = self.first - 1
        while mark + 1 in self.done:
            mark += 1
        return mark

    def _some(self, number: int) -> int:
        return self.first + number % (len(self.entries) - self.first)

    def _has_entries(self) -> bool:
        return len(self.entries) > self.first

    @rule(count=st.integers(1, 6))
    def appends(self, count: int) -> None:
        async def run() -> None:
            for _ in range(count):
                self.entries.append(
                    (
                        await append_durably(self.log, b"x", b"y", timestamp_ms=NOW_MS + len(self.entries))
                    ).position
                )

        self.loop.run_until_complete(run())

    @precondition(_has_entries)
    @rule(number=AnyEntry)
    def marks_deleted(self, number: int) -> None:
        place = self._some(number)
        self.cursor.mark_delete(self.entries[place])
        if place > self._mark():
            self.done.update(range(self.first, place + 1))

    @precondition(_has_entries)
    @rule(numbers=st.lists(AnyEntry, min_size=1, max_size=4))
    def deletes(self, numbers: list[int]) -> None:
        places = [self._some(number) for number in numbers]
        self.cursor.delete(*(self.entries[place] for place in places))
        self.done.update(places)

    @precondition(_has_entries)
    @rule(one=AnyEntry, other=AnyEntry)
    def deletes_a_range(self, one: int, other: int) -> None:
        low, high = sorted((self._some(one), self._some(other)))
        self.cursor.delete_ranges([(self.entries[low], self.entries[high])])
        self.done.update(range(low, high + 1))

    @rule(most=st.integers(1, 7), max_bytes=st.sampled_from((1, 300, 10_000)))
    def reads(self, most: int, max_bytes: int) -> None:
        found = self.loop.run_until_complete(self.cursor.read(max_entries=most, max_bytes=max_bytes))
        left = [
            place for place in range(max(self.next, self.first), len(self.entries)) if place not in self.done
        ]
        positions = [Position(entry.ledger_id, entry.entry_id) for entry in found]
        assert positions == [self.entries[place] for place in left[: len(found)]]
        assert len(found) <= most
        assert found or not left
        self.next = left[len(found) - 1] + 1 if found else len(self.entries)

    @rule()
    def rewinds(self) -> None:
        self.cursor.rewind()
        self.next = self._mark() + 1

    @precondition(_has_entries)
    @rule(number=AnyEntry, how=st.sampled_from(("position", "offset", "time")))
    def seeks(self, number: int, how: str) -> None:
        place = self._some(number)
        if how == "position":
            self.cursor.seek(self.entries[place])
        elif how == "offset":
            self.loop.run_until_complete(self.cursor.seek_offset(2 * place + number % 2))
        else:
            self.loop.run_until_complete(self.cursor.seek_time(NOW_MS + place))
        self.done = set(range(self.first, place))
        self.next = place

    @precondition(_has_entries)
    @rule(number=AnyEntry)
    def trims(self, number: int) -> None:
        async def run() -> None:
            ledger = self.entries[self._some(number)].ledger_id
            first = next(each for each in self.log.ledgers() if each.ledger_id == ledger).first_offset
            await settled(self.log, len(self.log.ledgers()))
            await self.log.trim(first)

        self.loop.run_until_complete(run())
        self.first = self.log.log_start_offset // 2
        self.next = max(self.next, self.first)
        self.cursor.delete()

    @rule()
    def reopens(self) -> None:
        self.loop.run_until_complete(self._open())

    @invariant()
    def it_agrees_with_the_model(self) -> None:
        if self.engine is None:
            return
        left = [place for place in range(self.first, len(self.entries)) if place not in self.done]
        assert self.cursor.backlog() == len(left)
        for place in range(self.first, len(self.entries)):
            assert self.cursor.is_done_with(self.entries[place]) == (place in self.done)
        mark = self._mark()
        position = self.cursor.mark_delete_position
        if mark >= self.first and position.entry_id != BEFORE_FIRST:
            assert position == self.entries[mark]
        elif mark + 1 < len(self.entries):
            assert self.entries[mark + 1][1] == 0, "before the first entry of a ledger"
        for lower, upper in self.cursor.deleted_ranges():
            assert lower.ledger_id == upper.ledger_id
            assert lower < upper

    def teardown(self) -> None:
        if self.engine is not None:
            self.loop.run_until_complete(self.engine.close())
        self.loop.close()


TestCursorMachine = CursorMachine.TestCase
TestCursorMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@pytest.fixture
async def log() -> ManagedLedger:
    engine = MemoryEngine()
    await engine.start()
    return await prepared(await engine.open(NAME, POLICY))


async def test_cursors_are_listed_and_deleted(log: ManagedLedger) -> None:
    store = MemoryStore()
    cursors = Cursors(log, store)
    for name in ("a", "with/slash", "ü"):
        cursors.open(name)
    assert cursors.names() == ["a", "with/slash", "ü"]
    assert cursors.open("a") is cursors.open("a")
    gone = cursors.open("a")
    cursors.delete("a")
    cursors.delete("never")
    assert Cursors(log, store).names() == ["with/slash", "ü"]
    await append_durably(log, b"x")
    with pytest.raises(LedgerFenced):
        gone.mark_delete(Position(log.ledgers()[0].ledger_id, 0))


async def test_a_new_cursor_begins_at_either_end(log: ManagedLedger) -> None:
    for _ in range(6):
        await append_durably(log, b"x")
    cursors = Cursors(log, MemoryStore())
    assert cursors.open("new").backlog() == 0
    assert cursors.open("old", Start.earliest).backlog() == 6
    reader = cursors.non_durable(Start.earliest)
    assert len(await reader.read()) == 4  # what lies in one ledger
    assert len(await reader.read()) == 2
    assert cursors.names() == ["new", "old"]


async def test_two_owners_do_not_overwrite_each_other(log: ManagedLedger) -> None:
    positions = [(await append_durably(log, b"x")).position for _ in range(3)]
    store = MemoryStore()
    one, two = Cursors(log, store).open("c", Start.earliest), Cursors(log, store).open("c")
    one.mark_delete(positions[0])
    with pytest.raises(LedgerFenced):
        two.mark_delete(positions[1])


async def test_saving_may_wait(log: ManagedLedger) -> None:
    positions = [(await append_durably(log, b"x")).position for _ in range(3)]
    now = [5000]
    store = MemoryStore()
    cursors = Cursors(log, store, clock=lambda: now[0], save_interval_ms=1000)
    cursor = cursors.open("c", Start.earliest)
    cursor.mark_delete(positions[0])
    assert Cursors(log, store).open("c").mark_delete_position.entry_id == BEFORE_FIRST
    cursors.save()
    assert Cursors(log, store).open("c").mark_delete_position == positions[0]
    now[0] += 1000
    cursor.mark_delete(positions[1])
    assert Cursors(log, store).open("c").mark_delete_position == positions[1]


async def test_positions_that_never_were_are_refused(log: ManagedLedger) -> None:
    there = (await append_durably(log, b"x")).position
    cursor = Cursors(log, MemoryStore()).open("c")
    for wrong in (Position(there.ledger_id, 1), Position(there.ledger_id + 1, 0)):
        with pytest.raises(LedgerNotFound):
            cursor.mark_delete(wrong)
        with pytest.raises(LedgerNotFound):
            cursor.delete(wrong)
        with pytest.raises(LedgerNotFound):
            cursor.delete_ranges([(there, wrong)])
    assert cursor.deleted_ranges() == []


async def test_parts_of_entries_are_kept_until_the_whole_is_done_with(log: ManagedLedger) -> None:
    places = [(await append_durably(log, b"x")).position for _ in range(4)]
    store = MemoryStore()
    cursor = Cursors(log, store).open("c", Start.earliest)
    cursor.partly[places[1]] = 1 << 100 | 0b101
    cursor.partly[places[2]] = 1
    cursor.keep()
    assert Cursors(log, store).open("c").partly == {places[1]: 1 << 100 | 0b101, places[2]: 1}
    cursor.mark_delete(places[1])
    assert Cursors(log, store).open("c").partly == {places[2]: 1}
    cursor.delete(places[2])
    assert Cursors(log, store).open("c").partly == {}
    cursor.partly[places[3]] = 1
    cursor.seek(places[0])
    assert Cursors(log, store).open("c").partly == {}


def test_parts_of_entries_are_encoded_as_pulsars() -> None:
    """BatchedEntryDeletionIndexInfo: a position, and the words of a bit set, the lowest first; -1 is all 64 bits."""
    info = CursorInfo(Position(5, 1), partly=((Position(5, 2), (1 << 64) - 1 | 3 << 64),))
    minus_one = b"\xff" * 9 + b"\x01"
    assert encode_cursor(info).endswith(
        b"\x3a\x13" + b"\x0a\x04\x08\x05\x10\x02" + b"\x10" + minus_one + b"\x10\x03"
    )
    assert decode_cursor(encode_cursor(info)) == info
    with pytest.raises(LedgerCorrupt, match="cursor c"):
        decode_cursor(encode_cursor(CursorInfo(Position(5, 1))) + b"\x3a\x02\x10\x03", name="c")


def test_the_encoding_is_pulsars() -> None:
    """Fields and types of ManagedCursorInfo in Pulsar's MLDataFormats.proto, written out by hand."""
    info = CursorInfo(Position(5, BEFORE_FIRST), ((Position(5, 1), Position(5, 3)),), 7)
    minus_one = b"\xff" * 9 + b"\x01"
    assert encode_cursor(info) == (
        b"\x08" + minus_one + b"\x10\x05\x18" + minus_one
        + b"\x22\x0c" + b"\x0a\x04\x08\x05\x10\x01" + b"\x12\x04\x08\x05\x10\x03"
        + b"\x30\x07"
    )  # fmt: skip
    assert decode_cursor(encode_cursor(info)) == info
    described = CursorInfo(Position(5, 1), properties={"a": "é"})
    assert encode_cursor(described).endswith(b"\x42\x07" + b"\x0a\x01a" + b"\x12\x02\xc3\xa9")
    assert decode_cursor(encode_cursor(described)) == described
    for damaged in (b"", b"\x08", b"\x10\x05\x18", encode_cursor(info)[:-9]):
        with pytest.raises(LedgerCorrupt, match="cursor c"):
            decode_cursor(damaged, name="c")
    assert cursor_path("t/n/persistent/a b", "c/d") == "/managed-ledgers/t/n/persistent/a%20b/c%2Fd"
