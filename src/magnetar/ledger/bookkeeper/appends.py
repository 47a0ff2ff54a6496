"""Appends to a log on bookies: placed and sent immediately if there is a ledger, visible when they are answered.

An entry that fails takes all entries after it along, and its ledger ends before it; later appends go to a new one. If
none can be created, because too few bookies are there, appends wait for a time that grows, and then fail together.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from magnetar.ledger.bookkeeper.bookies import BookieWriter
from magnetar.ledger.bookkeeper.opening import INDEX, LogCheckpoint
from magnetar.ledger.bookkeeper.reading import BookieReader
from magnetar.ledger.bookkeeper.shared import WrittenLog
from magnetar.ledger.errors import LedgerError, LedgerFenced
from magnetar.ledger.formats.info import ManagedLedgerInfo
from magnetar.ledger.ledger_list import NEXT
from magnetar.ledger.port import Done, LedgerSummary, Pending, Position, Snapshot, StoredEntry, TakenBack
from magnetar.records.batch import UNKNOWN_TIME
from magnetar.records.compression import Buffer
from magnetar.records.entry import broker_entry_head

_LATEST_MS = 1 << 62
_CHECKPOINT_ENTRIES = 20_000
_CHECKPOINT_BYTES = 64 << 20
_OWED_ENTRIES, _OWED_BYTES = 1000, 1 << 20
"""What may follow the last checkpoint of a log that is opened before another one is due immediately."""
_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 5.0
"""Between two attempts to create a ledger: dead bookies stay registered for as long as their sessions."""


@dataclass(eq=False, slots=True)
class PlacedEntry:
    """An entry that has its offsets, and the future of its append."""

    pending: Pending
    done: Done
    data: bytes
    last_offset: int
    latest_ms: int
    earliest_ms: int
    sent: float = 0.0


class Appends:
    """The writer of one log."""

    def __init__(self, log: WrittenLog) -> None:
        self._log = log
        self._engine = log.engine
        self._unsent: deque[PlacedEntry] = deque()
        self._sent: deque[PlacedEntry] = deque()
        self._writer: BookieWriter | None = None
        """The writer of the open ledger; None if a new one is needed."""
        self._reader: BookieReader | None = None
        self._last: LedgerSummary | None = None
        """The open ledger, with what is on its way to it."""
        self._kept = (0, 0, -1, -1)
        """Entries, bytes, last offset and latest time of what is stored in it."""
        self._earliest = _LATEST_MS
        self._writing: asyncio.Task[None] | None = None
        self._making = asyncio.Lock()
        self._waiting: list[asyncio.Future[None]] = []
        self._pause_s = 0.0
        self._checked = (0, 0)
        """Entries and bytes at the last checkpoint."""
        self._noted: Snapshot | None = None
        """The snapshot to store once all entries that it covers are stored."""
        self._owes = False
        """True if a checkpoint is due before any entry is deleted, or many more are written."""
        self._keeping: asyncio.Task[None] | None = None
        """The last checkpoint, while it is being stored."""

    def place(self, message: Sequence[Buffer], messages: int, timestamp_ms: int, earliest_ms: int) -> Pending:
        """Assign an entry its offsets, and send it if it can be."""
        assert messages > 0
        log = self._log
        for interceptor in self._engine.interceptors:
            message, earliest_ms = interceptor.before_append(log, message, messages), UNKNOWN_TIME
        last_offset = log.log_end_offset + messages - 1
        data = b"".join((broker_entry_head(self._engine.clock(), last_offset), *message))
        done = Done()
        pending = Pending(log.log_end_offset, done)
        placed = PlacedEntry(pending, done, data, last_offset, timestamp_ms, earliest_ms)
        log.log_end_offset = last_offset + 1
        if (
            not self._unsent
            and self._writing is None
            and self._takes_more()
            and not self._making.locked()
            and self._engine.bookies.on_their_way.is_free
        ):
            self._send(placed)
        else:
            self._unsent.append(placed)
            if self._writing is None:
                self._writing = self._engine.background(self._write())
        return pending

    # -- sending

    async def _write(self) -> None:
        on_their_way, has_waited = self._engine.bookies.on_their_way, False
        try:
            while self._unsent:
                if self._making.locked() or not self._takes_more():
                    await self._make_ledger_for_what_waits()
                elif on_their_way.is_full or not (has_waited or on_their_way.is_free):
                    await on_their_way.turn()
                    has_waited = True
                else:
                    self._send(self._unsent.popleft())
                    has_waited = False
        finally:
            self._writing = None

    async def _make_ledger_for_what_waits(self) -> None:
        try:
            async with self._making:
                if not self._takes_more():
                    await asyncio.sleep(self._pause_s)
                    await self._new_ledger()
        except LedgerError as error:
            self._pause()
            if self._unsent:
                self._take_back(self._unsent[0].pending.base_offset, error)

    def _pause(self) -> None:
        self._pause_s = min(max(_PAUSE_S, 2 * self._pause_s), _LONGEST_PAUSE_S)

    def is_full(self) -> bool:
        """True if the open ledger, if there is one, has had its time."""
        return self._writer is not None and not self._takes_more()

    def _takes_more(self) -> bool:
        policy, last = self._log.policy, self._last
        if self._writer is None or last is None:
            return False
        if not last.entries:
            return True
        age_ms = self._engine.clock() - last.created_ms
        return not (
            last.size >= policy.max_ledger_bytes > 0
            or last.entries >= policy.max_ledger_entries > 0
            or age_ms >= policy.max_ledger_ms > 0
        )

    def _send(self, placed: PlacedEntry) -> None:
        writer, last = self._writer, self._last
        assert writer is not None
        assert last is not None
        last.entries += 1
        last.size += len(placed.data)
        last.last_offset = placed.last_offset
        last.max_timestamp = max(last.max_timestamp, placed.latest_ms)
        placed.sent = time.monotonic()
        self._sent.append(placed)
        try:
            entry_id = writer.send((placed.data,), lambda error: self._answered(placed, error))
        except LedgerError as error:  # the caller gets its offsets first
            asyncio.get_running_loop().call_soon(self._not_sent, placed, error)
            return
        placed.pending.position = Position(writer.ledger_id, entry_id)

    def _answered(self, placed: PlacedEntry, error: LedgerError | None) -> None:
        if not self._sent or self._sent[0] is not placed:
            return  # it was taken back with one before it
        if error is not None:
            self._failed(error)
            return
        log = self._log
        self._sent.popleft()
        assert self._reader is not None
        entries, size, _, latest = self._kept
        latest = max(latest, placed.latest_ms)
        self._kept = (entries + 1, size + len(placed.data), placed.last_offset, latest)
        self._earliest = min(self._earliest, placed.earliest_ms)
        self._pause_s = 0.0
        self._engine.kept(time.monotonic() - placed.sent, len(placed.data))
        entry = StoredEntry(*placed.pending.position, placed.last_offset, memoryview(placed.data))
        self._reader.grew(entry, latest, placed.last_offset + 1)
        log.high_watermark = placed.last_offset + 1
        if (
            entries + 1 - self._checked[0] >= _CHECKPOINT_ENTRIES
            or size - self._checked[1] >= _CHECKPOINT_BYTES
        ):
            self.note_snapshot()
        self._keep_noted()
        self._wake()
        placed.done.settle()
        log.tell_moved()

    # -- what does not work

    def _not_sent(self, placed: PlacedEntry, error: LedgerError) -> None:
        if placed in self._sent:  # else it was taken back with one before it
            self._failed(error)

    def _failed(self, error: LedgerError) -> None:
        """Take back the first entry that was sent, and all after it. The content of its ledger is unknown then."""
        last = self._last
        assert last is not None
        last.entries, last.size, last.last_offset, last.max_timestamp = self._kept
        if not last.entries:
            self._pause()
        self._take_back(self._sent[0].pending.base_offset, error)
        if isinstance(error, LedgerFenced):
            self._log.lost(error)
        elif self._writer is not None:
            writer, self._writer = self._writer, None
            self._left = writer

    _left: BookieWriter | None = None
    """The writer of a ledger that failed, and has not ended yet."""

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
        """Take back all that is in flight: the log is not this engine's any more."""
        if self._sent or self._unsent:
            self._take_back(self._log.high_watermark, error)
        self._writer = None

    # -- ledgers

    async def roll(self) -> None:
        """Seal the open ledger, if it has entries, and open the next one."""
        async with self._making:
            if self._last is None or self._last.entries:
                await self._new_ledger()

    async def _new_ledger(self) -> None:
        log = self._log
        await self._all_answered()
        checked = self._note_at_new_ledger()
        old = await self._end_of_the_old()
        writer = await self._engine.bookies.create(log.custom)
        offset = log.high_watermark
        new = LedgerSummary(writer.ledger_id, offset, offset - 1, created_ms=self._engine.clock())
        gone = [old.ledger_id] if old is not None and not old.entries else []
        reader = BookieReader(writer.ledger_id, offset, writer.read, self._engine.tail)

        def make(info: ManagedLedgerInfo) -> bool:
            if old is not None:
                info.ledgers = [old if each.ledger_id == old.ledger_id else each for each in info.ledgers]
                info.ledgers = [each for each in info.ledgers if each.ledger_id not in gone]
            info.ledgers.append(new)
            info.properties[INDEX] = str(offset - 1)
            return True

        def counts() -> None:
            self._writer, self._last, self._reader = writer, new, reader
            self._kept, self._earliest, self._checked = (0, 0, offset - 1, -1), _LATEST_MS, checked
            log.readers[writer.ledger_id] = reader
            log.remove(gone)

        def refused() -> None:
            # Not if it may be in the list: the next owner of the log would miss it for good.
            self._engine.background(self._engine.bookies.delete(writer.ledger_id))

        await log.list.change(make, counts, refused)

    async def _end_of_the_old(self) -> LedgerSummary | None:
        """Close the ledger that was written until now; return it as it is sealed."""
        old, writer = self._last, self._writer or self._left
        if old is None:
            return None
        if writer is not None:
            self._left, self._writer = writer, None
            try:
                await writer.close()
            except LedgerFenced as error:
                self._log.lost(error)
                raise
            except LedgerError:
                await self._engine.bookies.recover(old.ledger_id)
            self._left = None
        earliest = self._earliest if old.entries else UNKNOWN_TIME
        return replace(old, sealed=True, min_timestamp=earliest)

    async def end(self) -> None:
        """Close the open ledger, so that the next owner of the log need not recover it."""
        if self._last is not None:
            found = await self._end_of_the_old()
            assert found is not None
            sealed = replace(found, min_timestamp=UNKNOWN_TIME)

            def make(info: ManagedLedgerInfo) -> bool:
                kept = [sealed if each.ledger_id == sealed.ledger_id else each for each in info.ledgers]
                info.ledgers = [each for each in kept if each.entries or each.compacted or not each.sealed]
                info.properties[INDEX], info.properties[NEXT] = (
                    str(sealed.last_offset),
                    str(sealed.last_offset + 1),
                )
                return True

            await self._log.list.change(make)
            self._last = None
            if not sealed.entries:
                self._log.remove([sealed.ledger_id])

    async def _all_answered(self) -> None:
        while self._sent:
            self._waiting.append(asyncio.get_running_loop().create_future())
            await self._waiting[-1]

    async def quiet(self) -> None:
        """Return when nothing is in flight."""
        while self._writing is not None or self._sent:
            if self._writing is not None:
                await asyncio.wait([self._writing])
            await self._all_answered()

    def _wake(self) -> None:
        if not self._sent:
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                if not each.done():
                    each.set_result(None)

    # -- snapshots of the owner

    def note_snapshot(self) -> None:
        """Take a snapshot of the owner's knowledge, to be stored once all entries that it covers are."""
        self._owes = False
        data = b"" if self._log.take_snapshot is None else self._log.take_snapshot()
        self._checked = self._kept[:2]
        if self._log.take_snapshot is not None:
            self._noted = Snapshot(self._log.log_end_offset, data)
            self._keep_noted()

    def _note_at_new_ledger(self) -> tuple[int, int]:
        """Store a checkpoint before a new ledger; return the entries and bytes of that ledger up to the last one.

        In a log that was just opened it is only owed if the next owner would have little to read without it: most of
        the logs that a dead broker leaves are small, and all of them are opened at the same time.
        """
        log = self._log
        if self._last is not None or log.take_snapshot is None:
            self.note_snapshot()
            return 0, 0
        known_to = 0 if log.snapshot is None else log.snapshot.offset
        if known_to == log.high_watermark:
            return 0, 0
        behind = [each for each in log.ledgers() if each.last_offset >= known_to]
        entries, size = sum(each.entries for each in behind), sum(each.size for each in behind)
        if entries > _OWED_ENTRIES or size > _OWED_BYTES or any(each.compacted for each in behind):
            self.note_snapshot()
            return 0, 0
        self._owes = True
        return -entries, -size

    async def keep_owed(self) -> None:
        """Store the checkpoint that is owed, if one is: entries that it covers are about to be deleted."""
        if self._owes:
            self.note_snapshot()
            if self._keeping is not None:
                await asyncio.wait([self._keeping])

    def _keep_noted(self) -> None:
        noted = self._noted
        if noted is not None and noted.offset <= self._log.high_watermark:
            self._noted = None
            self._keeping = self._engine.background(self._log.keep_snapshot(self.checkpoint(noted)))

    def checkpoint(self, snapshot: Snapshot) -> LogCheckpoint:
        """Return what is known now, with a snapshot."""
        entries, _, _, latest = self._kept
        ledger_id = -1 if self._last is None else self._last.ledger_id
        return LogCheckpoint(ledger_id, entries, latest, self._earliest, snapshot)
