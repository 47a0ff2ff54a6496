"""What is appended to a log of the late engine: placed at once, sent when there is a ledger, known of when answered."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from magnetar.ledger.errors import LedgerError, LedgerFenced
from magnetar.ledger.port import Done, LedgerSummary, NewEntry, Pending, Position, Snapshot, TakenBack
from magnetar.records.batch import UNKNOWN_TIME
from magnetar.records.compression import Buffer
from magnetar.records.entry import broker_entry_head
from tests.engines.late.store import Listed, Stream

if TYPE_CHECKING:
    from tests.engines.late.log import LateLog


_LATEST_MS = 1 << 62


@dataclass(eq=False, slots=True)
class Placed:
    """An entry that has its offsets, and whoever waits for it."""

    pending: Pending
    done: Done
    row: NewEntry
    earliest_ms: int
    fate: LedgerError | None
    kept: LedgerSummary | None = None
    """What is known of its ledger once it is kept."""


class Appends:
    """The writer of one log. An entry that is not kept takes all behind it along, and its ledger ends before it."""

    def __init__(self, log: LateLog) -> None:
        self._log = log
        self._store = log.store
        self._unsent: deque[Placed] = deque()
        self._sent: deque[Placed] = deque()
        self._stream: Stream | None = None
        """To the open ledger; None where a new one is needed."""
        self._kept: LedgerSummary | None = None
        """What is known to be in the open ledger."""
        self._writing: asyncio.Task[None] | None = None
        self._making = asyncio.Lock()
        self._waiting: list[asyncio.Future[None]] = []
        self._ended = -1
        """The ledger that this writer has had end, whether the list says so or not."""
        self._earliest = UNKNOWN_TIME
        self._noted: Snapshot | None = None
        """What is to be kept when all of which it speaks is."""

    def place(self, message: Sequence[Buffer], messages: int, timestamp_ms: int, earliest_ms: int) -> Pending:
        """Return an entry its offsets."""
        assert messages > 0
        log = self._log
        for interceptor in log.engine.interceptors:
            message, earliest_ms = interceptor.before_append(log, message, messages), UNKNOWN_TIME
        last_offset = log.log_end_offset + messages - 1
        data = b"".join((broker_entry_head(log.engine.clock(), last_offset), *message))
        done = Done()
        row = NewEntry(data, last_offset, timestamp_ms)
        placed = Placed(Pending(log.log_end_offset, done), done, row, earliest_ms, self._store.fate())
        self._unsent.append(placed)
        log.log_end_offset = last_offset + 1
        if self._writing is None:
            self._writing = log.engine.background(self._write())
        return placed.pending

    # -- sending

    async def _write(self) -> None:
        try:
            while self._unsent:
                if self._making.locked() or not self._takes_more():
                    await self._make_ledger_for_what_waits()
                else:
                    self._send(self._unsent.popleft())
        finally:
            self._writing = None

    async def _make_ledger_for_what_waits(self) -> None:
        try:
            async with self._making:
                if not self._takes_more():
                    await self._new_ledger()
        except LedgerError as error:
            if self._unsent:
                self._take_back(self._unsent[0].pending.base_offset, error)

    def is_full(self) -> bool:
        """Whether the open ledger, if there is one, has had its time."""
        return self._stream is not None and not self._takes_more()

    def _takes_more(self) -> bool:
        policy = self._log.policy
        if self._stream is None:
            return False
        last = self._log.listed.ledgers[-1]
        if not last.entries:
            return True
        age_ms = self._log.engine.clock() - last.created_ms
        return not (
            last.size >= policy.max_ledger_bytes > 0
            or last.entries >= policy.max_ledger_entries > 0
            or age_ms >= policy.max_ledger_ms > 0
        )

    def _send(self, placed: Placed) -> None:
        stream = self._stream
        assert stream is not None
        last, row = self._log.listed.ledgers[-1], placed.row
        last.entries += 1
        last.size += len(row.data)
        last.last_offset = row.last_offset
        last.max_timestamp = max(last.max_timestamp, row.max_timestamp)
        placed.kept = replace(last)
        self._sent.append(placed)
        entry_id = stream.send(row, placed.fate, lambda error: self._answered(placed, error))
        placed.pending.position = Position(stream.ledger_id, entry_id)

    def _answered(self, placed: Placed, error: LedgerError | None) -> None:
        if not self._sent or self._sent[0] is not placed:
            return  # it was taken back with one before it
        if error is not None:
            self._failed(error)
            return
        log = self._log
        self._sent.popleft()
        self._kept = placed.kept
        self._earliest = min(self._earliest, placed.earliest_ms)
        log.high_watermark = placed.row.last_offset + 1
        self._keep_noted()
        self._wake()
        placed.done.settle()
        log.tell_moved()

    # -- what does not work

    def _failed(self, error: LedgerError) -> None:
        """Take back the first one that was sent, and all behind it. What is in its ledger then is not known."""
        self._stream = None
        last = self._log.listed.ledgers[-1]
        assert self._kept is not None
        for name in ("entries", "size", "last_offset", "max_timestamp"):
            setattr(last, name, getattr(self._kept, name))
        self._take_back(self._sent[0].pending.base_offset, error)
        if isinstance(error, LedgerFenced):
            self._log.lost(error)

    def _take_back(self, offset: int, error: LedgerError) -> None:
        gone = [*self._sent, *self._unsent]
        self._sent.clear()
        self._unsent.clear()
        self._log.log_end_offset = offset
        if self._noted is not None and self._noted.offset > offset:
            self._noted = None
        self._log.tell_taken_back(TakenBack(offset, error))
        for placed in gone:
            placed.done.settle(error)
        self._wake()

    def give_up(self, error: LedgerError) -> None:
        """Take back all that is on its way: the log is not this engine's any more."""
        if self._sent or self._unsent:
            self._stream = None
            self._take_back(self._log.high_watermark, error)

    # -- ledgers

    async def roll(self) -> None:
        """Have the open ledger be sealed, if it holds anything, and the next one be open."""
        async with self._making:
            ledgers = self._log.listed.ledgers
            if ledgers and ledgers[-1].entries:
                await self._new_ledger()

    async def _new_ledger(self) -> None:
        log, store = self._log, self._store
        await self._all_answered()
        self.note_snapshot()
        old = log.listed.ledgers[-1] if log.listed.ledgers else None
        self._stream = None
        if old is not None and not old.sealed and old.ledger_id != self._ended:
            try:
                await store.end(old.ledger_id, old.entries)
            except LedgerFenced as error:
                log.lost(error)
                raise
            self._ended = old.ledger_id
        ledger_id = await store.create()
        new = LedgerSummary(
            ledger_id, log.high_watermark, log.high_watermark - 1, created_ms=log.engine.clock()
        )
        earliest = self._earliest if old is not None and not old.sealed and old.entries else UNKNOWN_TIME

        def make(listed: Listed) -> bool:
            if listed.ledgers and not listed.ledgers[-1].sealed:
                listed.ledgers[-1].sealed, listed.ledgers[-1].min_timestamp = True, earliest
            listed.ledgers.append(new)
            return True

        def counts() -> None:
            self._stream, self._kept, self._earliest = Stream(store, ledger_id), replace(new), _LATEST_MS

        await log.list.change(make, counts, refused=lambda: log.remove([ledger_id]))

    async def _all_answered(self) -> None:
        while self._sent:
            self._waiting.append(asyncio.get_running_loop().create_future())
            await self._waiting[-1]

    async def quiet(self) -> None:
        """Return when nothing is on its way."""
        while self._writing is not None or self._sent:
            if self._writing is not None:
                await asyncio.wait([self._writing])
            await self._all_answered()

    def _wake(self) -> None:
        if not self._sent:
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                each.set_result(None)

    # -- what the owner knows

    def note_snapshot(self) -> None:
        """Take a snapshot of what the owner knows, to be kept when all that it speaks of is."""
        if self._log.take_snapshot is not None:
            self._noted = Snapshot(self._log.log_end_offset, self._log.take_snapshot())
            self._keep_noted()

    def _keep_noted(self) -> None:
        noted = self._noted
        if noted is not None and noted.offset <= self._log.high_watermark:
            self._noted = None
            self._log.engine.background(self._log.keep_snapshot(noted))
