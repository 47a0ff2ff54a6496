"""One share partition at work: what its machine decides is made durable, its locks end in time, its waiters hear of it.

Whatever members are told of as acknowledged is durable before. If it cannot be kept, nobody knows what the next start
will find: the machine is thrown away, and begins anew from what is stored. Who held something then does not any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from magnetar.base.errors import BrokerError
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.coordination.shares.linked import LinkedQueues
from magnetar.coordination.shares.runs import OffsetRun
from magnetar.coordination.shares.share_partition import DeadLetters, Judged, SharePartition
from magnetar.kafka.coordinators.share.settings import READ_COMMITTED, ShareSettings
from magnetar.kafka.partitions.formats import Batch
from magnetar.kafka.partitions.partition import Partition
from magnetar.kafka.shares.beginning import first_offset
from magnetar.kafka.shares.dead_letter_topics import DeadLetterTopics
from magnetar.kafka.shares.dead_letters import DeadLetterQueue
from magnetar.kafka.shares.lent import LentShare
from magnetar.kafka.shares.state import UNSET, ShareKey
from magnetar.kafka.shares.states_anywhere import StatesAnywhere
from magnetar.ledger.errors import LedgerError
from magnetar.records.batch import read_header
from magnetar.wire.kafka.errors import ErrorCode

_MIN_READ_BYTES = 64 << 10
_log = logging.getLogger(__name__)


class Given(NamedTuple):
    """What a member is given: batches, and which of their records it holds now."""

    batches: list[Batch]
    runs: list[OffsetRun]
    records: int


NOTHING = Given([], [], 0)


class WantedRecords(NamedTuple):
    """What a member asks for."""

    max_records: int
    max_bytes: int
    strict: bool
    """Whether it wants no record more, though a batch ends amid (KIP-1206)."""


class ServedShare:
    """One partition as one group has it. Raises `CoordinatorRefused`, ``LedgerError``, `NotHeld`."""

    def __init__(
        self,
        key: ShareKey,
        partition: Partition,
        states: StatesAnywhere,
        settings: Callable[[], ShareSettings],
        clock: Callable[[], int],
        gone: Callable[[ServedShare], None],
        dead_letters: DeadLetterTopics,
        links: LinkedQueues | None = None,
    ) -> None:
        """``gone`` is called when it begins anew for whoever asks next; ``links`` lead to subscriptions, if any may."""
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.is_gone = False
        self._states = states
        self._settings = settings
        self._clock = clock
        self._gone = gone
        self._links = links if links is not None and links.is_linked(key.group_id) else None
        self._lent: LentShare | None = None
        self._state_epoch = 0
        self._machine: SharePartition | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms = 0
        self._waiting: set[Callable[[], None]] = set()
        self._record_bytes = 0.0
        self._is_left = False
        self._dead_letters = DeadLetterQueue(
            key.group_id, lambda: self.partition, dead_letters, settings, self._archived
        )

    @property
    def machine(self) -> SharePartition:
        """The books, once it is loaded."""
        assert self._machine is not None
        return self._machine

    @property
    def is_held(self) -> bool:
        """Whether anybody holds any of it."""
        return self.machine.is_held

    @property
    def is_lent(self) -> bool:
        """Whether a Pulsar subscription works through it as well."""
        return self._lent is not None and self._lent.is_used

    def leave_unless_needed(self) -> None:
        """A member has gone: end here if nobody holds anything, once what was given up is archived."""
        self._is_left = True
        if not (self.is_gone or self.is_held or self.is_lent or self.machine.is_archiving):
            self.end_here()  # all that counts is kept, or about to be

    async def load(self) -> None:
        """Begin where it was left or, the first time, where the linked subscription is or the configuration says.

        Raises `QueueBusy` too.
        """
        state = await self._states.read(self.key, self.leader_epoch)
        self._state_epoch = state.state_epoch
        start, batches = state.start_offset, state.batches
        if start == UNSET:
            start = await self._beginning()
            await self._states.initialize(self.key, state.state_epoch, start)
            # Whoever led before may have begun it first, elsewhere.
            state = await self._states.read(self.key, self.leader_epoch)
            self._state_epoch = state.state_epoch
            start, batches = state.start_offset, state.batches
        self._machine = SharePartition(start, batches)
        if self._links is not None:
            await self._lend(self._links)
        self._dead_letters.add(self.machine.take_dead_letters())

    async def _beginning(self) -> int:
        partition = self.partition
        if self._links is not None:
            start = await self._links.subscriptions.beginning(
                self.key.group_id, partition.topic, partition.index
            )
            if start is not None:
                return start
        return await first_offset(partition, self._settings().share_auto_offset_reset, self._clock())

    async def _lend(self, links: LinkedQueues) -> None:
        """Have the subscription work through it as well: what it is done with is done with, what it holds it claims."""
        partition = self.partition
        lent = self._lent = LentShare(self.machine, self._settle_lent)
        try:
            workers = await links.subscriptions.join(
                self.key.group_id, partition.topic, partition.index, lent
            )
        except BaseException:
            self.end_here()
            raise
        if workers is not None:
            lent.begin(workers)
        if self.is_gone:
            lent.end()
            raise CoordinatorRefused(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    async def lend(self) -> None:
        """Have a subscription work through it that has come since. Raises `QueueBusy`, ``LedgerError``."""
        if self._links is not None and not self.is_lent:
            await self._lend(self._links)

    def _settle_lent(self) -> None:
        if not self.is_gone:
            self._keep_soon()
            self._ring()

    # Giving.

    async def take(self, holder: str, wanted: WantedRecords, is_there: Callable[[], bool]) -> Given:
        """Return what a member is given of free records, now. ``is_there`` tells whether it still waits for them."""
        machine, log = self.machine, self.partition.log
        self._is_left = False
        while True:
            self._check()
            if log.log_start_offset > machine.start_offset:
                machine.begin_at(log.log_start_offset)
                if self._lent is not None:
                    self._lent.count()
                self._keep_soon()
            settings = self._settings()
            committed = settings.share_isolation_level == READ_COMMITTED
            most = settings.group_share_partition_max_record_locks  # what Pulsar's consumers hold counts not
            most += 0 if self._lent is None else self._lent.records
            offset = machine.next_offset
            if offset >= self.end(committed=committed) or not (
                machine.has_available or machine.in_flight < most
            ):
                return NOTHING
            deliveries = settings.group_share_delivery_count_limit
            most_bytes = self._bytes(wanted, machine.likely(wanted.max_records, deliveries))
            batches, size = await self.partition.read(offset, most_bytes, committed=committed)
            self._check()
            if not batches or not is_there():
                return NOTHING
            spans = self._spans(batches, offset, committed=committed)
            until_ms = self._clock() + settings.group_share_record_lock_duration_ms
            runs = machine.acquire(
                holder,
                spans,
                wanted.max_records,
                max_in_flight=most,
                until_ms=until_ms,
                strict=wanted.strict,
                max_deliveries=deliveries,
            )
            if runs:
                self._set_alarm()
                self._keep_soon()
                records = sum(run.records for run in runs)
                self._record_bytes = size / max(sum(last - first + 1 for first, last in spans), 1)
                return Given(_touched(batches, runs), runs, records)
            if machine.next_offset == offset:
                return NOTHING

    def _bytes(self, wanted: WantedRecords, records: int) -> int:
        """Return how much to read: what the last records tell that so many of them take."""
        guess = int(self._record_bytes * records * 1.25) or wanted.max_bytes
        # Of few, one batch is there in any case.
        least = _MIN_READ_BYTES if records == wanted.max_records else 0
        return min(wanted.max_bytes, max(guess, least))

    def _spans(self, batches: Sequence[Batch], offset: int, *, committed: bool) -> list[tuple[int, int]]:
        """Return the offsets of each batch that somebody may be given; the machine is done with those of the others.

        Nobody is given markers, nor, where only what is committed counts, batches of aborted transactions.
        """
        headers = [read_header(batch) for batch in batches]
        transactions = self.partition.log.transactions if committed else None
        aborted = () if transactions is None else transactions.aborted_in(offset, headers[-1].last_offset + 1)
        spans = []
        for header in headers:
            first, last = header.base_offset, header.last_offset
            left_out = header.is_control or (
                header.is_transactional
                and any(
                    each.producer_id == header.producer_id and each.first_offset <= first <= each.last_offset
                    for each in aborted
                )
            )
            if left_out:
                self.machine.skip(max(first, self.machine.start_offset), last)
            else:
                spans.append((first, last))
        return spans

    def end(self, *, committed: bool) -> int:
        """Return where what members may have ends."""
        log = self.partition.log
        return log.last_stable_offset if committed else log.high_watermark

    # Taking back.

    @property
    def renews(self) -> bool:
        """Whether members may hold a record for longer."""
        return self._settings().share_renew_acknowledge_enable

    async def judge(self, holder: str, said: Sequence[Judged]) -> None:
        """Take in what a member says of what it holds; durable on return."""
        settings = self._settings()
        self._check()
        self.machine.judge(
            holder,
            said,
            max_deliveries=settings.group_share_delivery_count_limit,
            until_ms=self._clock() + settings.group_share_record_lock_duration_ms,
            dead_letters=settings.errors_deadletterqueue_topic_name != "",
        )
        self._set_alarm()
        kept = self._keep()
        self._ring()
        if kept is not None:
            try:
                await kept
            except CoordinatorRefused:
                self.end_here()
                raise

    def release(self, holder: str) -> None:
        """Take back all that a member holds; it is durable soon."""
        if self._machine is not None and not self.is_gone:
            limit, dead_letters = self._limits()
            self.machine.release(holder, max_deliveries=limit, dead_letters=dead_letters)
            self._keep_soon()
            self._ring()

    def _limits(self) -> tuple[int, bool]:
        settings = self._settings()
        return settings.group_share_delivery_count_limit, settings.errors_deadletterqueue_topic_name != ""

    def _archived(self, letters: Sequence[DeadLetters]) -> None:
        """What was given up is in the dead-letter queue, or never will be."""
        if self.is_gone:
            return
        for each in letters:
            self.machine.archived(each.first, each.last)
        self._keep_soon()
        self._ring()
        if self._is_left and not self._waiting:
            self.leave_unless_needed()

    def _expire(self) -> None:
        self._alarm = None
        if self.is_gone:
            return
        limit, dead_letters = self._limits()
        self.machine.expire(self._clock(), max_deliveries=limit, dead_letters=dead_letters)
        self._keep_soon()
        self._set_alarm()
        self._ring()

    def _set_alarm(self) -> None:
        deadline_ms = self.machine.deadline_ms()
        if self._alarm is not None:
            if deadline_ms is not None and self._alarm_ms <= deadline_ms:
                return
            self._alarm.cancel()
            self._alarm = None
        if deadline_ms is not None:
            wait_s = max(deadline_ms - self._clock() + 1, 0) / 1000
            self._alarm_ms = deadline_ms
            self._alarm = asyncio.get_running_loop().call_later(wait_s, self._expire)

    # Keeping.

    def _keep(self) -> asyncio.Future[ErrorCode] | None:
        changes = self.machine.take_changes()
        if changes is None:
            return None
        letters = self.machine.take_dead_letters()
        if self._lent is not None:
            self._lent.tell(changes.batches)
        try:
            kept = self._states.write(self.key, self._state_epoch, self.leader_epoch, changes)
        except CoordinatorRefused:
            self.end_here()
            raise
        if letters:
            kept.add_done_callback(partial(self._given_up, letters))
        return kept

    def _given_up(self, letters: Sequence[DeadLetters], kept: asyncio.Future[ErrorCode]) -> None:
        """Have letters sent now that they are durably to be; if they are not, their records may come again."""
        if not self.is_gone and not kept.cancelled() and kept.exception() is None:
            self._dead_letters.add(letters)

    def _keep_soon(self) -> None:
        """Have changes made durable that nobody waits for."""
        try:
            kept = self._keep()
        except CoordinatorRefused as refused:
            _log.warning("share partition %s of %s-%d begins anew: %s", *self._name, refused)
            return
        if kept is not None:
            kept.add_done_callback(self._kept)

    def _kept(self, kept: asyncio.Future[ErrorCode]) -> None:
        if not kept.cancelled() and (error := kept.exception()) is not None:
            _log.warning("share partition %s of %s-%d begins anew: %s", *self._name, error)
            self.end_here()

    @property
    def _name(self) -> tuple[str, str, int]:
        return self.key.group_id, self.partition.topic.kafka_name, self.key.partition

    def _check(self) -> None:
        if self.partition.closed is not None:
            self.end_here()
            raise self.partition.closed
        if self.is_gone:
            raise CoordinatorRefused(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def end_here(self) -> None:
        """Forget all that is in memory; whoever asks next begins with what is stored."""
        if self.is_gone:
            return
        self.is_gone = True
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._dead_letters.end()
        self._gone(self)
        if self._lent is not None:
            self._lent.end()
        self._ring()

    # Waiting.

    def wait(self, wake: Callable[[], None]) -> None:
        """Have ``wake`` called each time more may be taken, until ``leave``."""
        self._waiting.add(wake)
        self.partition.wait(wake)

    def leave(self, wake: Callable[[], None]) -> None:
        self._waiting.discard(wake)
        self.partition.leave(wake)

    def _ring(self) -> None:
        for wake in tuple(self._waiting):
            wake()


Failure = CoordinatorRefused | LedgerError | BrokerError


def _touched(batches: Sequence[Batch], runs: Sequence[OffsetRun]) -> list[Batch]:
    """Return the batches of which a member holds something."""
    touched = []
    place = 0
    for batch in batches:
        header = read_header(batch)
        while place < len(runs) and runs[place].last < header.base_offset:
            place += 1
        if place < len(runs) and runs[place].first <= header.last_offset:
            touched.append(batch)
    return touched
