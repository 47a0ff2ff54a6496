"""One partition as a work queue: which offsets are free, who holds which and for how long, and what is done with.

    before ``start_offset``   done with, and forgotten
    up to ``end_offset``      each offset is in a `RecordState`, kept as runs of those that are alike
    from ``end_offset`` on    nobody has been given anything yet

A value without clock and I/O, for whichever protocol's workers: a share group of Kafka's (KIP-932), and consumers of
Pulsar's Shared subscriptions, which hold a message until they acknowledge it or go. What has to survive a crash gathers
in `take_changes`: who holds something does not, so after a crash it is free again.

Where there is a dead-letter queue, what is given up is `RecordState.ARCHIVING` until `archived` tells that it is there:
nobody gets it, and the start does not pass it. After a crash it is so still, and `take_dead_letters` gives it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, IntEnum
from typing import NamedTuple

from magnetar.coordination.shares.runs import DONE, NEVER_MS, OffsetRun, RecordState, Runs


class AcknowledgeType(IntEnum):
    """What a holder says of a record; Kafka's numbers."""

    GAP = 0
    """There is no such record."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    """It needs more time (KIP-1222)."""


class Standing(Enum):
    """How some offsets are, all in all."""

    FREE = "free"
    """Nobody holds any of them, and at least one is not done with."""
    HELD = "held"
    DONE = "done"


class NotHeld(Exception):
    """Whoever speaks of a record does not hold it; nothing has changed."""


class NeverGiven(NotHeld):
    """Nobody can hold it."""


_TAKEN = frozenset({RecordState.ACQUIRED, RecordState.ARCHIVING})


class Judged(NamedTuple):
    """What a holder says of all offsets from ``first`` to ``last``."""

    first: int
    last: int
    verdict: AcknowledgeType


class DeadLetters(NamedTuple):
    """Offsets that were given up, and belong into a dead-letter queue."""

    first: int
    last: int
    deliveries: int
    rejected: bool | None
    """Whether their holder rejected them, or they came too often; None for those of which that was forgotten."""


class StateBatch(NamedTuple):
    """Offsets in a state that outlives a crash."""

    first: int
    last: int
    state: RecordState
    deliveries: int


class ShareChanges(NamedTuple):
    """What has to be made durable."""

    start_offset: int
    complete: int
    """How many offsets from there on are done with."""
    batches: tuple[StateBatch, ...]


def few_at_once(deliveries: int, max_deliveries: int, records: int) -> int:
    """Return how many of ``records`` that came together come at once when they were delivered so often; 0 for all.

    From half of ``max_deliveries`` on (2 at least) that is half of them, then a quarter; the last time it is one.
    """
    often = max(2, (max_deliveries + 1) // 2)
    if not max_deliveries or deliveries < often:
        return 0
    if deliveries >= max_deliveries - 1:
        return 1
    return max(1, records >> (deliveries - often + 1))


class SharePartition:
    """See above. Times are ms; who holds offsets is told by a text."""

    def __init__(self, start_offset: int, batches: Iterable[StateBatch] = ()) -> None:
        """Begin where it was left: with what `take_changes` had given before, offsets in rising order."""
        self.start_offset = start_offset
        self.end_offset = start_offset
        self._runs = Runs()
        self._changes: list[StateBatch] = []
        self._kept_start = start_offset
        self._complete = 0
        self._available = 0
        self._archiving = 0
        self._dead_letters: list[DeadLetters] = []
        for batch in batches:
            if batch.last >= self.end_offset:
                self._extend(batch.first, RecordState.AVAILABLE, 0)
                held = batch.state is RecordState.ACQUIRED  # by somebody before the crash
                self._extend(batch.last + 1, RecordState.AVAILABLE if held else batch.state, batch.deliveries)
        self._advance()
        for run in self._runs:
            if run.state is RecordState.ARCHIVING:
                self._dead_letters.append(DeadLetters(run.first, run.last, run.deliveries, None))

    # Asking.

    @property
    def in_flight(self) -> int:
        """How many offsets were given out and are not done with."""
        return self.end_offset - self.start_offset - self._complete

    @property
    def complete(self) -> int:
        """How many offsets from ``start_offset`` on are done with."""
        return self._complete

    @property
    def next_offset(self) -> int:
        """The first offset that somebody may be given."""
        run = self._first_available()
        return self.end_offset if run is None else run.first

    def _first_available(self) -> OffsetRun | None:
        if not self._available:
            return None
        return next((run for run in self._runs if run.state is RecordState.AVAILABLE), None)

    @property
    def has_available(self) -> bool:
        """Whether something that was given out before is free again."""
        return self._available > 0

    @property
    def is_held(self) -> bool:
        """Whether anybody holds anything."""
        return self.in_flight > self._available + self._archiving

    @property
    def is_archiving(self) -> bool:
        """Whether something given up is not in the dead-letter queue yet."""
        return self._archiving > 0

    def runs(self) -> list[OffsetRun]:
        """Return all that is known, to look at."""
        return list(self._runs)

    def held_by(self, holder: str) -> list[OffsetRun]:
        """Return what somebody holds."""
        return [run for run in self._runs if run.holder == holder]

    def is_free(self, first: int, last: int) -> bool:
        """Return whether nobody holds any of these offsets, and at least one of them is not done with.

        What is on its way to a dead-letter queue is held, as it were: whoever waits for it hears when it is there.
        """
        known = self._runs.between(max(first, self.start_offset), last)
        if any(run.state in _TAKEN for run in known):
            return False
        return last >= self.end_offset or any(run.state is RecordState.AVAILABLE for run in known)

    def standing(self, first: int, last: int) -> Standing:
        """Return whether somebody may be given all that is left of these offsets, nothing is, or somebody has some."""
        if self.is_free(first, last):
            return Standing.FREE
        known = self._runs.between(max(first, self.start_offset), last)
        return Standing.HELD if any(run.state in _TAKEN for run in known) else Standing.DONE

    def done_within(self, first: int, last: int) -> int:
        """Return which of these offsets are done with, as a set of bits that begins with ``first``."""
        done = 0
        if first < self.start_offset:
            done = (1 << (min(self.start_offset, last + 1) - first)) - 1
        for run in self._runs.between(max(first, self.start_offset), last):
            if run.state in DONE:
                done |= ((1 << run.records) - 1) << (run.first - first)
        return done

    def deadline_ms(self) -> int | None:
        """Return when the first lock ends, if any does."""
        ends = [run.until_ms for run in self._runs if run.state is RecordState.ACQUIRED]
        first = min(ends, default=NEVER_MS)
        return None if first == NEVER_MS else first

    # Giving out.

    def likely(self, max_records: int, max_deliveries: int) -> int:
        """Return how many of ``max_records`` `acquire` may give next, as far as it is known without their batches."""
        run = self._first_available()
        few = 0 if run is None else few_at_once(run.deliveries, max_deliveries, self._together(max_records))
        return min(few, max_records) or max_records

    def _together(self, max_records: int) -> int:
        """Return how many records were given at once, at most, when they were: in Kafka a batch in flight."""
        return min(max_records, self.end_offset - self.start_offset)

    def acquire(
        self,
        holder: str,
        batches: Sequence[tuple[int, int]],
        max_records: int,
        *,
        max_in_flight: int,
        until_ms: int = NEVER_MS,
        strict: bool = False,
        max_deliveries: int = 0,
    ) -> list[OffsetRun]:
        """Return what somebody is given: the free offsets of these batches of the log, each from its first to its last.

        Whole batches as long as there are fewer than ``max_records``; ``strict`` cuts the last one. Offsets between
        two batches are no records, and done with. From a record on that was delivered often, measured by
        ``max_deliveries`` (0: never), ever fewer are given at once, and one that comes for the last time alone: one
        that brings its members down takes few others along, and none in the end (as in Kafka since 4.3).
        """
        given: list[OffsetRun] = []
        room, is_few = max_records, False
        for first, last in batches:
            if room <= 0:
                break
            together = max(last - first + 1, self._together(max_records))
            first = max(first, self.start_offset)
            for run in self._runs.between(first, last) if self._available else ():
                if run.state is not RecordState.AVAILABLE or (strict and room <= 0):
                    continue
                few = few_at_once(run.deliveries, max_deliveries, together)
                if few and given and not (is_few and few > 1):
                    self._advance()
                    return _joined(given)
                if few and not is_few:
                    room, is_few = min(few, room) if strict else few, True
                run = run._replace(last=min(run.last, run.first + room - 1) if strict or is_few else run.last)
                room -= run.records
                given.append(self._give(run, holder, until_ms))
                if is_few and room <= 0:
                    self._advance()
                    return _joined(given)
            if is_few:
                continue
            if last < self.end_offset or self.in_flight >= max_in_flight or (strict and room <= 0):
                continue
            self._extend(first, RecordState.ARCHIVED, 0)
            first = max(first, self.end_offset)
            if strict:
                last = min(last, first + min(room, max_in_flight - self.in_flight) - 1)
            run = OffsetRun(first, last, RecordState.ACQUIRED, 1, holder, until_ms)
            self._runs.append(run)
            self.end_offset = last + 1
            given.append(run)
            room -= run.records
        self._advance()
        return _joined(given)

    def claim(self, holder: str, first: int, last: int) -> list[OffsetRun]:
        """Return what somebody is given of these offsets: all that is free, until it says something or goes.

        Offsets before them that nobody was given yet stay free: who claims comes by them in an order of its own.
        """
        self._extend(first, RecordState.AVAILABLE, 0)
        given = [
            self._give(run, holder, NEVER_MS)
            for run in self._runs.between(max(first, self.start_offset), last)
            if run.state is RecordState.AVAILABLE
        ]
        first = max(first, self.end_offset)
        if first <= last:
            run = OffsetRun(first, last, RecordState.ACQUIRED, 1, holder)
            self._runs.append(run)
            self.end_offset = last + 1
            given.append(run)
        return given

    def _give(self, run: OffsetRun, holder: str, until_ms: int) -> OffsetRun:
        given = run._replace(
            state=RecordState.ACQUIRED, deliveries=run.deliveries + 1, holder=holder, until_ms=until_ms
        )
        self._runs.rewrite(run.first, run.last, lambda _: given)
        self._available -= run.records
        return given

    def _extend(self, end_offset: int, state: RecordState, count: int) -> None:
        """Know offsets up to another end; those that are new are in this state."""
        if end_offset <= self.end_offset:
            return
        run = OffsetRun(self.end_offset, end_offset - 1, state, count)
        self._runs.append(run)
        self.end_offset = end_offset
        self._count(run, 1)
        if state is RecordState.ARCHIVED:
            self._note(run)

    def skip(self, first: int, last: int) -> None:
        """Be done with offsets that nobody is to be given, as far as nobody holds them."""
        self._extend(first, RecordState.AVAILABLE, 0)
        for run in self._runs.between(max(first, self.start_offset), last):
            if run.state is RecordState.AVAILABLE:
                self._set(run, RecordState.ARCHIVED)
        self._extend(last + 1, RecordState.ARCHIVED, 0)
        self._advance()

    # Taking back.

    def check(self, holder: str, said: Iterable[Judged]) -> None:
        """Raise `NotHeld` unless somebody holds all offsets it speaks of; those before ``start_offset`` count not."""
        for each in said:
            if each.last < self.start_offset:
                continue
            if each.last >= self.end_offset:
                raise NeverGiven(f"offsets up to {each.last} were never given to anybody")
            known = self._runs.between(max(each.first, self.start_offset), each.last)
            if any(run.holder != holder for run in known):
                raise NotHeld(f"offsets {each.first} to {each.last} are not held by {holder}")

    def judge(
        self,
        holder: str,
        said: Sequence[Judged],
        *,
        max_deliveries: int,
        until_ms: int = NEVER_MS,
        dead_letters: bool = False,
    ) -> None:
        """Take in what somebody says of what it holds, all of it or, with `NotHeld`, nothing.

        ``said`` are offsets in rising order. What was released is free again unless it was delivered
        ``max_deliveries`` times; ``until_ms`` is the new deadline of what needs more time. ``dead_letters`` tells here
        and below whether there is a queue for what is given up.
        """
        self.check(holder, said)
        for first, last, verdict in said:
            for run in self._runs.between(max(first, self.start_offset), last):
                if verdict is AcknowledgeType.RENEW:
                    longer = run._replace(until_ms=until_ms)
                    self._runs.rewrite(run.first, run.last, lambda _, longer=longer: longer)  # type: ignore[misc]
                elif verdict is AcknowledgeType.ACCEPT:
                    self._set(run, RecordState.ACKNOWLEDGED)
                elif verdict is AcknowledgeType.RELEASE:
                    self._free(run, max_deliveries, dead_letters)
                elif verdict is AcknowledgeType.REJECT:
                    self._give_up(run, dead_letters, rejected=True)
                else:
                    self._set(run, RecordState.ARCHIVED)
        self._advance()

    def accept(self, first: int, last: int, holder: str = "") -> int:
        """Be done with offsets whoever holds them, if anybody does: an operator, or who acknowledges late, says so.

        Gives how many of them ``holder`` held.
        """
        records = 0
        self._extend(last + 1, RecordState.AVAILABLE, 0)
        for run in self._runs.between(max(first, self.start_offset), last):
            if run.state not in DONE:
                records += run.records if run.state is RecordState.ACQUIRED and run.holder == holder else 0
                self._set(run, RecordState.ACKNOWLEDGED)
        self._advance()
        return records

    def unclaim(self, holder: str, first: int, last: int) -> int:
        """Take back what somebody holds of these offsets, however often it was delivered; give how many it held."""
        records = 0
        for run in self._runs.between(max(first, self.start_offset), last):
            if run.holder == holder and run.state is RecordState.ACQUIRED:
                self._set(run, RecordState.AVAILABLE)
                records += run.records
        return records

    def release(self, holder: str, *, max_deliveries: int, dead_letters: bool = False) -> None:
        """Take back all that somebody holds."""
        for run in self.held_by(holder):
            self._free(run, max_deliveries, dead_letters)
        self._advance()

    def expire(self, now_ms: int, *, max_deliveries: int, dead_letters: bool = False) -> None:
        """Take back what was held for too long."""
        for run in self.runs():
            if run.state is RecordState.ACQUIRED and run.until_ms <= now_ms:
                self._free(run, max_deliveries, dead_letters)
        self._advance()

    def archived(self, first: int, last: int) -> None:
        """Be done with what was given up of these: it is in the dead-letter queue, or never will be."""
        for run in self._runs.between(max(first, self.start_offset), last):
            if run.state is RecordState.ARCHIVING:
                self._set(run, RecordState.ARCHIVED)
        self._advance()

    def begin_at(self, log_start_offset: int) -> None:
        """Forget offsets whose records are gone; who holds some of them may say of them what it likes."""
        if log_start_offset <= self.start_offset:
            return
        for run in self._runs.between(self.start_offset, log_start_offset - 1):
            self._count(run, -1)
        self._runs.cut(log_start_offset)
        self.start_offset = log_start_offset
        self.end_offset = max(self.end_offset, log_start_offset)
        self._advance()

    # Books.

    def take_changes(self) -> ShareChanges | None:
        """Return what has to be made durable since this was last asked; None for nothing."""
        if not self._changes and self._kept_start == self.start_offset:
            return None
        batches = tuple(
            batch._replace(first=max(batch.first, self.start_offset))
            for batch in self._changes
            if batch.last >= self.start_offset
        )
        self._changes = []
        self._kept_start = self.start_offset
        return ShareChanges(self.start_offset, self._complete, batches)

    def take_dead_letters(self) -> list[DeadLetters]:
        """Return what was given up since this was last asked, or before the crash; to be sent once that is durable."""
        taken, self._dead_letters = self._dead_letters, []
        return taken

    def _free(self, run: OffsetRun, max_deliveries: int, dead_letters: bool) -> None:
        if run.deliveries >= max_deliveries:
            self._give_up(run, dead_letters, rejected=False)
        else:
            self._set(run, RecordState.AVAILABLE)

    def _give_up(self, run: OffsetRun, dead_letters: bool, *, rejected: bool) -> None:
        if not dead_letters:
            self._set(run, RecordState.ARCHIVED)
            return
        self._set(run, RecordState.ARCHIVING)
        self._dead_letters.append(DeadLetters(run.first, run.last, run.deliveries, rejected))

    def _set(self, run: OffsetRun, state: RecordState) -> None:
        new = OffsetRun(run.first, run.last, state, run.deliveries)
        self._count(run, -1)
        self._runs.rewrite(run.first, run.last, lambda _: new)
        self._count(new, 1)
        self._note(new)

    def _count(self, run: OffsetRun, sign: int) -> None:
        if run.state is RecordState.AVAILABLE:
            self._available += sign * run.records
        elif run.state in DONE:
            self._complete += sign * run.records
        elif run.state is RecordState.ARCHIVING:
            self._archiving += sign * run.records

    def _note(self, run: OffsetRun) -> None:
        self._changes.append(StateBatch(*run[:4]))

    def _advance(self) -> None:
        """Go over what is done with at the beginning."""
        for run in self._runs:
            if run.state not in DONE:
                break
            self._complete -= run.records
            self.start_offset = run.last + 1
        self._runs.cut(self.start_offset)


def _joined(runs: Sequence[OffsetRun]) -> list[OffsetRun]:
    """Return runs in the order of their offsets, neighbours of the same count as one."""
    joined: list[OffsetRun] = []
    for run in runs:
        if joined and joined[-1].last + 1 == run.first and joined[-1].deliveries == run.deliveries:
            joined[-1] = joined[-1]._replace(last=run.last)
        else:
            joined.append(run)
    return joined
