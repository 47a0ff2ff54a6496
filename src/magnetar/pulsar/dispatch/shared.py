"""Shared subscriptions: entries go to whoever has room, and each is acknowledged, or sent again, by itself.

An entry is in one of these places: ahead (read, not sent), pending (at a consumer), replay (to be sent again, in
order), delayed (until its time), waiting (a piece of a message, for the consumer that has the others), or done with.
Replays go before what is ahead.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Sequence

from magnetar.coordination.transactions import Ack, TxnId
from magnetar.ledger.cursors.cursor import Cursor
from magnetar.ledger.errors import LedgerNotFound
from magnetar.ledger.port import Position
from magnetar.pulsar.dispatch.base import SubType, foremost
from magnetar.pulsar.dispatch.consumer import Consumer, PendingAck
from magnetar.pulsar.dispatch.deliveries import Delivery, Place
from magnetar.pulsar.dispatch.linked import LinkedWork
from magnetar.pulsar.dispatch.outbox import Outbox
from magnetar.pulsar.dispatch.pieces import MessagePieces, Replay
from magnetar.pulsar.dispatch.reading import READ_BYTES, Readings
from magnetar.pulsar.dispatch.subscription import Subscription
from magnetar.pulsar.errors import NotAllowed

_MAX_REPLAYED_AT_ONCE = 200
_TICK_S = 0.001


class Shared(Subscription):
    """Round robin among the consumers that have room, those of the lowest priority level first."""

    sub_type: SubType = SubType.Shared

    def __init__(self, name: str, cursor: Cursor, readings: Readings) -> None:
        super().__init__(name, cursor, readings)
        self._turn = 0
        self._redeliveries: dict[Place, int] = {}
        self._replay: dict[Place, Replay] = {}
        self._order: list[Place] = []  # a heap; places that are no longer in _replay are passed over
        self._delayed: list[tuple[int, Place, int]] = []  # a heap: when, what, its last offset
        self._alarm: asyncio.TimerHandle | None = None
        self._pieces = MessagePieces()
        self.link: LinkedWork | None = None
        """Its part in the work queue that it shares with a Kafka share group, where its name is linked."""

    # -- consumers

    def _added(self, consumer: Consumer) -> None:
        if len(self.consumers) == 1:
            self._start_over()
        self.wake()

    def _removed(self, consumer: Consumer) -> None:
        pending, consumer.pending, consumer.unacked = consumer.pending, {}, 0
        for place, kept in pending.items():
            self._let_go(place, kept)
        if not self.consumers:
            self._start_over()
        self.wake()

    def _start_over(self) -> None:
        """Nobody has anything: what the cursor is not done with is all there is."""
        self.rewind()

    def rewind(self) -> None:
        super().rewind()
        if self.link is not None:
            self.link.give_all_back()
        self._replay.clear()
        self._order.clear()
        self._delayed.clear()
        self._pieces.clear()
        for consumer in self.consumers:
            consumer.pending.clear()
            consumer.unacked = 0

    @property
    def is_blocked(self) -> bool:
        most = self._readings.limits.unacked_per_subscription
        return 0 < most <= self.unacked

    @property
    def delayed(self) -> int:
        return len(self._delayed)

    def holds_back(self, consumer: Consumer) -> bool:
        return self._is_full(consumer)

    def _is_full(self, consumer: Consumer) -> bool:
        """Whether a consumer holds as much unacknowledged as it may."""
        return 0 < self._readings.limits.unacked_per_consumer <= consumer.unacked

    def _has_room(self, consumer: Consumer) -> bool:
        return consumer.has_room and not self._is_full(consumer)

    def _may_send(self) -> bool:
        return any(map(self._has_room, self.consumers)) and not self.is_blocked

    # -- sending

    async def _pump(self) -> None:
        while self._may_send():
            if self.link is not None and not self.link.is_ready:
                await self.link.make_ready()
                continue
            if self._is_held_back():
                return
            self._wake_delayed()
            for place, replay in self._pieces.due(self._waits_for):
                self._again_later(place, replay)
            if self._replay:
                if not await self._send_replays():
                    return
            elif self._ahead:
                if not self._send_ahead():
                    return
            elif not await self._fetch():
                return
            await asyncio.sleep(0)

    def _send_ahead(self) -> bool:
        """Hand out what was read; tell whether there is reason to go on."""
        outbox = self._new_outbox()
        while self._ahead and not self.is_blocked and not outbox.is_full:
            delivery = self._ahead[0]
            if self._is_early(delivery):
                self._ahead.popleft()
                continue
            if self.link is not None and not self.link.may_send(delivery, ()):
                self._ahead.popleft()
                continue
            consumer = self._choose(delivery, ())
            if consumer is None and not self._may_wait(delivery, Replay(delivery.last_offset, ())):
                break
            self._ahead.popleft()
            if consumer is not None:
                self._hand(delivery, (), consumer, outbox)
        outbox.send()
        return not self._ahead or outbox.is_full

    async def _send_replays(self) -> bool:
        """Hand out again; tell whether there is reason to go on."""
        taken: dict[Place, Replay] = {}
        most = min(self._new_outbox().room, _MAX_REPLAYED_AT_ONCE)
        while self._order and len(taken) < most:
            place = heapq.heappop(self._order)
            replay = self._replay.pop(place, None)
            if replay is not None:
                taken[place] = replay
        if not taken:
            return True
        generation = self._reading.generation
        try:
            found = await self._read_again(taken)
        except Exception:
            self._put_back(taken)
            raise
        if generation != self._reading.generation:
            return True
        outbox = self._new_outbox()
        stuck = False
        for delivery in found:
            replay = taken.pop(delivery.place)
            if outbox.is_full or self._is_earlier_again(delivery.place):
                self._again_later(delivery.place, replay)
                continue
            if self.link is not None and not self.link.may_send(delivery, replay.hashes):
                continue
            consumer = None if stuck or self.is_blocked else self._choose(delivery, replay.hashes)
            if consumer is None:
                stuck = self._stuck(delivery, replay) or stuck
            else:
                self._hand(delivery, replay.hashes, consumer, outbox)
        self._put_back(taken)  # those that one reading did not reach
        outbox.send()
        return not stuck

    def _is_earlier_again(self, place: Place) -> bool:
        """Whether an earlier entry is to be sent again, since its consumer left while this one was read."""
        while self._order and self._order[0] not in self._replay:
            heapq.heappop(self._order)
        return bool(self._order) and self._order[0] < place

    def _stuck(self, delivery: Delivery, replay: Replay) -> bool:
        """Nobody takes a replay now: keep it; tell whether nobody takes any other one either."""
        if self._may_wait(delivery, replay):
            return False
        self._again_later(delivery.place, replay)
        return True

    def _may_wait(self, delivery: Delivery, replay: Replay) -> bool:
        """Whether a piece of a message waits for the one consumer that can use it, and others may be sent theirs."""
        consumer = self._pieces.consumer(delivery.metadata)
        if consumer is None or not self._waits_for(consumer):
            return False
        self._pieces.wait(delivery.place, replay, consumer)
        return True

    def _waits_for(self, consumer: Consumer) -> bool:
        return consumer in self.consumers and not self._has_room(consumer)

    async def _read_again(self, taken: dict[Place, Replay]) -> list[Delivery]:
        """Read entries from the first one on, as far as one reading goes. Those that retention took are done with."""
        for place in [each for each, kept in taken.items() if kept.last_offset < self._log.log_start_offset]:
            del taken[place]
            self.acks.done(place)
        if not taken:
            return []
        first = min(kept.last_offset for kept in taken.values())
        last = max(kept.last_offset for kept in taken.values())
        most = READ_BYTES if last > first else 1
        entries = await self._log.read(first, max_bytes=most)
        wanted = [each for each in entries if (each.ledger_id, each.entry_id) in taken]
        return await self._readings.conversions.deliveries(wanted)

    def _put_back(self, taken: dict[Place, Replay]) -> None:
        for place, replay in taken.items():
            self._again_later(place, replay)

    def _again_later(self, place: Place, replay: Replay) -> None:
        self._replay[place] = replay
        heapq.heappush(self._order, place)

    def _choose(self, delivery: Delivery, hashes: tuple[int, ...]) -> Consumer | None:
        """Return who gets an entry, or None if nobody can take it now."""
        is_piece = delivery.metadata.num_chunks_from_msg > 1
        chosen = self._pieces.consumer(delivery.metadata) if is_piece else None
        if chosen is None or chosen not in self.consumers:
            ready = [each for each in self.consumers if self._has_room(each)]
            if not ready:
                return None
            equals = foremost(ready)
            self._turn += 1
            chosen = equals[self._turn % len(equals)]
        elif not self._has_room(chosen):
            return None
        if is_piece:
            self._pieces.sent(delivery.metadata, chosen)
        return chosen

    def _hand(self, delivery: Delivery, hashes: tuple[int, ...], consumer: Consumer, outbox: Outbox) -> None:
        place = delivery.place
        remaining = self.acks.remaining(place, delivery.messages)
        redeliveries = self._redeliveries.get(place, 0)
        if self.link is not None:
            remaining, redeliveries = self.link.claim(delivery, remaining, redeliveries)
        messages = delivery.messages if remaining is None else remaining.bit_count()
        consumer.permits -= messages
        consumer.unacked += messages
        consumer.pending[place] = PendingAck(messages, delivery.last_offset, hashes, delivery.messages)
        if delivery.messages > 1:
            self.acks.sent(place, delivery.messages)
        outbox.add(consumer, delivery, redeliveries, remaining)

    # -- delayed delivery

    def _is_early(self, delivery: Delivery) -> bool:
        """Keep an entry whose time has not come."""
        when = delivery.metadata.deliver_at_time
        if when <= self._readings.clock() or not self._readings.delays:
            return False
        heapq.heappush(self._delayed, (when, delivery.place, delivery.last_offset))
        self._set_alarm()
        return True

    def _wake_delayed(self) -> None:
        now_ms = self._readings.clock()
        while self._delayed and (self._delayed[0][0] <= now_ms or not self._readings.delays):
            _, place, last_offset = heapq.heappop(self._delayed)
            self._again_later(place, Replay(last_offset, self._hashes_of(place)))
        self._set_alarm()

    def _hashes_of(self, place: Place) -> tuple[int, ...]:
        return ()

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._delayed and not self._closed:
            wait_s = max((self._delayed[0][0] - self._readings.clock()) / 1000, _TICK_S)
            self._alarm = asyncio.get_running_loop().call_later(wait_s, self.wake)

    # -- acknowledging, and asking for it again

    def acknowledge(self, consumer: Consumer, place: Place, remaining: int | None) -> None:
        known = None if self.link is None else self.pending_of(place)
        # Clients name a batch once for each of its messages: all but the first say what the books know.
        again = self.link is not None and known is None and self.acks.is_done(place)
        super().acknowledge(consumer, place, remaining)
        if self.link is not None and not again:
            self.link.acknowledged(place, known, remaining)
        left = self._partly.get(place)
        pending = consumer.pending.get(place)
        if left is not None and pending is not None:
            messages = left.bit_count()
            consumer.unacked -= pending.messages - messages
            consumer.acknowledged += pending.messages - messages
            consumer.pending[place] = pending._replace(messages=messages)
        self.wake()

    def _taken(self, consumer: Consumer, place: Place) -> None:
        owner: Consumer | None = consumer
        pending: PendingAck | None = None
        if place not in consumer.pending:
            owner = next((each for each in self.consumers if place in each.pending), None)
        if owner is None:
            self.acks.check(place)
            self._forget(place)
        else:
            pending = owner.pending.pop(place)
            owner.unacked -= pending.messages
            self._acknowledged(place, pending)
        self._redeliveries.pop(place, None)
        consumer.acknowledged += 1 if pending is None else pending.messages

    def _forget(self, place: Place) -> None:
        """An entry that no consumer has need not be sent again."""
        self._replay.pop(place, None)
        self._pieces.forget(place)

    def pending_of(self, place: Place) -> PendingAck | None:
        """Return what is known of an entry that some consumer has."""
        return next((each.pending[place] for each in self.consumers if place in each.pending), None)

    def again(self, place: Place, last_offset: int, hashes: tuple[int, ...]) -> None:
        """Have an entry sent, again or for the first time, when there is room."""
        self._again_later(place, Replay(last_offset, hashes))

    def _acknowledged(self, place: Place, pending: PendingAck) -> None:
        """A consumer is done with an entry."""

    def _let_go(self, place: Place, pending: PendingAck) -> None:
        """A consumer has an entry no more, and is not done with it."""
        if self.link is not None:
            self.link.give_back(place, pending)
        self._again_later(place, Replay(pending.last_offset, pending.hashes))

    def acknowledge_up_to(self, consumer: Consumer, place: Place, remaining: int | None) -> None:
        raise NotAllowed("cumulative acknowledgement is not possible on a shared subscription")

    def redeliver(self, consumer: Consumer, places: Sequence[Place], epoch: int | None) -> None:
        for place in places or list(consumer.pending):
            pending = consumer.pending.pop(place, None)
            if pending is not None:
                consumer.unacked -= pending.messages
                self._redeliveries[place] = self._redeliveries.get(place, 0) + 1
                self._let_go(place, pending)
        self.wake()

    # -- in transactions

    def _set_aside(self, consumer: Consumer, ack: Ack) -> None:
        """A whole entry is its consumer's no more; of a batch it keeps what remains until the transaction ends."""
        place = ack[:2]
        pending: PendingAck | None = None
        if ack.remaining is None:
            pending = self._take_from(place)
            held = self.acks.in_transactions
            if pending is not None and held is not None:
                held.had[place] = pending
        if self.link is not None:
            self.link.set_aside(place, pending if ack.remaining is None else self.pending_of(place))
        super()._set_aside(consumer, ack)
        self.wake()

    def _take_from(self, place: Place) -> PendingAck | None:
        """Take an entry from whoever has it, or from what is to be sent again."""
        self._forget(place)
        owner = next((each for each in self.consumers if place in each.pending), None)
        if owner is None:
            return None
        pending = owner.pending.pop(place)
        owner.unacked -= pending.messages
        self._acknowledged(place, pending)
        return pending

    def _settled(self, place: Place) -> None:
        self._take_from(place)
        self._redeliveries.pop(place, None)
        held = self.acks.in_transactions
        if held is not None:
            held.had.pop(place, None)

    def settle(self, txn: TxnId, acks: Sequence[Ack]) -> None:
        super().settle(txn, acks)
        if self.link is not None:
            self.link.settled(acks)

    async def give_back(self, txn: TxnId, acks: Sequence[Ack]) -> None:
        await super().give_back(txn, acks)
        held, generation = self.acks.in_transactions, self._reading.generation
        had = {} if held is None else held.had
        for place in dict.fromkeys(each[:2] for each in acks):
            pending = self._take_from(place) or had.pop(place, None)
            position = Position(*place)
            if self.cursor.is_done_with(position) or position >= self._reading.position:
                continue  # somebody else is done with it, or it is still to be read
            if pending is None:
                pending = await self._as_delivered(position)
                if generation != self._reading.generation:
                    continue  # it is read again
            if pending is None:
                self.acks.done(place)
                continue
            self._redeliveries[place] = self._redeliveries.get(place, 0) + 1
            self._again_later(place, Replay(pending.last_offset, pending.hashes))
        if self.link is not None:
            self.link.given_back(acks)
        self.wake()

    async def _as_delivered(self, position: Position) -> PendingAck | None:
        """Return what is known of an entry when it is delivered; None if retention took it."""
        try:
            entry = await self._log.entry(position)
        except LedgerNotFound:
            return None
        (delivery,) = await self._readings.conversions.deliveries([entry], keyed=self.reads_keys)
        return PendingAck(
            delivery.messages, delivery.last_offset, self._hashes_in(delivery), delivery.messages
        )

    def _hashes_in(self, delivery: Delivery) -> tuple[int, ...]:
        return ()

    def skip_to(self, position: Position) -> int:
        for consumer in self.consumers:
            for place in [each for each in consumer.pending if each <= position]:
                self._taken(consumer, place)
        for place in [each for each in self._replay if each <= position]:
            del self._replay[place]
        self._pieces.forget_up_to(position)
        self._delayed = [each for each in self._delayed if each[1] > position]
        heapq.heapify(self._delayed)
        skipped = super().skip_to(position)
        if self.link is not None:
            self.link.skipped()
        return skipped

    def close(self) -> None:
        super().close()
        if self.link is not None:
            self.link.leave()
        if self._alarm is not None:
            self._alarm.cancel()
