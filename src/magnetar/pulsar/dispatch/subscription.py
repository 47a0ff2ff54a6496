"""What all persistent subscriptions share: a cursor, acknowledgements, what was read ahead, and a pump that sends it.

The pump is the only one that reads and sends; whatever may let it go on (permits, acknowledgements, new entries, a
timer) wakes it.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from magnetar.coordination.transactions import Ack, TxnId
from magnetar.ledger.cursors.cursor import Cursor
from magnetar.ledger.errors import LedgerError
from magnetar.ledger.port import Position
from magnetar.pulsar.dispatch.acknowledgements import Acknowledgements
from magnetar.pulsar.dispatch.base import AnySubscription
from magnetar.pulsar.dispatch.consumer import Consumer
from magnetar.pulsar.dispatch.deliveries import Place
from magnetar.pulsar.dispatch.outbox import Outbox
from magnetar.pulsar.dispatch.reading import Readings, SubscriptionReader
from magnetar.pulsar.errors import NotAllowed, PulsarError
from magnetar.pulsar.rate_limits import RateLimit
from magnetar.records.errors import RecordsError

_FIRST_RETRY_S, _LAST_RETRY_S = 1.0, 60.0
_log = logging.getLogger("magnetar.pulsar")


class Subscription(AnySubscription):
    """One subscription of one partition. Everything runs on the event loop."""

    def __init__(self, name: str, cursor: Cursor, readings: Readings) -> None:
        super().__init__(name)
        self.cursor = cursor
        self.properties = cursor.properties
        self.paused = False
        """Whether somebody else reads in the place of its consumers."""
        self.abandoned_ms: int | None = None
        """Since when nobody has been there, if it ends unless somebody comes back."""
        self.used_ms = readings.clock()
        """When it was made here, last had a consumer, or was set to another place."""
        self.rate: RateLimit | None = None
        """How fast its consumers may be sent messages."""
        self.acks = Acknowledgements(
            readings.log, cursor, name, readings.turns, within_batches=readings.within_batches
        )
        self._readings = readings
        self._log = readings.log
        self._reading = SubscriptionReader(readings, cursor, self.acks)
        self._ahead = self._reading.ahead
        self._partly = self.acks.partly
        self._pumping: asyncio.Task[None] | None = None
        self._again = False
        self._rate_alarm: asyncio.TimerHandle | None = None
        self._retry_s = _FIRST_RETRY_S
        self._retry: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def is_durable(self) -> bool:
        return self.cursor.is_durable

    def remove(self, consumer: Consumer) -> None:
        self.used_ms = self._readings.clock()
        super().remove(consumer)

    # -- sending

    def wake(self) -> None:
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
        except Exception as error:  # nobody waits for this: left alone, its consumers would get nothing more
            self._try_later(error)
        finally:
            self._pumping = None

    def _try_later(self, error: Exception) -> None:
        """Storage cannot give what comes next. To skip it would lose it silently: say so, and try again."""
        if self._closed:
            return
        _log.error(
            "subscription %s of %s cannot go on: %s; it is tried again", self.name, self._log.name, error,
            exc_info=None if isinstance(error, LedgerError | RecordsError) else error,
        )  # fmt: skip
        self._retry = asyncio.get_running_loop().call_later(self._retry_s, self._tried)
        self._retry_s = min(2 * self._retry_s, _LAST_RETRY_S)

    def _tried(self) -> None:
        self._retry = None
        self.wake()

    def _is_held_back(self) -> bool:
        """Whether messages went out too fast; then it goes on by itself later."""
        waits_s = [limit.wait_s() for limit in (self.rate, self._readings.rate) if limit is not None]
        if not any(waits_s):
            return False
        if self._rate_alarm is not None:
            self._rate_alarm.cancel()
        self._rate_alarm = asyncio.get_running_loop().call_later(max(waits_s), self.wake)
        return True

    def _new_outbox(self) -> Outbox:
        """Return where to put what is sent next, as much of it as may be sent now."""
        return Outbox([limit for limit in (self.rate, self._readings.rate) if limit is not None])

    async def _fetch(self) -> bool:
        """Read on; tell whether there may be more to send now."""
        if self.paused:
            return False
        more = await self._reading.fetch(compacted=self.reads_compacted, keyed=self.reads_keys)
        return more and not self.paused

    @property
    def reads_compacted(self) -> bool:
        """Whether whoever reads wants the newest message of every key, as far as the topic is compacted."""
        return False

    @property
    def reads_keys(self) -> bool:
        """Whether it matters which keys an entry has."""
        return False

    def rewind(self) -> None:
        """Read again from the first entry that is not acknowledged."""
        self._reading.rewind()

    # -- being done with entries

    def batch_size(self, place: Place) -> int | None:
        return self.acks.batch_size(place)

    async def stored_batch_size(self, place: Place) -> int:
        return await self.acks.stored_batch_size(place)

    def acknowledge(self, consumer: Consumer, place: Place, remaining: int | None) -> None:
        if remaining is not None and self.acks.done_but(place, remaining):
            return
        self._taken(consumer, place)
        self.acks.done(place)
        self.tell_end()

    def _taken(self, consumer: Consumer, place: Place) -> None:
        """A consumer acknowledged an entry; raise ``PulsarError`` if there is no such entry."""
        self.acks.check(place)
        consumer.acknowledged += 1

    def acknowledge_up_to(self, consumer: Consumer, place: Place, remaining: int | None) -> None:
        self.acks.done_up_to(place, remaining)
        consumer.acknowledged += 1
        self.tell_end()

    # -- in transactions

    def set_aside(self, consumer: Consumer, txn: TxnId, acks: Sequence[Ack]) -> None:
        """A transaction acknowledges; raise ``PulsarError`` if it cannot, and nothing has changed.

        `settle` or `give_back` follows once it is known what becomes of it.
        """
        held = self.acks.in_transactions
        if held is None or not self.is_durable:
            raise NotAllowed(f"subscription {self.name} takes no acknowledgements of transactions")
        for each in acks:
            self.acks.check(each[:2])
        self.flush_acks()
        held.take(txn, acks, self.cursor)
        for each in acks:
            self._set_aside(consumer, each)

    def _set_aside(self, consumer: Consumer, ack: Ack) -> None:
        consumer.acknowledged += 1

    def settle(self, txn: TxnId, acks: Sequence[Ack]) -> None:
        """A transaction was committed: what it acknowledged is done with."""
        held = self.acks.in_transactions
        if held is not None:
            held.drop(txn, acks)
        for ledger_id, entry_id, remaining, _, cumulative in acks:
            place = ledger_id, entry_id
            with suppress(PulsarError):  # of what there is no more there is nothing to be done with
                if cumulative:
                    self.acks.done_up_to(place, remaining)
                elif remaining is None or not self.acks.done_but(place, remaining):
                    self.acks.check(place)
                    self._settled(place)
                    self.acks.done(place)
        self.flush_acks()
        self.tell_end()
        self.wake()

    def _settled(self, place: Place) -> None:
        """An entry is done with by a transaction."""

    async def give_back(self, txn: TxnId, acks: Sequence[Ack]) -> None:
        """A transaction was aborted: what it acknowledged comes again."""
        held = self.acks.in_transactions
        if held is not None:
            held.drop(txn, acks)

    def tell_end(self) -> None:
        if self._log.terminated is None or not self.consumers or self.backlog:
            return
        for consumer in self.consumers:
            if not consumer.knows_end:
                consumer.knows_end = True
                consumer.sink.reached_end(consumer.consumer_id)

    def flush_acks(self) -> None:
        self.acks.flush()

    # -- moving

    def pause(self) -> None:
        """Send nothing more; what is out may still be acknowledged."""
        self.paused = True
        self.rewind()

    def go_on(self) -> None:
        """Send again, from the first entry that is not acknowledged."""
        self.paused = False
        self.rewind()
        self.wake()

    def reset(self, move: Callable[[], None]) -> None:
        """Send everybody away and move the cursor; what is still being acknowledged is forgotten."""
        self.begun_anew += 1
        self.disconnect()
        self.rewind()
        self._partly.clear()
        move()
        self.rewind()

    def describe(self, properties: Mapping[str, str]) -> None:
        """Replace its properties."""
        self.properties.clear()
        self.properties.update(properties)
        self.cursor.keep()

    def skip_to(self, position: Position) -> int:
        """Be done with everything up to ``position``; give how many entries that were."""
        before = self.backlog
        self.acks.skip_to(position)
        mark = self.cursor.mark_delete_position
        while self._ahead and self._ahead[0].place <= mark:
            self._ahead.popleft()
        self.wake()
        self.tell_end()
        return before - self.cursor.backlog()

    def close(self) -> None:
        self._closed = True
        self._reading.rewind()
        for alarm in (self._retry, self._rate_alarm):
            if alarm is not None:
                alarm.cancel()
        if self._pumping is not None:
            self._pumping.cancel()

    # -- figures

    @property
    def backlog(self) -> int:
        self.flush_acks()
        return self.cursor.backlog()

    @property
    def delayed(self) -> int:
        """How many entries wait for their time."""
        return 0

    @property
    def read_position(self) -> Position:
        """The entry that is read next."""
        return self._reading.position

    @property
    def is_waiting(self) -> bool:
        """Whether it would send more if there were more."""
        return self._pumping is None and not self._ahead and not self.paused and self._may_send()
