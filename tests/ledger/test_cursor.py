"""Cursors against a model that is a set, through any sequence of calls and restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NoReturn

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from magnetar.ledger.cursors.cursor import BEFORE_FIRST, Cursor, Start
from magnetar.ledger.errors import LedgerCorrupt, LedgerFenced, LedgerNotFound, StorageFailed
from magnetar.ledger.formats.cursor_info import CursorInfo, cursor_path, decode_cursor, encode_cursor
from magnetar.ledger.memory import MemoryDisk, MemoryEngine
from magnetar.ledger.port import Flush, LedgerPolicy, ManagedLedger, Position
from magnetar.metadata import (
    MUST_NOT_EXIST,
    InvalidPath,
    MemoryStore,
    MetadataUnavailable,
    MetadataUncertain,
    Op,
    Put,
)
from magnetar.metadata.parts import put_value
from tests.contracts.managed_ledger import settled
from tests.ledger.cursors import Ledgers, kept, mark_of
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
        self.cursors = await self.log.cursors()
        self.cursor = await self.cursors.open("c", Start.earliest)
        self.next = self._mark() + 1

    def _do(self, change: Callable[[], None]) -> None:
        async def run() -> None:
            change()
            await self.cursors.save()

        self.loop.run_until_complete(run())

    def _mark(self) -> int:
        """Return the place up to which everything is done with."""
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
        self._do(lambda: self.cursor.mark_delete(self.entries[place]))
        if place > self._mark():
            self.done.update(range(self.first, place + 1))

    @precondition(_has_entries)
    @rule(numbers=st.lists(AnyEntry, min_size=1, max_size=4))
    def deletes(self, numbers: list[int]) -> None:
        places = [self._some(number) for number in numbers]
        self._do(lambda: self.cursor.delete(*(self.entries[place] for place in places)))
        self.done.update(places)

    @precondition(_has_entries)
    @rule(one=AnyEntry, other=AnyEntry)
    def deletes_a_range(self, one: int, other: int) -> None:
        low, high = sorted((self._some(one), self._some(other)))
        self._do(lambda: self.cursor.delete_ranges([(self.entries[low], self.entries[high])]))
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
            self._do(lambda: self.cursor.seek(self.entries[place]))
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
        self._do(lambda: self.cursor.delete())

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
    cursors = await kept(log, store)
    for name in ("a", "with/slash", "ü"):
        await cursors.open(name)
    assert cursors.names() == ["a", "with/slash", "ü"]
    assert await cursors.open("a") is await cursors.open("a")
    gone = await cursors.open("a")
    await cursors.delete("a")
    await cursors.delete("never")
    assert (await kept(log, store)).names() == ["with/slash", "ü"]
    await append_durably(log, b"x")
    with pytest.raises(LedgerFenced):
        gone.mark_delete(Position(log.ledgers()[0].ledger_id, 0))


async def test_a_new_cursor_begins_at_either_end(log: ManagedLedger) -> None:
    for _ in range(6):
        await append_durably(log, b"x")
    cursors = await kept(log, MemoryStore())
    assert (await cursors.open("new")).backlog() == 0
    assert (await cursors.open("old", Start.earliest)).backlog() == 6
    reader = await cursors.non_durable(Start.earliest)
    assert len(await reader.read()) == 4  # what lies in one ledger
    assert len(await reader.read()) == 2
    assert cursors.names() == ["new", "old"]


async def test_two_owners_do_not_overwrite_each_other(log: ManagedLedger) -> None:
    positions = [(await append_durably(log, b"x")).position for _ in range(3)]
    store = MemoryStore()
    ours, theirs = await kept(log, store), await kept(log, store)
    one = await ours.open("c", Start.earliest)
    theirs = await kept(log, store)
    two = await theirs.open("c")
    one.mark_delete(positions[0])
    await ours.save()
    two.mark_delete(positions[1])
    with pytest.raises(LedgerFenced):
        await theirs.save()
    with pytest.raises(LedgerFenced):
        two.mark_delete(positions[2])
    assert await mark_of(log, store) == positions[0]


async def test_saving_may_wait(log: ManagedLedger) -> None:
    positions = [(await append_durably(log, b"x")).position for _ in range(3)]
    now = [5000]
    store = MemoryStore()
    cursors = await kept(log, store, clock=lambda: now[0])
    cursors.save_interval_ms = 1000
    cursor = await cursors.open("c", Start.earliest)
    cursor.mark_delete(positions[0])
    assert cursors.unsaved
    assert (await mark_of(log, store)).entry_id == BEFORE_FIRST
    await cursors.save()
    assert not cursors.unsaved
    assert await mark_of(log, store) == positions[0]
    now[0] += 1000
    cursor.mark_delete(positions[1])
    await asyncio.sleep(0.05)
    assert not cursors.unsaved, "it was kept without being asked"
    assert await mark_of(log, store) == positions[1]


async def test_positions_that_never_were_are_refused(log: ManagedLedger) -> None:
    there = (await append_durably(log, b"x")).position
    cursor = await (await kept(log, MemoryStore())).open("c")
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
    cursors = await kept(log, store)
    cursor = await cursors.open("c", Start.earliest)

    async def parts() -> dict[tuple[int, int], int]:
        await cursors.save()
        return (await (await kept(log, store)).open("c")).partly

    cursor.partly[places[1]] = 1 << 100 | 0b101
    cursor.partly[places[2]] = 1
    cursor.keep()
    assert await parts() == {places[1]: 1 << 100 | 0b101, places[2]: 1}
    cursor.mark_delete(places[1])
    assert await parts() == {places[2]: 1}
    cursor.delete(places[2])
    assert await parts() == {}
    cursor.partly[places[3]] = 1
    cursor.seek(places[0])
    assert await parts() == {}


async def test_many_cursors_share_a_commit(log: ManagedLedger) -> None:
    position = (await append_durably(log, b"x")).position
    store, commits = MemoryStore(), []
    commit = store.commit

    async def counted(ops: Sequence[Op]) -> list[int]:
        commits.append(len(ops))
        return await commit(ops)

    store.commit = counted  # type: ignore[method-assign]
    cursors = await kept(log, store)
    some = await asyncio.gather(*(cursors.open(f"c{n}", Start.earliest) for n in range(300)))
    commits.clear()
    for each in some:
        each.mark_delete(position)
    await cursors.save()
    assert commits == [300]


async def test_what_a_refusing_store_did_not_keep_is_kept_later(log: ManagedLedger) -> None:
    positions = [(await append_durably(log, b"x")).position for _ in range(2)]
    store = MemoryStore()
    cursors = await kept(log, store)
    cursor = await cursors.open("c", Start.earliest)
    commit = store.commit

    async def refused(ops: Sequence[Op]) -> list[int]:
        raise MetadataUnavailable("for a test")

    async def uncertain(ops: Sequence[Op]) -> list[int]:
        await commit(ops)
        raise MetadataUncertain("for a test")

    for failing, position in ((refused, positions[0]), (uncertain, positions[1])):
        store.commit = failing  # type: ignore[method-assign]
        cursor.mark_delete(position)
        with pytest.raises(StorageFailed):
            await cursors.save()
        assert cursors.unsaved
        store.commit = commit  # type: ignore[method-assign]
        await cursors.save()
        assert await mark_of(log, store) == position


async def test_who_waits_is_told_when_nobody_can_say_either_what_was_kept(log: ManagedLedger) -> None:
    position = (await append_durably(log, b"x")).position
    store = MemoryStore()
    cursors = await kept(log, store)
    cursor = await cursors.open("c", Start.earliest)
    commit, get = store.commit, store.get

    async def uncertain(ops: Sequence[Op]) -> list[int]:
        await commit(ops)
        raise MetadataUncertain("for a test")

    async def refused(path: str) -> NoReturn:
        raise MetadataUnavailable("for a test")

    store.commit = uncertain  # type: ignore[method-assign]
    cursor.mark_delete(position)
    with pytest.raises(StorageFailed):
        await cursors.save()
    store.commit, store.get = commit, refused  # type: ignore[method-assign]
    with pytest.raises(StorageFailed):
        await cursors.save()
    store.get = get  # type: ignore[method-assign]
    await cursors.save()
    assert await mark_of(log, store) == position


async def test_a_surprise_about_one_cursor_is_told_to_whoever_waits_and_the_others_are_kept(
    log: ManagedLedger,
) -> None:
    position = (await append_durably(log, b"x")).position
    store = MemoryStore()
    cursors = await kept(log, store)
    for name in ("a", "b", "c"):
        (await cursors.open(name, Start.earliest)).mark_delete(position)

    def surprising() -> CursorInfo:
        raise ZeroDivisionError

    await cursors.save()
    info = CursorInfo(Position(position.ledger_id, BEFORE_FIRST))
    for name in ("a", "c"):
        cursors.change(name, lambda: info)
    cursors.change("b", surprising)
    with pytest.raises(StorageFailed, match="ZeroDivisionError"):
        await asyncio.wait_for(cursors.save(), 5)
    assert cursors.unsaved, "it is tried again"
    for name, mark in (("a", info.mark_delete), ("b", position), ("c", info.mark_delete)):
        assert await mark_of(log, store, name) == mark
    cursors.change("b", lambda: info)
    await cursors.save()
    assert not cursors.unsaved
    assert await mark_of(log, store, "b") == info.mark_delete


async def test_a_surprise_of_the_store_is_told_to_whoever_waits(log: ManagedLedger) -> None:
    store = MemoryStore()
    cursors = await kept(log, store)
    await cursors.open("a")
    commit = store.commit

    async def surprising(ops: Sequence[Op]) -> list[int]:
        raise ZeroDivisionError

    store.commit = surprising  # type: ignore[method-assign]
    with pytest.raises(StorageFailed):
        await asyncio.wait_for(cursors.open("b"), 5)
    store.commit = commit  # type: ignore[method-assign]
    assert (await cursors.open("b")).name == "b"


async def test_a_cursor_that_no_store_takes_harms_no_other(log: ManagedLedger) -> None:
    position = (await append_durably(log, b"x")).position
    store = MemoryStore()
    cursors = await kept(log, store)
    good = await cursors.open("good", Start.earliest)
    bad = await cursors.open("bad", Start.earliest)
    commit = store.commit

    async def refusing(ops: Sequence[Op]) -> list[int]:
        if any(op.path.endswith("/bad") for op in ops):
            raise InvalidPath("for a test")
        return await commit(ops)

    store.commit = refusing  # type: ignore[method-assign]
    bad.mark_delete(position)
    good.mark_delete(position)
    with pytest.raises(StorageFailed):
        await cursors.save()
    assert await mark_of(log, store, "good") == position


async def test_a_cursor_of_which_nobody_knows_whether_it_was_made_is_found_by_whoever_asks_next(
    log: ManagedLedger,
) -> None:
    store = MemoryStore()
    cursors = await kept(log, store)
    commit = store.commit

    async def uncertain(ops: Sequence[Op]) -> list[int]:
        await commit(ops)
        raise MetadataUncertain("for a test")

    store.commit = uncertain  # type: ignore[method-assign]
    with pytest.raises(StorageFailed):
        await cursors.open("c", Start.earliest)
    store.commit = commit  # type: ignore[method-assign]
    position = (await append_durably(log, b"x")).position
    (await cursors.open("c")).mark_delete(position)
    await cursors.save()
    assert await mark_of(log, store) == position


async def test_what_is_on_its_way_is_not_kept_yet(log: ManagedLedger) -> None:
    position = (await append_durably(log, b"x")).position
    store, goes_on = MemoryStore(), asyncio.Event()
    cursors = await kept(log, store)
    cursor = await cursors.open("c", Start.earliest)
    commit = store.commit

    async def slow(ops: Sequence[Op]) -> list[int]:
        await goes_on.wait()
        return await commit(ops)

    store.commit = slow  # type: ignore[method-assign]
    cursor.mark_delete(position)
    await asyncio.sleep(0.01)
    assert cursors.unsaved
    saving = asyncio.ensure_future(cursors.save())
    await asyncio.sleep(0.01)
    assert not saving.done()
    goes_on.set()
    await saving
    assert not cursors.unsaved
    assert await mark_of(log, store) == position


async def test_who_asks_while_a_large_state_is_written_is_told_when_it_is_kept(log: ManagedLedger) -> None:
    position = (await append_durably(log, b"x")).position
    store, ledgers, goes_on = MemoryStore(), Ledgers(), asyncio.Event()
    write = ledgers.write

    async def slow(state: bytes) -> int:
        await goes_on.wait()
        return await write(state)

    ledgers.write = slow  # type: ignore[method-assign]
    cursors = await kept(log, store, ledgers)
    cursor = await cursors.open("c", Start.earliest)
    large = (1 << 3_000_000) - 1
    cursor.partly[position] = large
    cursor.keep()
    await asyncio.sleep(0.01)
    saving = asyncio.ensure_future(cursors.save())
    await asyncio.sleep(0.01)
    commit, goes_on_committing = store.commit, asyncio.Event()

    async def slow_commit(ops: Sequence[Op]) -> list[int]:
        await goes_on_committing.wait()
        return await commit(ops)

    store.commit = slow_commit  # type: ignore[method-assign]
    goes_on.set()
    await asyncio.sleep(0.01)
    assert not saving.done(), "it is told before the commit that keeps it"
    goes_on_committing.set()
    await saving
    assert (await (await kept(log, store, ledgers)).open("c")).partly == {position: large}
    assert len(ledgers.states) == 1


async def test_a_log_is_deleted_while_others_have_always_something_to_keep() -> None:
    store = MemoryStore()
    engine = MemoryEngine(store)
    await engine.start()
    busy = await engine.open(NAME + "0", POLICY)
    position = (await append_durably(busy, b"x")).position
    cursor = await (await busy.cursors()).open("c", Start.earliest)
    gone = await engine.open(NAME, POLICY)
    await (await gone.cursors()).open("c")
    commit, ends = store.commit, False

    async def more(ops: Sequence[Op]) -> list[int]:
        if not ends:
            cursor.partly[position] = 1
            cursor.keep()
        return await commit(ops)

    store.commit = more  # type: ignore[method-assign]
    cursor.keep()
    await asyncio.wait_for(engine.delete(NAME), 5)
    ends = True
    assert await store.get(cursor_path(NAME, "c")) is None
    await engine.close()


async def test_a_cursor_that_names_a_topics_ledger_takes_nothing_of_it_along() -> None:
    """As one may that comes from a cluster, where ids were given out by somebody else."""
    store = MemoryStore()
    engine = MemoryEngine(store)
    await engine.start()
    log = await engine.open(NAME, POLICY)
    position = (await append_durably(log, b"x")).position
    foreign = encode_cursor(CursorInfo(Position(-1, -1), ledger_id=position.ledger_id))
    for name in ("a", "b"):
        await store.commit([Put(cursor_path(NAME, name), foreign, MUST_NOT_EXIST)])
    cursors = await log.cursors()
    with pytest.raises(LedgerCorrupt):
        await cursors.open("a")
    await cursors.delete("a")
    await asyncio.sleep(0.05)
    assert await log.read(0, max_bytes=1000)
    await engine.release(NAME)
    assert await (await engine.open(NAME, POLICY)).read(0, max_bytes=1000)
    await engine.close()


async def test_a_state_that_outgrows_the_metadata_lies_in_a_ledger(log: ManagedLedger) -> None:
    places = [(await append_durably(log, b"x")).position for _ in range(4)]
    store, ledgers = MemoryStore(), Ledgers()
    cursors = await kept(log, store, ledgers)
    cursor = await cursors.open("c", Start.earliest)
    large = (1 << 3_000_000) - 1
    for _ in range(2):  # each time a new one, and the one before is let go of
        cursor.partly[places[2]] = large
        cursor.delete(places[0])
        cursor.keep()
        await cursors.save()
        assert len(ledgers.states) == 1
    stored = await store.get(cursor_path(log.name, "c"))
    assert stored is not None
    assert len(stored.value) < 100
    assert decode_cursor(stored.value).ledger_id in ledgers.states
    again = await (await kept(log, store, ledgers)).open("c")
    assert again.mark_delete_position == places[0]
    assert again.partly == {places[2]: large}
    elsewhere = await kept(log, store, Ledgers())
    with pytest.raises(LedgerNotFound, match=r"lies in ledger \d+, which is not here"):
        await elsewhere.open("c")
    cursor.mark_delete(places[3])
    await cursors.save()
    assert not ledgers.states, "it is small again"
    assert await mark_of(log, store) == places[3]


async def test_cursors_that_brokers_before_these_wrote_are_opened(log: ManagedLedger) -> None:
    places = [(await append_durably(log, b"x")).position for _ in range(10)]
    assert {each.ledger_id for each in places} == {0, 1, 2}
    store = MemoryStore()
    for name, value in (
        (
            "s",
            "08ffffffffffffffffff0110001801220c0a0408001002120408001003220c0a040801100112040801100230cd89dff8a034"
            "3a080a0408021000100542090a0377686f12026d65",
        ),
        ("pulsar.dedup", "08ffffffffffffffffff011002180130e8072a080a0470726f641009"),
    ):
        await store.commit([Put(cursor_path(log.name, name), bytes.fromhex(value), MUST_NOT_EXIST)])
    cursors = await kept(log, store)
    cursor = await cursors.open("s")
    assert cursor.mark_delete_position == places[1]
    assert cursor.deleted_ranges() == [(places[2], places[3]), (places[5], places[6])]
    assert cursor.partly == {places[8]: 5}
    assert cursor.properties == {"who": "me"}
    sequence_ids = await cursors.read("pulsar.dedup")
    assert sequence_ids is not None
    assert (sequence_ids.mark_delete, sequence_ids.numbers) == (places[9], {"prod": 9})
    cursor.mark_delete(places[4])
    await cursors.save()
    assert await mark_of(log, store, "s") == places[4]


async def test_sequence_ids_that_were_kept_in_parts_are_read(log: ManagedLedger) -> None:
    numbers = {f"{n}" * 300: n for n in range(4000)}
    value = encode_cursor(CursorInfo(Position(0, 0), numbers=numbers))
    store = MemoryStore()
    await put_value(store, cursor_path(log.name, "pulsar.dedup"), value, MUST_NOT_EXIST)
    kept_there = await (await kept(log, store)).read("pulsar.dedup")
    assert kept_there is not None
    assert kept_there.numbers == numbers


async def test_fields_that_nobody_here_knows_stay(log: ManagedLedger) -> None:
    position = (await append_durably(log, b"x")).position
    store = MemoryStore()
    foreign = (
        encode_cursor(CursorInfo(Position(position.ledger_id, -1), numbers={"p": 7}))
        + b"\x78\x05\x82\x01\x01a"
    )
    path = cursor_path(log.name, "c")
    await store.commit([Put(path, foreign, MUST_NOT_EXIST)])
    cursors = await kept(log, store)
    (await cursors.open("c")).mark_delete(position)
    await cursors.save()
    stored = await store.get(path)
    assert stored is not None
    assert decode_cursor(stored.value).mark_delete == position
    assert stored.value.endswith(b"\x78\x05\x82\x01\x01a")


async def test_a_state_in_a_ledger_survives_a_restart_of_the_engine() -> None:
    metadata, disk = MemoryStore(), MemoryDisk()
    engine = MemoryEngine(metadata, disk)
    await engine.start()
    log = await engine.open(NAME, POLICY)
    place = [(await append_durably(log, b"x")).position for _ in range(2)][1]
    cursor = await (await log.cursors()).open("c", Start.earliest)
    cursor.partly[place] = large = (1 << 12_000_000) - 1
    cursor.keep()
    await engine.close()  # which keeps it
    engine = MemoryEngine(metadata, disk)
    await engine.start()
    log = await engine.open(NAME, POLICY)
    files = {path for path in disk._files if path.suffix == ".ledger"}
    assert len(files) == 2
    assert (await (await log.cursors()).open("c")).partly == {place: large}
    await engine.delete(NAME)
    await engine.close()
    assert not {path for path in disk._files if path.suffix == ".ledger"}


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
    assert cursor_path("t/n/persistent/a+b", "c/d e") == "/managed-ledgers/t/n/persistent/a+b/c%2Fd+e"
