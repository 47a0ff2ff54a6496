"""Appends to a managed ledger of the files engine: gathered, written, and queued while no ledger is open.

An append goes to the open ledger's file immediately, or with others at the end of a gathering. If the open ledger is
due to be closed, or there is none yet, it is queued: creating a ledger takes a file and a commit of the metadata, for
which the event loop does not wait. Queued entries are written as soon as the new ledger is committed: their positions
are known then.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from magnetar.ledger.errors import LedgerClosed, LedgerError
from magnetar.ledger.files.checkpoints import Checkpoints
from magnetar.ledger.files.lazy import LazyAppends
from magnetar.ledger.files.ledger_file import LedgerFile, as_storage_error
from magnetar.ledger.files.shared import EngineParts
from magnetar.ledger.files.state import LogState
from magnetar.ledger.formats.info import ManagedLedgerInfo
from magnetar.ledger.formats.layout import ledger_path
from magnetar.ledger.formats.sparse import Mark
from magnetar.ledger.port import (
    Done,
    DoneTogether,
    Flush,
    Gathered,
    LedgerSummary,
    Pending,
    Position,
    TakenBack,
)
from magnetar.records.batch import UNKNOWN_TIME
from magnetar.records.compression import Buffer
from magnetar.records.entry import broker_entry_head
from magnetar.records.tuples import maker

_position = maker(Position)
LEFT = "left_ledger"
"""A property of the list: the open ledger, which takes no more entries."""
_log = logging.getLogger("magnetar.ledger")


class Queued(NamedTuple):
    """An entry that has its offsets, and no ledger yet."""

    pending: Pending
    done: Done
    head: bytes
    rest: bytes
    messages: int
    timestamp_ms: int
    earliest_ms: int
    flush: Flush
    """The policy under which it was placed."""


class Appender:
    """The writer of one log. Its methods run on the event loop; only the creation of ledgers leaves it."""

    def __init__(self, shared: EngineParts, state: LogState) -> None:
        self.lazy = LazyAppends(shared, state)
        self.checkpoints = Checkpoints(shared, state, self.lazy, lambda: bool(self._queue))
        self._is_ready = False
        self._shared = shared
        self._state = state
        self._log = state.log
        self._gathered: list[Buffer] = []
        self._gathered_from: Mark | None = None
        self._gathered_done: Done | None = None
        self._queue: deque[Queued] = deque()
        self._rolling: asyncio.Task[None] | None = None

    def adopt(self, writer: LedgerFile | None, *, is_lazy: bool) -> None:
        """Continue with the open ledger; ``is_lazy``: its end may only be in the page cache."""
        self._state.writer = writer
        if writer is not None and is_lazy:
            self.lazy.files.add(writer)
        self._look_whether_ready()

    def _look_whether_ready(self) -> None:
        """Note if the list says that what is written in this boot may be torn, and that more may be written."""
        ledgers = self._state.ledger_list
        self._is_ready = ledgers.is_of_this_boot and LEFT not in ledgers.info.properties

    def append(
        self,
        message: Sequence[Buffer],
        *,
        messages: int,
        timestamp_ms: int,
        earliest_ms: int,
        tail_crc: int | None,
    ) -> Pending:
        """Do as `ManagedLedger.append`, for a log that is open."""
        assert messages > 0
        shared, log = self._shared, self._log
        now_ms = shared.clock()
        flush = log.policy.flush
        if flush is Flush.always and shared.journal.failed is not None:
            raise shared.journal.failed
        gathering = shared.gathering
        if gathering.refused and log in gathering.refused:
            raise gathering.refused[log]  # within this gathering: what came before was taken back
        for interceptor in shared.interceptors:
            message = interceptor.before_append(log, message, messages)
            earliest_ms, tail_crc = UNKNOWN_TIME, None  # it may have put in other messages
        base_offset = log.log_end_offset
        last_offset = base_offset + messages - 1
        head = broker_entry_head(now_ms, last_offset)
        writer = self._state.writer
        if self._rolling is not None or writer is None or not self._takes_more(writer, now_ms):
            return self._wait_for_ledger(head, message, messages, timestamp_ms, earliest_ms)
        # While the journal alone could not bring it back, `_journal` says when it is durable.
        gathers = gathering.depth > 0 and not (flush is Flush.always and self.lazy.files)
        assert gathers or self._gathered_from is None, "a log's policy stays as it is within a gathering"
        position = _position((writer.ledger_id, writer.index.entries))
        mark = self._gathered_from or writer.index.mark()  # it need not be made for each
        parts = writer.add(
            head,
            message,
            messages=messages,
            timestamp_ms=timestamp_ms,
            earliest_ms=earliest_ms,
            tail_crc=tail_crc,
        )
        log.log_end_offset = last_offset + 1
        if not gathers:
            return Pending(base_offset, self._write_or_take_back(writer, mark, parts), position)
        if self._gathered_from is None:
            self._gathered_from = mark
            self._gathered_done = (Done if flush is Flush.always else Gathered)(loop=shared.loop)
            gathering.write_later(self.write_gathered)
        self._gathered += parts
        return Pending(base_offset, self._gathered_done, position)

    def takes_more(self, now_ms: int) -> bool:
        """True if the open ledger, if there is one, has not had its time yet."""
        writer = self._state.writer
        return writer is not None and self._takes_more(writer, now_ms)

    def _takes_more(self, writer: LedgerFile, now_ms: int) -> bool:
        """True if the open ledger takes one more entry, and may be written to in this boot."""
        if not self._is_ready:
            return False
        policy, index = self._log.policy, writer.index
        if not index.entries:
            return True
        if index.end >= policy.max_ledger_bytes > 0 or index.entries >= policy.max_ledger_entries > 0:
            return False
        age_ms = now_ms - self._state.ledger_list.info.ledgers[-1].created_ms
        return not age_ms >= policy.max_ledger_ms > 0

    # -- writing -----------------------------------------------------------------------------------------------

    def write_gathered(self) -> None:
        """Write what was gathered, or take it back."""
        mark, writer, done, parts = (
            self._gathered_from,
            self._state.writer,
            self._gathered_done,
            self._gathered,
        )
        if mark is None or writer is None or done is None:
            return
        self._gathered_from, self._gathered, self._gathered_done = None, [], None
        gathering = self._shared.gathering
        try:
            self._write(writer, mark, parts, done)
        except LedgerError as error:
            gathering.refused[self._log] = error
            for each in (done, *self._take_back(mark.next_offset, error)):
                gathering.settle_later(each, error)
            return
        if isinstance(done, Gathered):
            gathering.settle_later(done, None)

    def _write_or_take_back(self, writer: LedgerFile, mark: Mark, parts: list[Buffer]) -> Done | None:
        try:
            return self._write(writer, mark, parts)
        except LedgerError:
            self._log.log_end_offset = mark.next_offset  # its place was not reported yet
            raise

    def _write(
        self,
        writer: LedgerFile,
        mark: Mark,
        parts: list[Buffer],
        done: Done | None = None,
        flush: Flush | None = None,
    ) -> Done | None:
        """Write what was added since ``mark``; return a `Done` for when it is durable, if it has to be.

        That is ``done`` where it is given, and so it is with ``flush``. Raises ``LedgerError`` with the ledger as it
        was at ``mark``.
        """
        durable, flush = None, flush or self._log.policy.flush
        try:
            writer.write(parts, mark.end)
            if flush is Flush.always:
                durable = self._journal(writer, mark.end, parts, done)
        except Exception as error:
            writer.take_back(mark)
            if isinstance(error, LedgerError):
                raise
            if not isinstance(error, OSError):
                _log.exception("a write to ledger %d failed", writer.ledger_id)
            raise as_storage_error(error) from error
        self._shared.room.take(writer.index.end - mark.end)
        if flush is not Flush.always:
            self.lazy.files.add(writer)
            if flush is Flush.interval:
                self._shared.flushing.flush_soon(writer.path)
            if done is not None and not isinstance(done, Gathered):
                done.settle()  # before readers, as the journal does it
            self._state.made_durable(writer.index.next_offset)
        self.checkpoints.look(writer)
        return durable

    def _journal(self, writer: LedgerFile, at: int, parts: list[Buffer], done: Done | None) -> Done:
        if self.lazy.files:
            # What lies before it was never made durable: the journal alone could not bring this one back.
            self.lazy.files.add(writer)
            return self.lazy.durable(done)
        index = writer.index
        return self._shared.journal.append(
            writer.ledger_id, at, index.end - at, parts, self._state.made_durable, index.next_offset, done
        )

    def _take_back(self, offset: int, error: LedgerError) -> list[Done]:
        """Cut the log back to ``offset``; return the appends to fail among those that were queued after it."""
        gone = [each.done for each in self._queue]
        self._queue.clear()
        self._log.log_end_offset = offset
        self.checkpoints.take_back(offset)
        self._state.tell_taken_back(TakenBack(offset, error))
        return gone

    # -- rolling over ------------------------------------------------------------------------------------------

    def _wait_for_ledger(
        self, head: bytes, message: Sequence[Buffer], messages: int, timestamp_ms: int, earliest_ms: int
    ) -> Pending:
        if self._rolling is None:
            self._begin_roll(force=False)
        done = Done()
        pending = Pending(self._log.log_end_offset, done)
        # The memory it came in is used again.
        rest = b"".join(message)
        flush = self._log.policy.flush
        self._queue.append(Queued(pending, done, head, rest, messages, timestamp_ms, earliest_ms, flush))
        self._log.log_end_offset += messages
        return pending

    async def roll(self) -> None:
        """Close the open ledger, if it has entries, and open the next one; raise ``LedgerError``."""
        while self._rolling is not None:
            await asyncio.wait([self._rolling])
        writer = self._state.writer
        if writer is not None and writer.index.entries:
            await asyncio.shield(self._begin_roll(force=True))

    async def quiet(self) -> None:
        """Wait until nothing waits for a ledger."""
        while self._rolling is not None:
            await asyncio.wait([self._rolling])

    def _begin_roll(self, *, force: bool) -> asyncio.Task[None]:
        # Now, while it covers only what lies in that ledger.
        self.checkpoints.note_end(self._state.writer)
        self._rolling = self._shared.work.background(self._roll(force=force))
        return self._rolling

    async def _roll(self, *, force: bool) -> None:
        """Create ledgers until all that was queued is written, or take it back."""
        try:
            while True:
                await self._become_writable(force=force)
                force = False
                self._write_queue()
                if not self._queue:
                    return
        except Exception as error:
            if not self._queue:
                raise
            failure = error if isinstance(error, LedgerError) else as_storage_error(error)
            if failure is not error:
                _log.exception("a new ledger of %s cannot be made", self._log.name)
            for done in self._take_back(self._queue[0].pending.base_offset, failure):
                done.settle(failure)
        finally:
            self._rolling = None

    async def _become_writable(self, *, force: bool) -> None:
        state = self._state
        writer, ledgers = state.writer, state.ledger_list
        if state.is_deleted:
            raise LedgerClosed(f"managed ledger {self._log.name} was deleted")
        if writer is not None and not force:
            if self._takes_more(writer, self._shared.clock()):
                return
            if not ledgers.is_of_this_boot and LEFT not in ledgers.info.properties:
                await ledgers.change(lambda info: True)
                self._look_whether_ready()
                return
        await self._new_ledger()

    async def _new_ledger(self) -> None:
        """Open a new ledger for appends, and seal the old one in the background."""
        shared, state, now_ms = self._shared, self._state, self._shared.clock()
        old, checkpoints = state.writer, self.checkpoints
        ledgers, first_offset = state.ledger_list.info.ledgers, self.written_offset_of_next
        ledger_id = await shared.ids.new(above=ledgers[-1].ledger_id if ledgers else -1)
        summary = LedgerSummary(ledger_id, first_offset, created_ms=now_ms)
        path = ledger_path(shared.root, ledger_id)
        await shared.work.in_thread(lambda: LedgerFile.create(shared.disk, path, ledger_id, now_ms))
        new = shared.ledger_file(ledger_id, first_offset)

        def make(info: ManagedLedgerInfo) -> bool:
            info.ledgers.append(summary)
            info.properties.pop(LEFT, None)
            return True

        def counts() -> None:
            state.writer = state.open_files[ledger_id] = new
            self._is_ready = True
            checkpoints.begin(new)
            if old is not None:
                checkpoints.seal(old)

        await state.ledger_list.change(make, counts, refused=lambda: shared.remove_later([ledger_id]))

    @property
    def written_offset_of_next(self) -> int:
        """The first offset of a ledger that begins after what has been written."""
        return self._queue[0].pending.base_offset if self._queue else self._log.log_end_offset

    def _write_queue(self) -> None:
        """Write as much of what was queued as the open ledger takes."""
        writer, queue, now_ms = self._state.writer, self._queue, self._shared.clock()
        assert writer is not None
        mark, parts, written = writer.index.mark(), [], []
        while queue and self._takes_more(writer, now_ms):
            each = queue.popleft()
            each.pending.position = Position(writer.ledger_id, writer.index.entries)
            parts += writer.add(
                each.head, [each.rest], messages=each.messages,
                timestamp_ms=each.timestamp_ms, earliest_ms=each.earliest_ms,
            )  # fmt: skip
            written.append(each)
        if not written:
            return
        try:
            # Appends that were promised to be durable are, whatever the policy is now.
            flush = Flush.always if any(each.flush is Flush.always for each in written) else None
            self._write(writer, mark, parts, DoneTogether([each.done for each in written]), flush)
        except LedgerError:
            queue.extendleft(reversed(written))
            raise
