"""A share partition against a model that keeps one row per record: whatever members, clocks and crashes do."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from magnetar.coordination.shares.runs import DONE, NEVER_MS, OffsetRun, RecordState
from magnetar.coordination.shares.share_partition import (
    AcknowledgeType,
    DeadLetters,
    Judged,
    NotHeld,
    SharePartition,
    Standing,
    StateBatch,
)
from magnetar.kafka.shares.state import merged

LIMIT = 3
LOCKS = 12
LENT = "consumers of another protocol"
MEMBERS = st.sampled_from(["a", "b", "c"])
VERDICTS = st.sampled_from(list(AcknowledgeType))
NEAR = st.integers(-2, 12)
"""Offsets from where the books begin."""


@dataclass(frozen=True)
class Row:
    """One record, as the model has it."""

    state: RecordState
    count: int
    holder: str = ""
    until_ms: int = 0


FRESH = Row(RecordState.AVAILABLE, 0)


def span_of(run: DeadLetters) -> range:
    return range(run.first, run.last + 1)


class Model:
    """The same, the slow way."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self.rows: dict[int, Row] = {}
        self.has_dead_letters = False
        self.letters: list[tuple[int, int, bool]] = []

    def free(self, offset: int) -> None:
        row = self.rows[offset]
        if row.count >= LIMIT:
            self.give_up(offset, rejected=False)
        else:
            self.rows[offset] = Row(RecordState.AVAILABLE, row.count)

    def give_up(self, offset: int, *, rejected: bool) -> None:
        count = self.rows[offset].count
        self.rows[offset] = Row(
            RecordState.ARCHIVING if self.has_dead_letters else RecordState.ARCHIVED, count
        )
        if self.has_dead_letters:
            self.letters.append((offset, count, rejected))

    def advance(self) -> None:
        while self.start < self.end and self.rows[self.start].state in DONE:
            del self.rows[self.start]
            self.start += 1

    def in_flight(self) -> int:
        return sum(row.state not in DONE for row in self.rows.values())


class ShareHistory(RuleBasedStateMachine):
    """A log of batches with gaps between them, members that take and judge, locks that end, crashes."""

    @initialize(start=st.integers(0, 5), size=st.integers(1, 6), letters=st.booleans())
    def begin(self, start: int, size: int, letters: bool) -> None:
        self.now_ms = 0
        self.machine = SharePartition(start)
        self.model = Model()
        self.model.start = self.model.end = start
        self.batches: list[tuple[int, int]] = []
        self.log_end = start
        self.stored: tuple[StateBatch, ...] = ()
        self.stored_start = start
        self.acknowledged: set[int] = set()
        self.unsent: list[DeadLetters] = []
        self.model.has_dead_letters = letters
        self.append(0, size)
        self.settled()

    def settled(self) -> None:
        """What has changed is made durable, as it would be; then letters may be sent."""
        changes = self.machine.take_changes()
        if changes is not None:
            self.stored_start = changes.start_offset
            self.stored = merged(self.stored, changes.batches, changes.start_offset)
        letters = self.machine.take_dead_letters()
        told = [(offset, run.deliveries, run.rejected) for run in letters for offset in span_of(run)]
        assert sorted(told) == sorted(self.model.letters)
        self.model.letters.clear()
        self.unsent += letters

    @rule(are_there=st.booleans())
    def dead_letters(self, are_there: bool) -> None:
        """The group is given a queue for what it gives up, or has none any more."""
        self.model.has_dead_letters = are_there

    @precondition(lambda self: self.unsent)
    @rule(sent=st.integers(1, 3), fewer=st.integers(0, 3))
    def bury(self, sent: int, fewer: int) -> None:
        """Some letters are durable, of the last ones only a part."""
        for letters in self.unsent[:sent]:
            last = max(letters.last - fewer, letters.first)
            self.machine.archived(letters.first, last)
            for offset in range(letters.first, last + 1):
                row = self.model.rows.get(offset, FRESH)
                if row.state is RecordState.ARCHIVING:
                    self.model.rows[offset] = Row(RecordState.ARCHIVED, row.count)
        self.unsent = [each for each in self.unsent[:sent] if each.last - fewer < each.last] + self.unsent[
            sent:
        ]
        self.model.advance()
        self.settled()

    @rule(gap=st.integers(0, 2), size=st.integers(1, 6))
    def append(self, gap: int, size: int) -> None:
        first = self.log_end + gap
        self.batches.append((first, first + size - 1))
        self.log_end = first + size

    @precondition(lambda self: self.machine.next_offset < self.log_end)
    @rule(member=MEMBERS)
    def acquire_much(self, member: str) -> None:
        self.acquire(member, 100, False, 3)

    @rule(sizes=st.lists(st.integers(1, 4), min_size=2, max_size=4))
    def append_more(self, sizes: list[int]) -> None:
        for size in sizes:
            self.append(0, size)

    @precondition(lambda self: self.machine.next_offset < self.log_end)
    @rule(member=MEMBERS, most=st.integers(1, 10), strict=st.booleans(), locked_ms=st.integers(1, 5))
    def acquire(self, member: str, most: int, strict: bool, locked_ms: int) -> None:
        model = self.model
        at = self.machine.next_offset
        spans = [each for each in self.batches if each[1] >= at]
        until_ms = self.now_ms + locked_ms
        given = self.machine.acquire(
            member, spans, most, max_in_flight=LOCKS, until_ms=until_ms, strict=strict
        )
        expected: list[tuple[int, int]] = []
        room = most
        for first, last in spans:
            if room <= 0:
                break
            whole = list(range(max(first, model.start), last + 1))
            known = [
                each for each in whole if each < model.end and model.rows[each].state is RecordState.AVAILABLE
            ]
            known = known[:room] if strict else known
            room -= len(known)
            for offset in known:
                count = model.rows[offset].count + 1
                model.rows[offset] = Row(RecordState.ACQUIRED, count, member, until_ms)
                expected.append((offset, count))
            new = [each for each in whole if each >= model.end]
            if not new or model.in_flight() >= LOCKS or (strict and room <= 0):
                continue
            for offset in range(model.end, new[0]):
                model.rows[offset] = Row(RecordState.ARCHIVED, 0)
            new = new[: min(room, LOCKS - model.in_flight())] if strict else new
            room -= len(new)
            for offset in new:
                model.rows[offset] = Row(RecordState.ACQUIRED, 1, member, until_ms)
                expected.append((offset, 1))
            model.end = new[-1] + 1
        model.advance()
        got = [(offset, run.deliveries) for run in given for offset in range(run.first, run.last + 1)]
        assert got == expected
        assert not self.acknowledged & {offset for offset, _ in got}, "what was acknowledged came again"
        if strict:
            assert len(got) <= most
        self.settled()

    def members(self) -> list[str]:
        """Return who holds anything."""
        return sorted({row.holder for row in self.model.rows.values()} - {"", LENT})

    @precondition(lambda self: self.members())
    @rule(which=st.integers(0, 2), verdict=VERDICTS)
    def judge_all_alike(self, which: int, verdict: AcknowledgeType) -> None:
        self.judge(which, [verdict] * 100, 0)

    @precondition(lambda self: self.members())
    @rule(
        which=st.integers(0, 2),
        verdicts=st.lists(VERDICTS, min_size=1, max_size=8),
        skip=st.integers(0, 3),
    )
    def judge(self, which: int, verdicts: list[AcknowledgeType], skip: int) -> None:
        members = self.members()
        member = members[which % len(members)]
        held = sorted(offset for offset, row in self.model.rows.items() if row.holder == member)[skip:]
        said = [Judged(offset, offset, verdict) for offset, verdict in zip(held, verdicts, strict=False)]
        until_ms = self.now_ms + 3
        dead_letters = self.model.has_dead_letters
        self.machine.judge(member, said, max_deliveries=LIMIT, until_ms=until_ms, dead_letters=dead_letters)
        for offset, _, verdict in said:
            row = self.model.rows[offset]
            if verdict is AcknowledgeType.RENEW:
                self.model.rows[offset] = replace(row, until_ms=until_ms)
            elif verdict is AcknowledgeType.RELEASE:
                self.model.free(offset)
            elif verdict is AcknowledgeType.ACCEPT:
                self.model.rows[offset] = Row(RecordState.ACKNOWLEDGED, row.count)
                self.acknowledged.add(offset)
            elif verdict is AcknowledgeType.REJECT:
                self.model.give_up(offset, rejected=True)
            else:
                self.model.rows[offset] = Row(RecordState.ARCHIVED, row.count)
        self.model.advance()
        self.settled()

    @rule(member=MEMBERS, near=NEAR, size=st.integers(1, 5))
    def judge_what_is_not_its_own(self, member: str, near: int, size: int) -> None:
        first = max(self.model.start + near, 0)
        offsets = [each for each in range(first, first + size) if each >= self.model.start]
        rows = [self.model.rows.get(each, FRESH) for each in offsets]
        if all(row.holder == member for row in rows):
            return
        before = self.machine.runs()
        with pytest.raises(NotHeld):
            self.machine.judge(
                member,
                [Judged(first, first + size - 1, AcknowledgeType.ACCEPT)],
                max_deliveries=LIMIT,
            )
        assert self.machine.runs() == before

    def span(self, first: int, size: int) -> list[int]:
        """Return offsets that the log has."""
        return list(range(max(first, self.model.start), min(first + size, self.log_end)))

    def know(self, end: int) -> None:
        """Nobody was given anything before ``end`` that is not known yet: it is free."""
        for offset in range(self.model.end, end):
            self.model.rows[offset] = FRESH
        self.model.end = max(self.model.end, end)

    @rule(near=NEAR, size=st.integers(1, 5))
    def claim(self, near: int, size: int) -> None:
        first = max(self.model.start + near, 0)
        span = self.span(first, size)
        if not span:
            return
        self.machine.claim(LENT, span[0], span[-1])
        self.know(span[0])
        for offset in span:
            row = self.model.rows.get(offset, FRESH)
            if row.state is RecordState.AVAILABLE:
                self.model.rows[offset] = Row(RecordState.ACQUIRED, row.count + 1, LENT, NEVER_MS)
        self.model.end = max(self.model.end, span[-1] + 1)
        self.model.advance()
        self.settled()

    @rule(near=NEAR, size=st.integers(1, 5))
    def unclaim(self, near: int, size: int) -> None:
        """What is given back so is free, however often it was delivered."""
        first = max(self.model.start + near, 0)
        held = [each for each in self.span(first, size) if self.is_lent(each)]
        assert self.machine.unclaim(LENT, first, first + size - 1) == len(held)
        for offset in held:
            self.model.rows[offset] = Row(RecordState.AVAILABLE, self.model.rows[offset].count)
        self.settled()

    @rule(near=NEAR, size=st.integers(1, 5))
    def accept(self, near: int, size: int) -> None:
        first = max(self.model.start + near, 0)
        span = self.span(first, size)
        if not span:
            return
        held = [each for each in span if self.is_lent(each)]
        assert self.machine.accept(span[0], span[-1], LENT) == len(held)
        self.know(span[-1] + 1)
        for offset in span:
            row = self.model.rows[offset]
            if row.state not in DONE:
                self.model.rows[offset] = Row(RecordState.ACKNOWLEDGED, row.count)
                self.acknowledged.add(offset)
        self.model.advance()
        self.settled()

    def is_lent(self, offset: int) -> bool:
        return self.model.rows.get(offset, FRESH).holder == LENT

    @rule(near=NEAR, size=st.integers(1, 5))
    def look(self, near: int, size: int) -> None:
        first = max(self.model.start + near, 0)
        offsets = range(first, first + size)
        rows = [self.model.rows.get(each, FRESH) for each in offsets if each >= self.model.start]
        free = any(row.state is RecordState.AVAILABLE for row in rows)
        held = any(row.state in (RecordState.ACQUIRED, RecordState.ARCHIVING) for row in rows)
        standing = Standing.HELD if held else Standing.FREE if free else Standing.DONE
        assert self.machine.standing(first, first + size - 1) is standing
        done = sum(
            1 << each - first
            for each in offsets
            if each < self.model.start or self.model.rows.get(each, FRESH).state in DONE
        )
        assert self.machine.done_within(first, first + size - 1) == done

    @precondition(lambda self: self.members())
    @rule(which=st.integers(0, 2))
    def leave(self, which: int) -> None:
        members = self.members()
        member = members[which % len(members)]
        self.machine.release(member, max_deliveries=LIMIT, dead_letters=self.model.has_dead_letters)
        for offset, row in list(self.model.rows.items()):
            if row.holder == member:
                self.model.free(offset)
        self.model.advance()
        self.settled()

    @rule(passed_ms=st.integers(1, 4))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self.machine.expire(self.now_ms, max_deliveries=LIMIT, dead_letters=self.model.has_dead_letters)
        for offset, row in list(self.model.rows.items()):
            if row.state is RecordState.ACQUIRED and row.until_ms <= self.now_ms:
                self.model.free(offset)
        self.model.advance()
        self.settled()

    @rule(more=st.integers(0, 4))
    def retention(self, more: int) -> None:
        start = min(self.model.start + more, self.log_end)
        self.machine.begin_at(start)
        for offset in [each for each in self.model.rows if each < start]:
            del self.model.rows[offset]
        self.model.start = max(self.model.start, start)
        self.model.end = max(self.model.end, start)
        self.model.advance()
        self.settled()

    @rule(near=NEAR, size=st.integers(1, 4))
    def skip(self, near: int, size: int) -> None:
        first = max(self.model.start + near, 0)
        first = min(max(first, self.model.start), self.log_end)
        last = min(first + size, self.log_end) - 1
        if last < first:
            return
        self.machine.skip(first, last)
        for offset in range(self.model.end, first):
            self.model.rows[offset] = FRESH
        self.model.end = max(self.model.end, first)
        for offset in range(first, last + 1):
            row = self.model.rows.get(offset, FRESH)
            if row.state is RecordState.AVAILABLE:
                self.model.rows[offset] = Row(RecordState.ARCHIVED, row.count)
        self.model.end = max(self.model.end, last + 1)
        self.model.advance()
        self.settled()

    @rule()
    def crash(self) -> None:
        """Only what was made durable is left: who held something does not."""
        self.machine = SharePartition(self.stored_start, self.stored)
        rows: dict[int, Row] = {}
        end = self.stored_start
        for batch in self.stored:
            end = batch.last + 1
        for offset in range(self.stored_start, end):
            rows[offset] = FRESH
        for batch in self.stored:
            for offset in range(batch.first, batch.last + 1):
                rows[offset] = Row(batch.state, batch.deliveries)
        self.model.start, self.model.end, self.model.rows = self.stored_start, end, rows
        self.model.advance()
        self.unsent = self.machine.take_dead_letters()
        assert all(each.rejected is None for each in self.unsent), "nobody knows that any more"
        self.settled()

    @invariant()
    def books_agree(self) -> None:
        if not hasattr(self, "machine"):
            return
        machine, model = self.machine, self.model
        assert (machine.start_offset, machine.end_offset) == (model.start, model.end)
        found: dict[int, OffsetRun] = {}
        for run in machine.runs():
            found.update(dict.fromkeys(range(run.first, run.last + 1), run))
        assert sorted(found) == list(range(model.start, model.end))
        for offset, run in found.items():
            row = model.rows[offset]
            assert (run.state, run.deliveries, run.holder) == (row.state, row.count, row.holder)
        assert machine.in_flight == model.in_flight()
        free = [offset for offset, row in sorted(model.rows.items()) if row.state is RecordState.AVAILABLE]
        assert machine.next_offset == (free[0] if free else model.end)
        held = [row.until_ms for row in model.rows.values() if row.state is RecordState.ACQUIRED]
        assert machine.deadline_ms() == min((each for each in held if each != NEVER_MS), default=None)
        assert machine.is_held == bool(held)
        archiving = {offset for offset, row in model.rows.items() if row.state is RecordState.ARCHIVING}
        assert machine.is_archiving == bool(archiving)
        unsent = {offset for letters in self.unsent for offset in span_of(letters)}
        assert archiving <= unsent, "nobody would ever send these"

    @invariant()
    def given_up_survives(self) -> None:
        """Whatever is on its way to the queue would be sent after a crash now, and come to nobody."""
        if not hasattr(self, "machine"):
            return
        archiving = {offset for offset, row in self.model.rows.items() if row.state is RecordState.ARCHIVING}
        again = SharePartition(self.stored_start, self.stored).take_dead_letters()
        assert {offset for letters in again for offset in span_of(letters)} == archiving

    @invariant()
    def acknowledged_survives(self) -> None:
        """Whatever was acknowledged would not come again after a crash now."""
        if not hasattr(self, "machine"):
            return
        again = SharePartition(self.stored_start, self.stored)
        undone = {
            offset
            for run in again.runs()
            if run.state not in DONE
            for offset in range(run.first, run.last + 1)
        } | {offset for offset in self.acknowledged if offset >= again.end_offset}
        assert not undone & self.acknowledged


TestShareHistory = ShareHistory.TestCase
TestShareHistory.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def one_step(history: ShareHistory, chance: random.Random) -> str:
    """Do something, more often what leads on to more; tell what."""

    def near() -> tuple[int, int]:
        return chance.randint(-2, 12), chance.randint(1, 5)

    def member() -> str:
        return chance.choice("abc")

    def said() -> list[AcknowledgeType]:
        return chance.choices(list(AcknowledgeType), k=chance.randint(1, 8))

    members, there = history.members(), history.machine.next_offset < history.log_end
    which = chance.randrange(3)
    steps: list[tuple[str, int, Callable[[], None]]] = [
        ("append", 2, lambda: history.append(chance.choice((0, 0, 1, 2)), chance.randint(1, 6))),
        ("crash", 1, history.crash),
        ("letters", 1, lambda: history.dead_letters(chance.random() < 0.8)),
        ("pass", 1, lambda: history.time_passes(chance.randint(1, 4))),
        ("retention", 1, lambda: history.retention(chance.choice((0, 0, 1, 2)))),
        ("claim", 1, lambda: history.claim(*near())),
        ("unclaim", 1, lambda: history.unclaim(*near())),
        ("accept", 1, lambda: history.accept(*near())),
        ("look", 2, lambda: history.look(*near())),
        ("skip", 1, lambda: history.skip(*near())),
        ("foreign", 1, lambda: history.judge_what_is_not_its_own(member(), *near())),
    ]
    if there:
        few = chance.randint(1, 10)
        steps.append(("acquire", 8, lambda: history.acquire(member(), few, few % 2 == 0, 4)))
    if members:
        steps.append(("judge", 6, lambda: history.judge(which, said(), chance.randrange(4))))
        verdict = chance.choice((AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.ACCEPT))
        steps.append(("alike", 3, lambda: history.judge_all_alike(which, verdict)))
        steps.append(("leave", 1, lambda: history.leave(which)))
    if history.unsent:
        steps.append(("bury", 3, lambda: history.bury(chance.randint(1, 3), chance.randrange(4))))
    ((what, _, step),) = chance.choices(steps, [weight for _, weight, _ in steps])
    step()
    return what


def test_lives_by_chance_in_which_much_is_given_up() -> None:
    """Hypothesis leaves rules out by turns; here all of them meet."""
    did: Counter[str] = Counter()
    for seed in range(200):
        chance = random.Random(seed)
        history = ShareHistory()
        history.begin(chance.randrange(6), chance.randint(1, 6), True)
        for _ in range(60):
            did[one_step(history, chance)] += 1
            archiving = history.machine.is_archiving
            did["archiving"] += archiving
            try:
                history.books_agree()
                history.acknowledged_survives()
                history.given_up_survives()
            except AssertionError as error:
                raise AssertionError(f"seed {seed}") from error
    assert min(did.values()) > 100, did
    assert did["archiving"] > 2000, did


def test_a_release_gives_a_record_up_after_so_many_deliveries() -> None:
    machine = SharePartition(0)
    for count in range(1, 6):
        (given,) = machine.acquire("a", [(0, 9)], 100, max_in_flight=2000)
        assert (given.first, given.last, given.deliveries) == (0, 9, count)
        machine.judge("a", [Judged(0, 9, AcknowledgeType.RELEASE)], max_deliveries=5)
    assert machine.start_offset == 10
    assert not machine.acquire("a", [(0, 9)], 100, max_in_flight=2000)


def test_records_that_were_delivered_often_come_in_ever_smaller_parts_and_the_last_time_alone() -> None:
    machine = SharePartition(0)
    counts: Counter[int] = Counter()
    sizes = []
    while given := machine.acquire("a", [(0, 99)], 500, max_in_flight=2000, max_deliveries=6):
        offsets = [offset for run in given for offset in range(run.first, run.last + 1)]
        sizes.append(len(offsets))
        counts.update(offsets)
        if max(run.deliveries for run in given) == 6:
            assert len(offsets) == 1
        machine.judge(
            "a", [Judged(r.first, r.last, AcknowledgeType.RELEASE) for r in given], max_deliveries=6
        )
    assert counts == dict.fromkeys(range(100), 6)
    assert sizes[:6] == [100, 100, 100, 50, 25, 1]  # all; half; a quarter; the first of them
    assert Counter(sizes) == {100: 3, 50: 2, 25: 4, 1: 100}
    assert machine.start_offset == 100


@pytest.mark.parametrize("max_deliveries", [3, 5, 10])
def test_a_record_that_brings_members_down_takes_no_others_along(max_deliveries: int) -> None:
    machine, poison = SharePartition(0), 37
    accepted: set[int] = set()
    fetches = 0
    while given := machine.acquire(
        "a", [(0, 49), (50, 99)], 500, max_in_flight=2000, max_deliveries=max_deliveries
    ):
        fetches += 1
        offsets = {offset for run in given for offset in range(run.first, run.last + 1)}
        said = AcknowledgeType.RELEASE if poison in offsets else AcknowledgeType.ACCEPT
        accepted |= offsets if said is AcknowledgeType.ACCEPT else set()
        machine.judge("a", [Judged(r.first, r.last, said) for r in given], max_deliveries=max_deliveries)
    assert accepted == set(range(100)) - {poison}
    assert machine.start_offset == 100
    assert fetches < 150


def test_records_that_were_delivered_often_come_apart_from_others() -> None:
    kept = [StateBatch(0, 9, RecordState.AVAILABLE, 1), StateBatch(10, 29, RecordState.AVAILABLE, 2)]
    machine = SharePartition(0, kept)
    parts, likely = [], []
    for _ in range(4):
        likely.append(machine.likely(100, 4))
        given = machine.acquire("a", [(0, 29), (30, 39)], 100, max_in_flight=2000, max_deliveries=4)
        parts.append([(run.first, run.last, run.deliveries) for run in given])
    assert parts == [[(0, 9, 2)], [(10, 24, 3)], [(25, 29, 3)], [(30, 39, 1)]]
    assert likely == [100, 15, 15, 100]


def test_batches_of_one_record_that_were_delivered_often_come_in_no_smaller_parts_than_large_ones() -> None:
    machine = SharePartition(0, [StateBatch(0, 99, RecordState.AVAILABLE, 3)])
    sizes = []
    while given := machine.acquire(
        "a", [(n, n) for n in range(100)], 500, max_in_flight=2000, max_deliveries=6
    ):
        sizes.append(sum(run.records for run in given))
        machine.judge("a", [Judged(r.first, r.last, AcknowledgeType.ACCEPT) for r in given], max_deliveries=6)
    assert sizes[0] == 50
    assert len(sizes) < 10
    assert machine.start_offset == 100


def test_two_deliveries_are_too_few_to_be_apart() -> None:
    machine = SharePartition(0)
    for _ in range(2):
        (given,) = machine.acquire("a", [(0, 9)], 100, max_in_flight=2000, max_deliveries=2)
        assert given.records == 10
        machine.judge("a", [Judged(0, 9, AcknowledgeType.RELEASE)], max_deliveries=2)
    assert machine.start_offset == 10


def test_many_records_in_turn_are_judged_in_few_steps() -> None:
    """Every second record of 2,000 is accepted, the others released: runs, and no slower than that."""
    machine = SharePartition(0)
    machine.acquire("a", [(0, 1999)], 2000, max_in_flight=2000)
    said = [Judged(each, each, AcknowledgeType(1 + each % 2)) for each in range(2000)]
    machine.judge("a", said, max_deliveries=5)
    assert len(machine.runs()) == 1999
    assert machine.in_flight == 1000
    given = machine.acquire("b", [(0, 1999)], 500, max_in_flight=2000, strict=True)
    assert [run.first for run in given] == list(range(1, 1001, 2))
    changes = machine.take_changes()
    assert changes is not None
    assert changes.complete == 999
