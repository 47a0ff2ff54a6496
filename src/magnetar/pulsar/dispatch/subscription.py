"""What all subscriptions share: a cursor, a place to read on from, acknowledgements, and a pump that sends.

The pump is the only one that reads and sends; whatever may let it go on (permits, acknowledgements, new entries, a
timer) kicks it. While it waits for storage a consumer may seek or ask for redelivery: then ``_generation`` has moved
on, and what was read counts no more.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from magnetar.ledger.cursor import BEFORE_FIRST, Cursor
from magnetar.ledger.errors import LedgerError
from magnetar.ledger.port import ManagedLedger, Position, StoredEntry
from magnetar.pulsar.dispatch.consumer import Consumer, mask_of
from magnetar.pulsar.dispatch.deliveries import Conversions, Delivery, Place
from magnetar.pulsar.errors import ConsumerBusy, NotAllowed, PulsarError
from magnetar.pulsar.rate_limits import RateLimit
from magnetar.pulsar.wire.pulsar_pb2 import CommandSubscribe, ServerError
from magnetar.records.compaction import copied_from
from magnetar.records.errors import RecordsError

READ_BYTES = 512 << 10
_ACK_DELAY_S = 0.005
_MOST_WAITING_ACKS = 1000
_FIRST_RETRY_S, _LAST_RETRY_S = 1.0, 60.0
_log = logging.getLogger("magnetar.pulsar")

SubType = CommandSubscribe.SubType


@dataclass(frozen=True, slots=True)
class Limits:
    """How many messages may be out unacknowledged; 0 for no bound."""

    unacked_per_consumer: int
    unacked_per_subscription: int


@dataclass(slots=True)
class Readings:
    """What subscriptions of one partition read from."""

    log: ManagedLedger
    conversions: Conversions
    clock: Callable[[], int]
    limits: Limits
    within_batches: bool = True
    """Whether acknowledgements of a part of a batch count."""
    rate: RateLimit | None = None
    """How fast all subscriptions together may be sent messages."""


class Subscription(ABC):
    """One subscription of one partition. Everything runs on the event loop."""

    sub_type: SubType

    def __init__(self, name: str, cursor: Cursor, readings: Readings) -> None:
        self.name = name
        self.cursor = cursor
        self.consumers: list[Consumer] = []
        self.properties: dict[str, str] = {}
        self.expired = 0
        self.paused = False
        """Whether somebody else reads in the place of its consumers."""
        self.abandoned_ms: int | None = None
        """Since when nobody has been there, if it ends unless somebody comes back."""
        self.rate: RateLimit | None = None
        """How fast its consumers may be sent messages."""
        self._rate_alarm: asyncio.TimerHandle | None = None
        self._left_messages = self._left_bytes = 0
        self._readings = readings
        self._log = readings.log
        self._ahead: deque[Delivery] = deque()
        self._next: int | None = None
        self._due = Position(-1, BEFORE_FIRST)
        """The entry that comes next, unless it was compacted away."""
        self._generation = 0
        self._pumping: asyncio.Task[None] | None = None
        self._again = False
        self._retry_s = _FIRST_RETRY_S
        self._retry: asyncio.TimerHandle | None = None
        self._acked: list[Place] = []
        self._ack_timer: asyncio.TimerHandle | None = None
        self._partly: dict[Place, int] = cursor.partly
        """Of batches acknowledged in part: the set of indexes that remain."""
        self._closed = False

    @property
    def is_durable(self) -> bool:
        """Whether it outlives its last consumer."""
        return self.cursor.is_durable

    # -- consumers

    def add(self, consumer: Consumer) -> None:
        """Let a consumer in; raise ``ConsumerBusy`` and the like."""
        self.check(consumer)
        self.consumers.append(consumer)
        self._added(consumer)

    def remove(self, consumer: Consumer) -> None:
        """Let a consumer go; what it had not acknowledged goes to others."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            self._left_messages += consumer.delivered_messages
            self._left_bytes += consumer.delivered_bytes
            self._removed(consumer)

    @abstractmethod
    def check(self, consumer: Consumer) -> None:
        """Raise why a consumer may not come in, if so."""

    @abstractmethod
    def _added(self, consumer: Consumer) -> None: ...

    @abstractmethod
    def _removed(self, consumer: Consumer) -> None: ...

    def disconnect(self) -> None:
        """Send all consumers away; they come back by themselves."""
        for consumer in self.consumers[:]:
            self.remove(consumer)
            consumer.sink.consumer_closed(consumer.consumer_id)

    def flow(self, consumer: Consumer, permits: int) -> None:
        """A consumer has room for more messages."""
        consumer.permits += permits
        self.kick()

    # -- sending

    def kick(self) -> None:
        """Send on, if something can be sent."""
        if self._pumping is not None:
            self._again = True
        elif not self._closed and not self.paused and self._retry is None and self._may_send():
            self._pumping = asyncio.get_running_loop().create_task(self._run())

    @abstractmethod
    def _may_send(self) -> bool:
        """Whether some consumer has room."""

    @abstractmethod
    async def _pump(self) -> None:
        """Send until no consumer has room or nothing is left."""

    async def _run(self) -> None:
        try:
            while not self._closed and not self.paused:
                self._again = False
                await self._pump()
                self._retry_s = _FIRST_RETRY_S
                if not self._again:
                    break
        except (LedgerError, RecordsError) as error:
            self._try_later(error)
        finally:
            self._pumping = None

    def _try_later(self, error: Exception) -> None:
        """Storage cannot give what comes next. To skip it would lose it silently: say so, and try again."""
        if self._closed:
            return
        _log.error(
            "subscription %s of %s cannot go on: %s; it is tried again", self.name, self._log.name, error
        )
        self._retry = asyncio.get_running_loop().call_later(self._retry_s, self._tried)
        self._retry_s = min(2 * self._retry_s, _LAST_RETRY_S)

    def _tried(self) -> None:
        self._retry = None
        self.kick()

    def _is_held_back(self) -> bool:
        """Whether messages went out too fast; then it goes on by itself later."""
        waits_s = [limit.wait_s() for limit in (self.rate, self._readings.rate) if limit is not None]
        if not any(waits_s):
            return False
        if self._rate_alarm is not None:
            self._rate_alarm.cancel()
        self._rate_alarm = asyncio.get_running_loop().call_later(max(waits_s), self.kick)
        return True

    def _new_outbox(self) -> Outbox:
        """Give where to put what is sent next, as much of it as may be sent now."""
        return Outbox([limit for limit in (self.rate, self._readings.rate) if limit is not None])

    async def _fetch(self) -> bool:
        """Read on; tell whether there may be more to send now."""
        if self.paused:
            return False
        generation = self._generation
        offset = self._next
        if offset is None:
            self.flush_acks()
            offset = await self.cursor.start_offset()
            self._due = self._first_due()
        if self.reads_compacted:
            offset = 0 if offset <= self._log.first_offset else offset  # copies may be older than the history
            entries = await self._log.read_compacted(offset, max_bytes=READ_BYTES)
        else:
            offset = max(offset, self._log.first_offset)
            entries = await self._log.read(offset, max_bytes=READ_BYTES)
        found = await self._readings.conversions.deliveries(entries)
        if generation != self._generation:
            return not self.paused
        if not entries:
            self._next = offset
            return False
        self._next = entries[-1].last_offset + 1
        if self._log.compacted is not None:
            found = self._without_gone(entries, found)
        self._ahead.extend(self._not_done(found))
        return True

    @property
    def reads_compacted(self) -> bool:
        """Whether whoever reads wants the newest message of every key, as far as the topic is compacted."""
        return False

    def _first_due(self) -> Position:
        """Give the first entry that is not done with, were nothing compacted away."""
        ledgers, mark = self._log.ledgers(), self.cursor.mark_delete_position
        if ledgers and mark.ledger_id < ledgers[0].ledger_id:
            return Position(ledgers[0].ledger_id, 0)
        return behind(mark)

    def _without_gone(self, entries: Sequence[StoredEntry], found: Sequence[Delivery]) -> list[Delivery]:
        """Be done with what was compacted away before, between and within these entries: nobody acknowledges it."""
        gone, left, mark = [], [], self.cursor.mark_delete_position
        for entry, delivery in zip(entries, found, strict=True):
            place = Position(entry.ledger_id, entry.entry_id)
            if place > self._due:
                gone.append((self._due, Position(place.ledger_id, place.entry_id - 1)))
            self._due = behind(place)
            there = int.from_bytes(copied_from(entry.data).there, "little") if entry.copy >= 0 else 0
            remaining = self._partly.get(delivery.place, there) & there
            if there and not remaining:
                gone.append((place, place))
                continue
            if there and place > mark:
                self._partly[delivery.place] = remaining
            left.append(delivery)
        if gone:
            self.cursor.delete_ranges(gone)
        return left

    def _not_done(self, found: Sequence[Delivery]) -> Iterable[Delivery]:
        """Leave out what is done with, and be done with markers."""
        is_done = self.cursor.is_done_with if self.cursor.deleted_ranges() else None
        mark = self.cursor.mark_delete_position
        ledgers = self._log.ledgers() if self.reads_compacted else []
        first = Position(ledgers[0].ledger_id, BEFORE_FIRST) if ledgers else Position(-1, BEFORE_FIRST)
        for each in found:
            if mark <= first and each.place < first:  # a copy of what the history has let go of
                yield each
                continue
            if each.place <= mark:
                continue
            if each.control:
                self._done(each.place)
            elif is_done is None or not is_done(Position(*each.place)):
                yield each

    def rewind(self) -> None:
        """Read again from the first entry that is not acknowledged."""
        self.flush_acks()
        self._generation += 1
        self._ahead.clear()
        self._next = None

    # -- being done with entries

    def acknowledge(self, consumer: Consumer, place: Place, remaining: int | None) -> None:
        """One entry is done with or, of a batch, all but ``remaining``; raise ``PulsarError`` for foreign ids."""
        if remaining and not self._readings.within_batches:
            return
        if remaining is not None:
            known = self._partly.get(place)
            remaining = remaining if known is None else known & remaining
            if remaining:
                self._known(place)
                self._partly[place] = remaining
                self.cursor.keep()
                return
        self._taken(consumer, place)
        self._done(place)

    def _taken(self, consumer: Consumer, place: Place) -> None:
        """A consumer acknowledged an entry; raise ``PulsarError`` if there is no such entry."""
        self._known(place)

    def acknowledge_up_to(self, consumer: Consumer, place: Place, remaining: int | None) -> None:
        """Everything up to an entry is done with, of that one's batch all but ``remaining``."""
        self._known(place)
        self.flush_acks()
        if remaining:
            if self._readings.within_batches:
                self._partly[place] = self._partly.get(place, remaining) & remaining
                self.cursor.keep()
            self.cursor.mark_delete(Position(place[0], place[1] - 1))
        else:
            self.cursor.mark_delete(Position(*place))
        self._forget_partly(place)
        consumer.acknowledged += 1

    def _forget_partly(self, before: Place) -> None:
        for place in [each for each in self._partly if each < before]:
            del self._partly[place]

    def _known(self, place: Place) -> None:
        for ledger in self._log.ledgers():
            if ledger.ledger_id == place[0]:
                if 0 <= place[1] < ledger.entries:
                    return
                break
            if place[0] < ledger.ledger_id:  # of a ledger that was let go
                return
        raise PulsarError(f"{self._log.name} has no entry {place[0]}:{place[1]}", ServerError.MetadataError)

    def _done(self, place: Place) -> None:
        self._partly.pop(place, None)
        self._acked.append(place)
        if len(self._acked) >= _MOST_WAITING_ACKS:
            self.flush_acks()
        elif self._ack_timer is None:
            self._ack_timer = asyncio.get_running_loop().call_later(_ACK_DELAY_S, self.flush_acks)

    def flush_acks(self) -> None:
        """Have the cursor know of all acknowledgements."""
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
        if self._acked:
            acked, self._acked = self._acked, []
            try:
                self.cursor.delete_ranges(_runs(acked))
            except LedgerError as error:
                # They are delivered again after a restart, as those are that a crash took.
                _log.error("acknowledgements of %s on %s are not kept: %s", self.name, self._log.name, error)

    # -- asking for it again

    @abstractmethod
    def redeliver(self, consumer: Consumer, places: Sequence[Place], epoch: int | None) -> None:
        """Send entries again: those named, or all that the consumer did not acknowledge."""

    # -- moving

    def pause(self) -> None:
        """Send nothing more; what is out may still be acknowledged."""
        self.paused = True
        self.rewind()

    def go_on(self) -> None:
        """Send again, from the first entry that is not acknowledged."""
        self.paused = False
        self.rewind()
        self.kick()

    def first_remaining(self, mark: Position) -> int:
        """Give how many messages of the entry right behind ``mark`` are done with, before the first that is not."""
        remaining = self._partly.get((mark.ledger_id, mark.entry_id + 1), 0)
        return (remaining & -remaining).bit_length() - 1 if remaining else 0

    def reset(self, move: Callable[[], None]) -> None:
        """Send everybody away and move the cursor."""
        self.disconnect()
        self.rewind()
        self._partly.clear()
        move()
        self.rewind()

    def forget_part(self, position: Position) -> None:
        """Have a batch that was acknowledged in part come whole again."""
        self._partly.pop((position.ledger_id, position.entry_id), None)
        self.cursor.keep()

    def begin_within(self, position: Position, ack_set: Sequence[int]) -> None:
        """Begin anew inside a batch, with the messages that ``ack_set`` says remain."""
        self._partly[position.ledger_id, position.entry_id] = mask_of(ack_set)
        self.cursor.keep()

    def skip_to(self, position: Position) -> int:
        """Be done with everything up to ``position``; give how many entries that were."""
        self.flush_acks()
        before = self.cursor.backlog()
        self.cursor.mark_delete(position)
        mark = self.cursor.mark_delete_position
        self._forget_partly(mark)
        while self._ahead and self._ahead[0].place <= mark:
            self._ahead.popleft()
        self.kick()
        return before - self.cursor.backlog()

    def check_unsubscribe(self) -> None:
        """Raise ``PulsarError`` unless the only consumer left may end the subscription."""
        if len(self.consumers) > 1:
            raise PulsarError(
                "Unconnected or shared consumer attempting to unsubscribe", ServerError.MetadataError
            )

    def close(self) -> None:
        """Keep what is acknowledged, and stop."""
        self.flush_acks()
        self._closed = True
        self._generation += 1
        for alarm in (self._retry, self._rate_alarm):
            if alarm is not None:
                alarm.cancel()
        if self._pumping is not None:
            self._pumping.cancel()

    # -- figures

    @property
    def backlog(self) -> int:
        """How many entries are not acknowledged."""
        self.flush_acks()
        return self.cursor.backlog()

    @property
    def delivered_messages(self) -> int:
        """How many messages were sent, to consumers that left too."""
        return self._left_messages + sum(consumer.delivered_messages for consumer in self.consumers)

    @property
    def delivered_bytes(self) -> int:
        """How many bytes were sent, to consumers that left too."""
        return self._left_bytes + sum(consumer.delivered_bytes for consumer in self.consumers)

    @property
    def unacked(self) -> int:
        return sum(consumer.unacked for consumer in self.consumers)

    @property
    def active_consumer(self) -> Consumer | None:
        """Who alone gets messages, where one does."""
        return None

    @property
    def is_blocked(self) -> bool:
        """Whether too much is unacknowledged to send more."""
        return False

    @property
    def delayed(self) -> int:
        """How many entries wait for their time."""
        return 0


class SingleActive(Subscription):
    """Exclusive and failover: one consumer gets everything, in order."""

    def __init__(self, name: str, cursor: Cursor, readings: Readings, sub_type: SubType) -> None:
        super().__init__(name, cursor, readings)
        self.sub_type = sub_type
        self._active: Consumer | None = None

    def check(self, consumer: Consumer) -> None:
        if self.sub_type == SubType.Exclusive and self.consumers:
            raise ConsumerBusy("Exclusive consumer is already connected")

    def _added(self, consumer: Consumer) -> None:
        self._choose(consumer)

    def _removed(self, consumer: Consumer) -> None:
        self._choose(None)

    def _choose(self, newcomer: Consumer | None) -> None:
        """Failover: the lowest priority level goes first; among equals the partitions are spread."""
        old = self._active
        self._active = None
        if self.consumers:
            best = min(each.priority_level for each in self.consumers)
            equals = [each for each in self.consumers if each.priority_level == best]
            self._active = equals[max(equals[0].partition, 0) % len(equals)]
        if self._active is not old:
            self.rewind()
        if self.sub_type == SubType.Failover:
            changed = {old, self._active} if self._active is not old else set()
            for each in self.consumers:
                if each in changed or each is newcomer:
                    each.sink.active_changed(each.consumer_id, each is self._active)
        self.kick()

    @property
    def active_consumer(self) -> Consumer | None:
        return self._active

    @property
    def reads_compacted(self) -> bool:
        return self._active is not None and self._active.read_compacted

    def _may_send(self) -> bool:
        return self._active is not None and self._active.has_room

    async def _pump(self) -> None:
        while (consumer := self._active) is not None and consumer.has_room:
            if not self._ahead:
                if not await self._fetch():
                    return
                continue
            if self._is_held_back():
                return
            outbox = self._new_outbox()
            while self._ahead and consumer.permits > 0 and not outbox.is_full:
                delivery = self._ahead.popleft()
                remaining = self._partly.get(delivery.place)
                consumer.permits -= delivery.messages if remaining is None else remaining.bit_count()
                outbox.add(consumer, delivery, 0, remaining)
            outbox.send()
            await asyncio.sleep(0)

    def redeliver(self, consumer: Consumer, places: Sequence[Place], epoch: int | None) -> None:
        """Everything not acknowledged comes again, whatever is named: the order is what this consumer has alone."""
        if consumer is self._active:
            if epoch is not None:
                consumer.epoch = epoch
            self.rewind()
            self.kick()

    def acknowledge_up_to(self, consumer: Consumer, place: Place, remaining: int | None) -> None:
        if consumer is not self._active:
            raise NotAllowed("only the active consumer may acknowledge")
        super().acknowledge_up_to(consumer, place, remaining)


class Outbox:
    """What is sent together: for each consumer its entries, in order; full when rates allow no more for now."""

    def __init__(self, limits: Sequence[RateLimit] = ()) -> None:
        self._limits = limits
        self._sends: dict[Consumer, list[tuple[Delivery, int, int | None]]] = {}

    @property
    def room(self) -> int:
        """How many messages more may go now."""
        rooms = [messages if size > 0 else 0 for messages, size in (each.budget() for each in self._limits)]
        return min(rooms, default=1 << 62)

    @property
    def is_full(self) -> bool:
        return bool(self._limits) and self.room <= 0

    def add(self, consumer: Consumer, delivery: Delivery, redeliveries: int, remaining: int | None) -> None:
        self._sends.setdefault(consumer, []).append((delivery, redeliveries, remaining))
        for limit in self._limits:
            limit.spend(delivery.messages, len(delivery.body))

    def send(self) -> None:
        for consumer, deliveries in self._sends.items():
            consumer.send(deliveries)


def behind(position: Position) -> Position:
    """Give the entry that follows in the same ledger."""
    return Position(position.ledger_id, position.entry_id + 1)


def _runs(places: list[Place]) -> list[tuple[Position, Position]]:
    """Join entries that follow each other into ranges, from first to last."""
    places.sort()
    runs: list[tuple[Position, Position]] = []
    for ledger_id, entry_id in places:
        if runs and runs[-1][1].ledger_id == ledger_id and runs[-1][1].entry_id + 1 >= entry_id:
            runs[-1] = runs[-1][0], Position(ledger_id, entry_id)
        else:
            runs.append((Position(ledger_id, entry_id), Position(ledger_id, entry_id)))
    return runs
