"""One partition as a work queue: which offsets are free, which holder has which and for how long, what is done.

    before ``start_offset``   done, and forgotten
    up to ``end_offset``      each offset is in a `RecordState`, stored as runs of offsets that are alike
    from ``end_offset`` on    not delivered to any worker yet

A value without clock and I/O, for the workers of either protocol: a Kafka share group (KIP-932), and consumers of
Pulsar's Shared subscriptions, which hold a message until they acknowledge it or go. `take_changes` collects what has to
survive a crash. The holders are not part of it, so after a crash what they held is free again.

Where there is a dead-letter queue, a record that is given up is `RecordState.ARCHIVING` until `archived` reports that
the queue has it: until then it is not delivered, and the start does not pass it. That state survives a crash, and
`take_dead_letters` returns the record again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, IntEnum
from typing import NamedTuple

from magnetar.coordination.shares.runs import DONE, NEVER_MS, OffsetRun, RecordState, Runs


class AcknowledgeType(IntEnum):
    """The answer of a holder to a record; the numbers are Kafka's."""

    GAP = 0
    """There is no such record."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    """It needs more time (KIP-1222)."""


class Standing(Enum):
    """The combined state of some offsets."""

    FREE = "free"
    """None of them has a holder, and at least one is not done."""
    HELD = "held"
    DONE = "done"


class NotHeld(Exception):
    """The caller acknowledges a record that it does not hold; nothing has changed."""


class NeverGiven(NotHeld):
    """The record was never delivered, so it has no holder."""


_TAKEN = frozenset({RecordState.ACQUIRED, RecordState.ARCHIVING})


class Judged(NamedTuple):
    """One answer of a holder to all offsets from ``first`` to ``last``."""

    first: int
    last: int
    verdict: AcknowledgeType


class DeadLetters(NamedTuple):
    """Offsets that were given up, and belong in a dead-letter queue."""

    first: int
    last: int
    deliveries: int
    rejected: bool | None
    """True if their holder rejected them, False if they were delivered too often; None where that was forgotten."""


class StateBatch(NamedTuple):
    """Offsets in a state that outlives a crash."""

    first: int
    last: int
    state: RecordState
    deliveries: int


class ShareChanges(NamedTuple):
    """The changes that have to be made durable."""

    start_offset: int
    complete: int
    """How many offsets from there on are done."""
    batches: tuple[StateBatch, ...]


def few_at_once(deliveries: int, max_deliveries: int, records: int) -> int:
    """Return how many of ``records`` of one batch to deliver together after so many deliveries; 0 for all.

    From half of ``max_deliveries`` on (2 at least) that is half of them, then a quarter; the last time it is one.
    """
    often = max(2, (max_deliveries + 1) // 2)
    if not max_deliveries or deliveries < often:
        return 0
    if deliveries >= max_deliveries - 1:
        return 1
    return max(1, records >> (deliveries - often + 1))


class SharePartition:
    """A share partition, see above. Times are ms; a holder of offsets is a text."""

    def __init__(self, start_offset: int, batches: Iterable[StateBatch] = ()) -> None:
        """Resume from what `take_changes` returned before, offsets in ascending order."""
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
                held = batch.state is RecordState.ACQUIRED  # by a holder before the crash
                self._extend(batch.last + 1, RecordState.AVAILABLE if held else batch.state, batch.deliveries)
        self._advance()
        for run in self._runs:
            if run.state is RecordState.ARCHIVING:
                self._dead_letters.append(DeadLetters(run.first, run.last, run.deliveries, None))

    # Asking.

    @property
    def in_flight(self) -> int:
        """The number of offsets that were delivered and are not done."""
        return self.end_offset - self.start_offset - self._complete

    @property
    def complete(self) -> int:
        """The number of offsets from ``start_offset`` on that are done."""
        return self._complete

    @property
    def next_offset(self) -> int:
        """The first offset that may be delivered."""
        run = self._first_available()
        return self.end_offset if run is None else run.first

    def _first_available(self) -> OffsetRun | None:
        if not self._available:
            return None
        return next((run for run in self._runs if run.state is RecordState.AVAILABLE), None)

    @property
    def has_available(self) -> bool:
        """True if something that was delivered before is free again."""
        return self._available > 0

    @property
    def is_held(self) -> bool:
        """True if any offset has a holder."""
        return self.in_flight > self._available + self._archiving

    @property
    def is_archiving(self) -> bool:
        """True if something given up is not in the dead-letter queue yet."""
        return self._archiving > 0

    def runs(self) -> list[OffsetRun]:
        """Return all runs, to look at."""
        return list(self._runs)

    def held_by(self, holder: str) -> list[OffsetRun]:
        """Return what a holder has."""
        return [run for run in self._runs if run.holder == holder]

    def is_free(self, first: int, last: int) -> bool:
        """Return whether none of these offsets has a holder, and at least one of them is not done.

        What is on its way to a dead-letter queue counts as held: a worker that waits is notified when it is there.
        """
        known = self._runs.between(max(first, self.start_offset), last)
        if any(run.state in _TAKEN for run in known):
            return False
        return last >= self.end_offset or any(run.state is RecordState.AVAILABLE for run in known)

    def standing(self, first: int, last: int) -> Standing:
        """Return whether all that is left of these offsets may be delivered, nothing is left, or some have a holder."""
        if self.is_free(first, last):
            return Standing.FREE
        known = self._runs.between(max(first, self.start_offset), last)
        return Standing.HELD if any(run.state in _TAKEN for run in known) else Standing.DONE

    def done_within(self, first: int, last: int) -> int:
        """Return which of these offsets are done, as a set of bits that begins with ``first``."""
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
        """Return how many of ``max_records`` `acquire` may return next, as far as is known without their batches."""
        run = self._first_available()
        few = 0 if run is None else few_at_once(run.deliveries, max_deliveries, self._together(max_records))
        return min(few, max_records) or max_records

    def _together(self, max_records: int) -> int:
        """Return how many records were delivered together, at most: in Kafka, a batch in flight."""
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
        """Acquire the free offsets of these batches of the log (each from its first to its last) for a holder.

        Whole batches while there are fewer than ``max_records``; ``strict`` cuts the last one. Offsets between two
        batches are no records, and done. From a record on that was delivered often, measured by ``max_deliveries``
        (0: never), ever fewer are returned together, and a record that is delivered for the last time comes alone: one
        that makes its members crash takes few others along, and none in the end (as in Kafka since 4.3).
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
        """Acquire all free ones of these offsets for a holder, until it acknowledges them or goes.

        Offsets before them that were not delivered yet stay free: a claimer reaches them in an order of its own.
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
        """Extend the known offsets to another end; the new ones are in this state."""
        if end_offset <= self.end_offset:
            return
        run = OffsetRun(self.end_offset, end_offset - 1, state, count)
        self._runs.append(run)
        self.end_offset = end_offset
        self._count(run, 1)
        if state is RecordState.ARCHIVED:
            self._note(run)

    def skip(self, first: int, last: int) -> None:
        """Mark offsets as done that must not be delivered, unless they have a holder."""
        self._extend(first, RecordState.AVAILABLE, 0)
        for run in self._runs.between(max(first, self.start_offset), last):
            if run.state is RecordState.AVAILABLE:
                self._set(run, RecordState.ARCHIVED)
        self._extend(last + 1, RecordState.ARCHIVED, 0)
        self._advance()

    # Taking back.

    def check(self, holder: str, said: Iterable[Judged]) -> None:
        """Raise `NotHeld` unless a holder has all offsets that it names; those before ``start_offset`` do not count."""
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
        """Apply a holder's answers, all of them or, with `NotHeld`, none.

        ``said`` are offsets in ascending order. What was released is free again unless it was delivered
        ``max_deliveries`` times; ``until_ms`` is the new deadline of what needs more time. ``dead_letters``, here
        and below: whether there is a queue for what is given up.
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
        """Mark offsets as done whether they have a holder or not: for an operator, and for a late acknowledgement.

        Returns how many of them ``holder`` held.
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
        """Release what a holder has of these offsets, however often it was delivered; return how many it held."""
        records = 0
        for run in self._runs.between(max(first, self.start_offset), last):
            if run.holder == holder and run.state is RecordState.ACQUIRED:
                self._set(run, RecordState.AVAILABLE)
                records += run.records
        return records

    def release(self, holder: str, *, max_deliveries: int, dead_letters: bool = False) -> None:
        """Release all that a holder has."""
        for run in self.held_by(holder):
            self._free(run, max_deliveries, dead_letters)
        self._advance()

    def expire(self, now_ms: int, *, max_deliveries: int, dead_letters: bool = False) -> None:
        """Release what was not acknowledged in time."""
        for run in self.runs():
            if run.state is RecordState.ACQUIRED and run.until_ms <= now_ms:
                self._free(run, max_deliveries, dead_letters)
        self._advance()

    def archived(self, first: int, last: int) -> None:
        """Mark as done what was given up of these offsets: it is in the dead-letter queue, or never will be."""
        for run in self._runs.between(max(first, self.start_offset), last):
            if run.state is RecordState.ARCHIVING:
                self._set(run, RecordState.ARCHIVED)
        self._advance()

    def begin_at(self, log_start_offset: int) -> None:
        """Forget offsets whose records are gone; any answer of their holders is accepted from then on."""
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
        """Return what has to be made durable since the last call; None for nothing."""
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
        """Return what was given up since the last call, or before the crash; to be sent once that is durable."""
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
        """Advance the start over what is done."""
        for run in self._runs:
            if run.state not in DONE:
                break
            self._complete -= run.records
            self.start_offset = run.last + 1
        self._runs.cut(self.start_offset)


def _joined(runs: Sequence[OffsetRun]) -> list[OffsetRun]:
    """Return runs in the order of their offsets, adjacent ones of the same count joined."""
    joined: list[OffsetRun] = []
    for run in runs:
        if joined and joined[-1].last + 1 == run.first and joined[-1].deliveries == run.deliveries:
            joined[-1] = joined[-1]._replace(last=run.last)
        else:
            joined.append(run)
    return joined
