"""A Shared subscription's part in a work queue that a Kafka share group of its name works through as well.

The books (`magnetar.coordination.shares.linked.WorkQueue`) say who has what; this sees to it that the subscription
asks them before it sends, and tells them what its consumers say. An entry goes to a consumer whole, but for what is
done with: so it waits *elsewhere* while a member of the group holds some of it. What an open transaction of Pulsar's
acknowledged is *aside*, and claimed until it is known what becomes of it.

What either side is done with is done with for both: when they come together, and where an operator skips something,
the books take over what the cursor knows. The cursor follows the books where entries are read, and once a second.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left, insort
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol

from magnetar.coordination.shares.linked import WorkQueue
from magnetar.coordination.shares.share_partition import Standing, StateBatch
from magnetar.coordination.transactions import Ack
from magnetar.ledger.cursors.cursor import BEFORE_FIRST, Cursor
from magnetar.ledger.errors import LedgerError, LedgerNotFound, OffsetOutOfRange
from magnetar.ledger.port import ManagedLedger, Position
from magnetar.pulsar.dispatch.acknowledgements import Acknowledgements
from magnetar.pulsar.dispatch.consumer import Consumer, PendingAck
from magnetar.pulsar.dispatch.deliveries import Delivery, Place
from magnetar.pulsar.errors import PulsarError
from magnetar.records.errors import RecordsError

_log = logging.getLogger("magnetar.pulsar")


class Span(NamedTuple):
    """An entry's offsets."""

    first: int
    last: int


class Elsewhere(NamedTuple):
    """An entry that is to be sent once members of the group hold nothing of it; in the order of the log."""

    first: int
    last: int
    place: Place
    hashes: tuple[int, ...]


class LinkedSubscription(Protocol):
    """What is asked of the subscription."""

    name: str
    cursor: Cursor
    acks: Acknowledgements
    consumers: list[Consumer]

    def pending_of(self, place: Place) -> PendingAck | None: ...

    def again(self, place: Place, last_offset: int, hashes: tuple[int, ...]) -> None: ...

    def wake(self) -> None: ...


class LinkedWork:
    """One subscription's. Everything runs on the event loop."""

    def __init__(
        self,
        subscription: LinkedSubscription,
        log: ManagedLedger,
        find: Callable[[], Awaitable[bool]],
        *,
        within_batches: bool,
    ) -> None:
        """``find`` has the books at work, which then `join`, and tells whether there are any."""
        self._subscription = subscription
        self._acks = subscription.acks
        self._cursor = subscription.cursor
        self._log = log
        self._find = find
        self._within_batches = within_batches
        self._queue: WorkQueue | None = None
        self._is_alone = False
        self._elsewhere: list[Elsewhere] = []
        self._aside: dict[Place, Span | None] = {}
        """Of entries that open transactions acknowledged: where they lie; None until that is looked up."""
        self._moving = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    # -- coming together

    @property
    def is_ready(self) -> bool:
        """Whether it is known who works here: the group as well, or the subscription alone."""
        return self._queue is not None or self._is_alone

    @property
    def is_working(self) -> bool:
        """Whether the group works here as well."""
        return self._queue is not None

    async def make_ready(self) -> None:
        """Find the books, if there are any."""
        if not await self._find():
            self._is_alone = self._queue is None
        elif self._queue is None:
            raise PulsarError(f"the books of share group {self._subscription.name} begin anew")

    async def join(self, queue: WorkQueue) -> None:
        """Work through a queue: claim what consumers have, and be done there with what the cursor is done with."""
        async with self._moving:
            self._queue = queue
            self._is_alone = False
            self._aside.clear()
            for consumer in self._subscription.consumers:
                for pending in consumer.pending.values():
                    queue.claim(pending.first_offset, pending.last_offset)
            try:
                held = self._acks.in_transactions
                for place in () if held is None else list(held.entries()):
                    await self._claim_aside(place)
                await self._take_over()
            except BaseException:
                if self._queue is queue:
                    self._queue = None
                raise

    def lost(self) -> None:
        """The books begin anew: find them before anything more is sent."""
        self._queue = None
        self._is_alone = False
        self._send_elsewhere()
        self._subscription.wake()

    def leave(self) -> None:
        """The subscription works no more."""
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.leave()

    @asynccontextmanager
    async def moving(self) -> AsyncIterator[None]:
        """Have nothing to do with the books while both they and the cursor are set to another place."""
        async with self._moving:
            self.leave()
            self._is_alone = False
            self._elsewhere.clear()
            yield
        self._subscription.wake()

    async def _take_over(self) -> None:
        """Have the books be done with what the cursor is done with."""
        queue = self._queue
        if queue is None:
            return
        self._acks.flush()
        await self._take_over_mark(queue)
        for lower, upper in self._cursor.deleted_ranges():
            start, end = await self._offset_behind(lower), await self._offset_behind(upper)
            if start < end:
                queue.accept(start, end - 1)
        if self._within_batches:
            for place, remaining in list(self._acks.partly.items()):
                try:
                    span = await self._span(place)
                except (PulsarError, LedgerError):
                    continue  # retention took it
                self._accept(queue, span, remaining)

    async def _take_over_mark(self, queue: WorkQueue) -> None:
        offset = await self._cursor.start_offset()
        if offset > queue.start_offset:
            queue.accept(queue.start_offset, offset - 1)

    async def _offset_behind(self, position: Position) -> int:
        if position.entry_id == BEFORE_FIRST:
            ledgers = self._log.ledgers()
            return next((each.first_offset for each in ledgers if each.ledger_id == position.ledger_id), 0)
        try:
            return await self._log.offset_behind(position)
        except (OffsetOutOfRange, LedgerNotFound):
            return 0  # retention took it

    async def follow(self) -> None:
        """Move the mark-delete position to where the books begin, and the other way round."""
        queue = self._queue
        if queue is None:
            return
        self._acks.flush()
        await self._take_over_mark(queue)
        start = queue.start_offset
        if start <= max(await self._cursor.start_offset(), self._log.log_start_offset):
            return
        if start >= self._log.log_end_offset:
            ledger = self._log.ledgers()[-1]
            self._acks.skip_to(Position(ledger.ledger_id, ledger.entries - 1))
            return
        entries = await self._log.read(start, max_bytes=1)
        if entries and self._queue is queue:
            self._acks.skip_to(Position(entries[0].ledger_id, entries[0].entry_id - 1))

    # -- sending

    def may_send(self, delivery: Delivery, hashes: tuple[int, ...]) -> bool:
        """Whether an entry may be sent now; otherwise it comes when it may, or it is done with."""
        queue, place = self._queue, delivery.place
        if queue is None:
            if not self._is_alone:
                self._subscription.again(place, delivery.last_offset, hashes)
            return self._is_alone
        known = self._acks.partly.get(place)
        if place in self._aside:
            held = self._acks.in_transactions
            return held is None or not held.covers(place, delivery.messages, known)
        span = _span_of(delivery)
        standing = queue.standing(*span)
        if standing is Standing.HELD:
            insort(self._elsewhere, Elsewhere(*span, place, hashes))
            return False
        done = queue.done_within(*span)
        if standing is Standing.FREE and (not done or (_all(delivery) if known is None else known) & ~done):
            return True
        self._acks.done(place)
        queue.accept(*span)
        return False

    def claim(self, delivery: Delivery, remaining: int | None, redeliveries: int) -> tuple[int | None, int]:
        """Claim what is sent; give which of its messages remain (None: all), and how often they were sent before."""
        queue, place = self._queue, delivery.place
        if queue is None or place in self._aside:
            return remaining, redeliveries
        claimed = queue.claim(*_span_of(delivery))
        if claimed.done:
            remaining = (_all(delivery) if remaining is None else remaining) & ~claimed.done
            self._acks.done_but(place, remaining)
        return remaining, max(redeliveries, claimed.deliveries - 1)

    def changed(self, batches: Sequence[StateBatch]) -> None:
        """Somebody is done with some offsets, or has given them back: what waits for them may go, or is done with."""
        moved = False
        for batch in batches if self._elsewhere else ():
            low = bisect_left(self._elsewhere, batch.first, key=_last)
            high = low
            kept: list[Elsewhere] = []
            while high < len(self._elsewhere) and self._elsewhere[high].first <= batch.last:
                if self._still_waits(self._elsewhere[high]):
                    kept.append(self._elsewhere[high])
                high += 1
            moved = moved or len(kept) < high - low
            self._elsewhere[low:high] = kept
        if moved:
            self._subscription.wake()

    def _still_waits(self, each: Elsewhere) -> bool:
        standing = Standing.FREE if self._queue is None else self._queue.standing(each.first, each.last)
        if standing is Standing.DONE:
            self._acks.done(each.place)
        elif standing is Standing.FREE:
            self._subscription.again(each.place, each.last, each.hashes)
        return standing is Standing.HELD

    def _send_elsewhere(self) -> None:
        elsewhere, self._elsewhere = self._elsewhere, []
        for each in elsewhere:
            self._subscription.again(each.place, each.last, each.hashes)

    # -- acknowledging, and giving back

    def acknowledged(self, place: Place, known: PendingAck | None, remaining: int | None) -> None:
        """An entry is done with or, of a batch, all but ``remaining``; ``known`` if some consumer had it."""
        if self._queue is None or (remaining and not self._within_batches):
            return
        self._tell(place, None if known is None else Span(known.first_offset, known.last_offset), remaining)

    def give_back(self, place: Place, pending: PendingAck) -> None:
        """A consumer has an entry no more, and is not done with it."""
        if self._queue is not None and place not in self._aside:
            self._queue.give_back(pending.first_offset, pending.last_offset)

    def give_all_back(self) -> None:
        """Nobody has anything; what the cursor is not done with is read again."""
        self._elsewhere.clear()
        if self._queue is None:
            return
        self._queue.give_all_back()
        for span in self._aside.values():
            if span is not None:
                self._queue.claim(*span)

    def skipped(self) -> None:
        """The cursor is done with what nobody acknowledged."""
        if self._queue is not None:
            self._later(self._take_over())

    def _tell(self, place: Place, span: Span | None, remaining: int | None) -> None:
        queue = self._queue
        if queue is None:
            return
        if span is None:  # it comes late: somebody else may have it by now
            self._later(self._accept_late(place, remaining))
        else:
            self._accept(queue, span, remaining)

    async def _accept_late(self, place: Place, remaining: int | None) -> None:
        span = await self._span(place)
        if self._queue is not None:
            self._accept(self._queue, span, remaining)

    @staticmethod
    def _accept(queue: WorkQueue, span: Span, remaining: int | None) -> None:
        if not remaining:
            queue.accept(*span)
            return
        for first, last in _done_runs(remaining, span.last - span.first + 1):
            queue.accept(span.first + first, span.first + last)

    async def _span(self, place: Place) -> Span:
        """Look up where an entry lies; raise ``PulsarError`` for none, or ``LedgerError``."""
        size = self._acks.batch_size(place)
        if size is None:
            size = await self._acks.stored_batch_size(place)
        last = (await self._log.entry(Position(*place))).last_offset
        return Span(last - size + 1, last)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        async def run() -> None:
            try:
                await work
            except (PulsarError, LedgerError, RecordsError) as error:
                _log.warning(
                    "share group %s learns later what its subscription on %s is done with: %s",
                    self._subscription.name,
                    self._log.name,
                    error,
                )

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- in transactions

    def set_aside(self, place: Place, pending: PendingAck | None) -> None:
        """A transaction acknowledged an entry, or some of it."""
        if self._queue is None or place in self._aside:
            return
        if pending is not None:
            self._aside[place] = Span(pending.first_offset, pending.last_offset)
        else:
            self._aside[place] = None
            self._later(self._claim_aside(place))

    async def _claim_aside(self, place: Place) -> None:
        held = self._acks.in_transactions
        had = None if held is None else held.had.get(place)
        span = await self._span(place) if had is None else Span(had.first_offset, had.last_offset)
        if self._queue is not None:
            self._aside[place] = span
            self._queue.claim(*span)

    def settled(self, acks: Sequence[Ack]) -> None:
        """A transaction was committed: what it acknowledged is done with."""
        if self._queue is None:
            return
        for each in acks:
            self._tell(each[:2], self._aside.get(each[:2]), each.remaining)
        self.given_back(acks)

    def given_back(self, acks: Sequence[Ack]) -> None:
        """A transaction has ended: what is left of the entries is free, unless another one, or a consumer, has it."""
        held = self._acks.in_transactions
        still = set() if held is None else set(held.entries())
        for place in dict.fromkeys(each[:2] for each in acks):
            if place in still or place not in self._aside:
                continue
            span = self._aside.pop(place)
            if self._queue is not None and span is not None and self._subscription.pending_of(place) is None:
                self._queue.give_back(*span)


def _last(each: Elsewhere) -> int:
    return each.last


def _span_of(delivery: Delivery) -> Span:
    return Span(delivery.last_offset - delivery.messages + 1, delivery.last_offset)


def _all(delivery: Delivery) -> int:
    return (1 << delivery.messages) - 1


def _done_runs(remaining: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the indexes of a batch that are not in ``remaining``, as runs from first to last."""
    done = ((1 << size) - 1) & ~remaining
    at = 0
    while done:
        skip = (done & -done).bit_length() - 1
        done >>= skip
        length = (~done & (done + 1)).bit_length() - 1
        yield at + skip, at + skip + length - 1
        at += skip + length
        done >>= length
