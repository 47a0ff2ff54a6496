"""One log of the late engine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from magnetar.ledger.compaction.compactor import CompactableLog, Compactor
from magnetar.ledger.compaction.runs import EntrySource
from magnetar.ledger.cursors.kept import KeptCursors
from magnetar.ledger.cursors.store import CursorStore
from magnetar.ledger.errors import (
    LedgerClosed,
    LedgerError,
    LedgerFenced,
    LedgerTerminated,
    OffsetOutOfRange,
    StorageFull,
)
from magnetar.ledger.port import (
    Compacted,
    CompactionReport,
    CompactionRules,
    LedgerPolicy,
    LedgerSummary,
    LedgerWriter,
    Pending,
    Position,
    Snapshot,
    StoredEntry,
    TakenBack,
)
from magnetar.records.batch import UNKNOWN_TIME
from magnetar.records.compression import Buffer
from magnetar.records.entry import latest_timestamp
from tests.engines.late.appends import Appends
from tests.engines.late.lists import ListOfLedgers
from tests.engines.late.reading import Entries, first_of_time, fitting
from tests.engines.late.store import Listed
from tests.engines.late.streams import LateSource, LateWriter

if TYPE_CHECKING:
    from tests.engines.late.engine import LateEngine

_log = logging.getLogger("magnetar.ledger")


class LateLog(CompactableLog):
    """See ``ManagedLedger``. What it is told of the open ledger counts what is on its way to it."""

    def __init__(self, engine: LateEngine, name: str, policy: LedgerPolicy, listed: Listed) -> None:
        self.name = name
        self.policy = policy
        self.engine = engine
        self.store = engine.store
        self.list = ListOfLedgers(engine.store, name, listed, self.lost)
        last = listed.ledgers[-1] if listed.ledgers else None
        self.log_start_offset = listed.first_offset
        self.log_end_offset = max(listed.first_offset, 0 if last is None else last.last_offset + 1)
        self.high_watermark = self.log_end_offset
        self.snapshot = None
        kept = engine.store.snapshots.get(name)
        if kept is not None and kept.offset <= self.log_end_offset:
            self.snapshot = kept
        self.on_moved = None
        self.on_taken_back = []
        self.watchers = []
        self.on_closed = []
        self.before_compaction = []
        self.take_snapshot = None
        self.owner = listed.owner
        self.closed: LedgerError | None = None
        self.is_deleted = False
        self._is_ending = False
        self._cursors: KeptCursors | None = None
        self.appends = Appends(self)
        self._entries = Entries(self.store, lambda: self.listed)
        self._compactor = Compactor(self, engine.leases, engine.workers, engine.one_compaction, engine.clock)

    @property
    def listed(self) -> Listed:
        """What counts of the log's list."""
        return self.list.now

    # -- appending

    def append(
        self,
        message: Sequence[Buffer],
        *,
        messages: int,
        timestamp_ms: int,
        earliest_ms: int = UNKNOWN_TIME,
        tail_crc: int | None = None,
    ) -> Pending:
        self.check_open()
        if self._is_ending or self.listed.terminated is not None:
            raise LedgerTerminated("the topic was terminated: it takes no more messages")
        return self.appends.place(message, messages, timestamp_ms, earliest_ms)

    def tell_moved(self) -> None:
        if self.on_moved is not None:
            self.on_moved()
        for watcher in self.watchers:
            watcher()

    def tell_taken_back(self, what: TakenBack) -> None:
        for holder in tuple(self.on_taken_back):
            try:
                holder(what)
            except Exception:
                _log.exception("a holder of %s failed when appends were taken back", self.name)

    async def keep_snapshot(self, snapshot: Snapshot) -> None:
        try:
            await self.store.keep_snapshot(self.name, self.owner, snapshot)
        except LedgerFenced:
            pass  # whoever has the log now knows more

    # -- reading

    async def read(self, offset: int, *, max_bytes: int, up_to: int | None = None) -> list[StoredEntry]:
        for arrived in (False, True):
            self.check_open()
            if not self.log_start_offset <= offset <= self.log_end_offset:
                if arrived and offset > self.log_end_offset:
                    return []  # the end was taken back meanwhile
                raise OffsetOutOfRange(
                    f"offset {offset} is not in [{self.log_start_offset}, {self.log_end_offset}]"
                )
            end = self.high_watermark if up_to is None else min(up_to, self.high_watermark)
            if offset >= end:
                return []
            if not arrived:
                await self.store.on_the_way()
        return self._entries.some(offset, max_bytes, end)

    async def find_by_time(self, timestamp_ms: int) -> StoredEntry | None:
        await self._asked()
        return first_of_time(self._visible(), timestamp_ms)

    async def find_max_timestamp(self) -> StoredEntry | None:
        await self._asked()
        return max(self._visible(), key=lambda entry: latest_timestamp(entry.data), default=None)

    async def find_first(self, wanted: Callable[[StoredEntry], bool]) -> StoredEntry | None:
        await self._asked()
        return next((entry for entry in self._visible() if wanted(entry)), None)

    def _visible(self) -> list[StoredEntry]:
        return list(self._entries.since(self.log_start_offset, self.high_watermark))

    async def entry(self, position: Position) -> StoredEntry:
        await self._asked()
        return self._entries.at(position, self.high_watermark)

    async def offset_behind(self, position: Position) -> int:
        await self._asked()
        return self._entries.behind(position, self.high_watermark)

    async def _asked(self) -> None:
        self.check_open()
        await self.store.on_the_way()
        self.check_open()

    # -- letting go

    async def roll(self, older_than_ms: int = 0) -> None:
        self.check_open()
        ledgers = self.listed.ledgers
        if not ledgers or not ledgers[-1].entries:
            return
        if not older_than_ms or ledgers[-1].created_ms < older_than_ms:
            await self.appends.roll()

    async def trim(self, before: int) -> None:
        if before > self.high_watermark or before < 0:
            raise OffsetOutOfRange(f"cannot trim before {before}: the end is {self.high_watermark}")
        self.check_open()
        if before > self.log_start_offset:
            await self._let_go(before, lambda summary: summary.last_offset < before, is_order=True)

    async def retain(self, now_ms: int) -> None:
        ledgers, policy = self.listed.ledgers, self.policy
        if self.closed is not None or not ledgers:
            return

        def is_past(summary: LedgerSummary) -> bool:
            latest = summary.max_timestamp if summary.max_timestamp >= 0 else summary.created_ms
            return policy.retention_ms >= 0 and latest < now_ms - policy.retention_ms

        if ledgers[-1].entries and (is_past(ledgers[-1]) or self.appends.is_full()):
            try:
                await self.appends.roll()
            except StorageFull:
                pass
        needed = await self.engine.leases.needed(self.name)
        excess = self.size() - policy.retention_bytes if policy.retention_bytes >= 0 else -1

        def is_done_with(summary: LedgerSummary) -> bool:
            nonlocal excess
            excess -= summary.size
            return (needed is None or summary.last_offset < needed) and (is_past(summary) or excess >= 0)

        await self._let_go(self.log_start_offset, is_done_with)

    async def _let_go(
        self, first_offset: int, is_done_with: Callable[[LedgerSummary], bool], *, is_order: bool = False
    ) -> None:
        gone: list[int] = []

        def make(listed: Listed) -> bool:
            before = listed.ids()
            if is_order and listed.compacted is not None:
                listed.copies_from = first_offset
            start = max(first_offset, listed.first_offset)
            while len(listed.ledgers) > 1 and self._may_go(listed.ledgers[0]):
                if not is_done_with(listed.ledgers[0]):
                    break
                replaced = listed.ledgers.pop(0).compacted
                start = max(start, listed.ledgers[0].first_offset)
                compacted = listed.compacted
                if replaced and compacted and compacted.horizon_offset < listed.ledgers[0].first_offset:
                    listed.compacted = None
            changed = (start, listed.ids()) != (listed.first_offset, before)
            listed.first_offset = start
            gone.extend(set(before) - set(listed.ids()))
            return changed

        def counts() -> None:
            self.log_start_offset = self.listed.first_offset
            self.remove(gone)
            self.tell_moved()

        await self.list.change(make, counts)

    def _may_go(self, summary: LedgerSummary) -> bool:
        return summary.sealed and summary.last_offset < self.high_watermark

    def remove(self, ledger_ids: Sequence[int]) -> None:
        """Let go of ledgers that the list does not name any more."""
        if ledger_ids:
            self.engine.background(self.store.remove(ledger_ids))

    # -- compaction

    @property
    def compaction(self) -> CompactionReport:  # type: ignore[override]
        return self._compactor.report

    def dirty_bytes(self, rules: CompactionRules) -> tuple[int, int, int]:
        return self._compactor.dirty_bytes(rules)

    async def compact(self, rules: CompactionRules) -> bool:
        return await self._compactor.compact(rules)

    @property
    def compacted(self) -> Compacted | None:
        return self.listed.compacted

    async def read_compacted(
        self, offset: int, *, max_bytes: int, up_to: int | None = None
    ) -> list[StoredEntry]:
        await self._asked()
        compacted = self.compacted
        if compacted is not None and offset <= compacted.horizon_offset:
            copies = self._entries.copies(max(offset, self.copies_from))
            end = compacted.horizon_offset + 1
            below = end if up_to is None else min(up_to, end)
            found = fitting([each for each in copies if each.last_offset < below], max_bytes)
            if found or below < end:
                return found
            offset = end
        offset = min(max(offset, self.log_start_offset), self.log_end_offset)
        return await self.read(offset, max_bytes=max_bytes, up_to=up_to)

    @property
    def copies_from(self) -> int:
        return self.listed.copies_from

    def check_open(self) -> None:
        if self.closed is not None:
            raise self.closed

    async def make_durable(self) -> None:
        """What is visible is kept."""

    def entries_of(self, dirty: list[LedgerSummary], from_offset: int) -> EntrySource:
        copies = None if self.compacted is None else self.compacted.ledger
        return LateSource(self.store, list(dirty), copies, from_offset, self.check_open)

    async def new_compacted(self, first_offset: int) -> LedgerWriter:
        writer = LateWriter(self.store, await self.store.create(), first_offset, self.engine.clock())
        before: list[int] = []

        def make(listed: Listed) -> bool:
            before.append(listed.draft)
            listed.draft = writer.ledger_id
            return True

        await self.list.change(make)
        self.remove([each for each in before if each >= 0])
        return writer

    async def put_in_place(self, compacted: Compacted, sizes: Mapping[int, int]) -> None:
        gone: list[int] = []

        def make(listed: Listed) -> bool:
            before, listed.draft = listed.ids(), -1
            for at, each in enumerate(listed.ledgers):
                if each.ledger_id in sizes:
                    listed.ledgers[at] = replace(each, compacted=True, size=sizes[each.ledger_id])
            listed.compacted = compacted
            gone.extend(set(before) - set(listed.ids()))
            return True

        def counts() -> None:
            self.remove(gone)
            self.tell_moved()

        await self.list.change(make, counts)

    # -- what there is

    async def cursors(self) -> CursorStore:
        if self._cursors is None:
            made = KeptCursors(self, self.engine.cursor_keeper)
            await made.load()
            self._cursors = self._cursors or made
        return self._cursors

    @property
    def terminated(self) -> Position | None:
        return self.listed.terminated

    async def terminate(self) -> Position:
        self.check_open()
        self._is_ending = True

        def make(listed: Listed) -> bool:
            last = listed.ledgers[-1] if listed.ledgers else None
            listed.terminated = listed.terminated or (
                Position(-1, -1) if last is None else Position(last.ledger_id, last.entries - 1)
            )
            return True

        try:
            await self.appends.quiet()
            await self.list.change(make)
        finally:
            self._is_ending = False
        assert self.terminated is not None
        return self.terminated

    @property
    def has_transactions(self) -> bool:
        return self.listed.has_transactions

    async def note_transactions(self) -> None:
        def make(listed: Listed) -> bool:
            is_new, listed.has_transactions = not listed.has_transactions, True
            return is_new

        await self.list.change(make)

    def ledgers(self) -> list[LedgerSummary]:
        return list(self.listed.ledgers)

    def size(self) -> int:
        return sum(each.size for each in self.listed.ledgers)

    # -- the end

    async def close(self) -> None:
        if self.closed is None:
            await self.engine.release(self.name)

    async def let_go(self) -> None:
        """Take nothing more, keep all there is, and tell whoever holds it."""
        if self.closed is None:
            self.closed = LedgerClosed(f"managed ledger {self.name} is closed")
        await self.appends.quiet()
        async with self._compactor.running:
            pass
        if self._cursors is not None:
            try:
                await self._cursors.save()
            except LedgerError as error:
                _log.error("cursors of %s cannot be kept: %s", self.name, error)
            self._cursors.close()
        if isinstance(self.closed, LedgerClosed) and self.take_snapshot is not None:
            await self.keep_snapshot(Snapshot(self.log_end_offset, self.take_snapshot()))
        async with self.list.changing:
            self.tell_closed()

    def lost(self, reason: LedgerError) -> None:
        """Another owner has it."""
        if self.closed is None:
            self.closed = reason
            self.appends.give_up(reason)
            self.engine.dropped(self)
            self.tell_closed()

    async def abandon(self) -> None:
        """It is deleted: whatever is on its way is for nothing."""
        if self._cursors is not None:
            await self._cursors.end()
        async with self.list.changing:
            await self.store.drop(self.name)
            self.closed, self.is_deleted = LedgerClosed(f"managed ledger {self.name} was deleted"), True
            self.appends.give_up(self.closed)
            self.tell_moved()
            self.tell_closed()

    def tell_closed(self) -> None:
        reason = self.closed
        assert reason is not None
        self.list.end(reason)
        holders, self.on_closed = self.on_closed, []
        for holder in holders:
            try:
                holder(reason)
            except Exception:
                _log.exception("a holder of %s failed when it was closed", self.name)
