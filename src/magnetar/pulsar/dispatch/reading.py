"""Reading on for a persistent subscription: from its cursor, past what is done with or was compacted away.

While storage is waited for, a consumer may seek or ask for redelivery: then ``generation`` has moved on, and what was
read counts no more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from magnetar.base.slices import PacedTurns
from magnetar.ledger.cursors.cursor import BEFORE_FIRST, Cursor
from magnetar.ledger.port import ManagedLedger, Position, StoredEntry
from magnetar.logs.decided import aborted_among
from magnetar.pulsar.dispatch.acknowledgements import Acknowledgements
from magnetar.pulsar.dispatch.deliveries import Deliveries, Delivery
from magnetar.pulsar.rate_limits import RateLimit
from magnetar.records.copied import copied_from

READ_BYTES = 512 << 10


@dataclass(frozen=True, slots=True)
class UnackedLimits:
    """How many messages may be out unacknowledged; 0 for no bound."""

    unacked_per_consumer: int
    unacked_per_subscription: int


@dataclass(slots=True)
class Readings:
    """What subscriptions of one partition read from."""

    log: ManagedLedger
    conversions: Deliveries
    clock: Callable[[], int]
    limits: UnackedLimits
    within_batches: bool = True
    """Whether acknowledgements of a part of a batch count."""
    rate: RateLimit | None = None
    """How fast all subscriptions together may be sent messages."""
    delays: bool = True
    """Whether messages wait for their time."""
    turns: PacedTurns = field(default_factory=PacedTurns)
    """In which subscriptions, perhaps those of all topics, do what very many of them may have to do at once."""


class SubscriptionReader:
    """One subscription's: what is ``ahead`` was read and not sent."""

    def __init__(self, readings: Readings, cursor: Cursor, acks: Acknowledgements) -> None:
        self.ahead: deque[Delivery] = deque()
        self.generation = 0
        self._log = readings.log
        self._conversions = readings.conversions
        self._cursor = cursor
        self._acks = acks
        self._next: int | None = None
        self._read: Position | None = None
        self._due = Position(-1, BEFORE_FIRST)
        """The entry that comes next, unless it was compacted away."""

    def rewind(self) -> None:
        """Read again from the first entry that is not done with."""
        self._acks.flush()
        self.generation += 1
        self.ahead.clear()
        self._next = self._read = None

    @property
    def position(self) -> Position:
        """The entry that is read next."""
        mark = self._cursor.mark_delete_position
        return _behind(mark if self._read is None else max(self._read, mark))

    async def fetch(self, *, compacted: bool, keyed: bool = False) -> bool:
        """Read on; tell whether there may be more to send now.

        ``compacted`` wants the newest message of every key, as far as the topic is compacted; ``keyed`` the keys of
        Kafka's batches.
        """
        generation = self.generation
        offset = self._next
        if offset is None:
            self._acks.flush()
            offset = await self._cursor.start_offset()
            if compacted and offset <= self._log.log_start_offset:
                offset = 0  # copies may be older than the history
            self._due = self._first_due()
        if compacted:
            entries = await self._log.read_compacted(
                offset, max_bytes=READ_BYTES, up_to=self._log.last_stable_offset
            )
        else:
            offset = max(offset, self._log.log_start_offset)
            entries = await self._log.read(offset, max_bytes=READ_BYTES, up_to=self._log.last_stable_offset)
        aborted = await aborted_among(self._log, entries)
        found = await self._conversions.deliveries(entries, keyed=keyed)
        if aborted:  # as markers: no consumer gets them
            found = [
                each._replace(control=number in aborted or each.control) for number, each in enumerate(found)
            ]
        if generation != self.generation:
            return True
        if not entries:
            self._next = offset
            return False
        self._next = entries[-1].last_offset + 1
        self._read = Position(entries[-1].ledger_id, entries[-1].entry_id)
        if self._log.compacted is not None:
            found = self._without_gone(entries, found)
        self.ahead.extend(self._not_done(found, compacted=compacted))
        return True

    def _first_due(self) -> Position:
        """Return the first entry that is not done with, were nothing compacted away."""
        ledgers, mark = self._log.ledgers(), self._cursor.mark_delete_position
        if ledgers and mark.ledger_id < ledgers[0].ledger_id:
            return Position(ledgers[0].ledger_id, 0)
        return _behind(mark)

    def _without_gone(self, entries: Sequence[StoredEntry], found: Sequence[Delivery]) -> list[Delivery]:
        """Be done with what was compacted away before, between and within these entries: nobody acknowledges it."""
        gone, left, mark = [], [], self._cursor.mark_delete_position
        partly = self._acks.partly
        for entry, delivery in zip(entries, found, strict=True):
            place = Position(entry.ledger_id, entry.entry_id)
            if place > self._due:
                gone.append((self._due, Position(place.ledger_id, place.entry_id - 1)))
            self._due = _behind(place)
            there = int.from_bytes(copied_from(entry.data).there, "little") if entry.copy >= 0 else 0
            remaining = partly.get(delivery.place, there) & there
            if there and not remaining:
                gone.append((place, place))
                continue
            if there and place > mark:
                partly[delivery.place] = remaining
            left.append(delivery)
        if gone:
            self._cursor.delete_ranges(gone)
        return left

    def _not_done(self, found: Sequence[Delivery], *, compacted: bool) -> Iterable[Delivery]:
        """Leave out what is done with, and be done with markers."""
        is_done = self._cursor.is_done_with if self._cursor.deleted_ranges() else None
        mark = self._cursor.mark_delete_position
        ledgers = self._log.ledgers() if compacted else []
        first = Position(ledgers[0].ledger_id, BEFORE_FIRST) if ledgers else Position(-1, BEFORE_FIRST)
        held, partly = self._acks.in_transactions, self._acks.partly
        for each in found:
            if mark <= first and each.place < first:  # a copy of what the history has let go of
                yield each
                continue
            if each.place <= mark:
                continue
            if each.control:
                self._acks.done(each.place)
            elif held is not None and held.covers(each.place, each.messages, partly.get(each.place)):
                continue  # whether it is done with, a transaction has to tell
            elif is_done is None or not is_done(Position(*each.place)):
                yield each


def _behind(position: Position) -> Position:
    """Return the entry that follows in the same ledger."""
    return Position(position.ledger_id, position.entry_id + 1)
