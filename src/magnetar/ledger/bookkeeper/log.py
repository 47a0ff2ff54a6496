"""One log on bookies."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from magnetar.ledger.bookkeeper.appends import Appends
from magnetar.ledger.bookkeeper.opening import (
    DRAFT,
    FIRST,
    TRIMMED,
    LogCheckpoint,
    TakenLog,
    end_of,
    reader_of,
)
from magnetar.ledger.bookkeeper.reading import BookieReader
from magnetar.ledger.bookkeeper.shared import BookKeeperParts, WrittenLog
from magnetar.ledger.bookkeeper.streams import BookieSource, CopiesWriter
from magnetar.ledger.bookkeeper.tiering import BookKeeperTiering, TieredReader
from magnetar.ledger.compaction.compactor import Compactor
from magnetar.ledger.compaction.runs import EntrySource
from magnetar.ledger.cursors.kept import KeptCursors
from magnetar.ledger.cursors.store import CursorStore
from magnetar.ledger.errors import (
    LedgerClosed,
    LedgerError,
    LedgerNotFound,
    LedgerTerminated,
    OffsetOutOfRange,
    StorageFull,
)
from magnetar.ledger.formats.info import ManagedLedgerInfo
from magnetar.ledger.ledger_list import NEXT, TRANSACTIONS, LedgerList
from magnetar.ledger.looking import base_offset, each_looked_at, looked_at, newest
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
from magnetar.ledger.tiers.tiering import doomed_objects
from magnetar.records.batch import UNKNOWN_TIME
from magnetar.records.compression import Buffer
from magnetar.records.copied import copied_from
from magnetar.records.entry import latest_timestamp

if TYPE_CHECKING:
    from magnetar.ledger.tiers.place import TierPlace
    from magnetar.metadata.ops import Op

_log = logging.getLogger("magnetar.ledger")


class BookKeeperLog(WrittenLog):
    """See ``ManagedLedger``. The figures of the open ledger include what is in flight to it."""

    def __init__(self, engine: BookKeeperParts, name: str, policy: LedgerPolicy, taken: TakenLog) -> None:
        self.name = name
        self.policy = policy
        self.engine = engine
        self.custom = {
            "application": b"pulsar",
            "component": b"managed-ledger",
            "pulsar/managed-ledger": name.encode(),
        }
        self.list = LedgerList(engine.metadata, name, taken.owner, taken.info, taken.version, self.lost)
        info = taken.info
        self.log_end_offset = end_of(info)
        first = info.ledgers[0].first_offset if info.ledgers else self.log_end_offset
        self.log_start_offset = max(first, int(info.properties.get(FIRST, 0)))
        self.high_watermark = self.log_end_offset
        snapshot = taken.snapshot
        self.snapshot = snapshot if snapshot is not None and snapshot.offset <= self.log_end_offset else None
        self.on_moved = None
        self.on_taken_back = []
        self.watchers = []
        self.on_closed = []
        self.before_compaction = []
        self.take_snapshot = None
        self.closed: LedgerError | None = None
        self.readers: dict[int, BookieReader] = {}
        self._checkpoints = taken.checkpoints
        self._starts = taken.starts
        self._is_ending = False
        self._cursors: KeptCursors | None = None
        self.appends = Appends(self)
        self._compactor = Compactor(self, engine.leases, engine.workers, engine.one_compaction, engine.clock)
        self._tiering = BookKeeperTiering(self, self._reader)
        self.remove(taken.left)
        self._tiering.opened()

    @property
    def _info(self) -> ManagedLedgerInfo:
        return self.list.info

    keeps_epochs = True

    @property
    def epoch_starts(self) -> str | None:
        return self._starts

    @epoch_starts.setter
    def epoch_starts(self, starts: str | None) -> None:
        self._starts = self.list.starts = starts

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
        if self._is_ending or self._info.terminated is not None:
            raise LedgerTerminated("the topic was terminated: it takes no more messages")
        return self.appends.place(message, messages, timestamp_ms, earliest_ms)

    def tell_moved(self) -> None:
        """Notify waiting readers that a bound has moved."""
        if self.on_moved is not None:
            self.on_moved()
        for watcher in self.watchers:
            watcher()

    def tell_taken_back(self, what: TakenBack) -> None:
        """Notify holders of what was taken back."""
        for holder in tuple(self.on_taken_back):
            try:
                holder(what)
            except Exception:
                _log.exception("a holder of %s failed when appends were taken back", self.name)

    async def keep_snapshot(self, checkpoint: LogCheckpoint) -> None:
        """Store what is known now, for the next owner of the log."""
        if self.closed is None or isinstance(self.closed, LedgerClosed):
            await self._checkpoints.keep(checkpoint)

    # -- reading

    def _reader(self, ledger: LedgerSummary) -> BookieReader:
        found = self.readers.get(ledger.ledger_id)
        if found is None or found.is_tiered != ledger.offloaded:
            if ledger.offloaded:
                found = TieredReader(ledger, self.engine)
            else:
                found = reader_of(ledger, self.engine.bookies, self.engine.tail)
            self.readers[ledger.ledger_id] = found
        return found

    async def read(self, offset: int, *, max_bytes: int, up_to: int | None = None) -> list[StoredEntry]:
        self.check_open()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is not in [{self.log_start_offset}, {self.log_end_offset}]"
            )
        end = self.high_watermark if up_to is None else min(up_to, self.high_watermark)
        found: list[StoredEntry] = []
        for ledger in tuple(self._info.ledgers):
            if offset >= end or max_bytes <= 0:
                break
            if ledger.last_offset < offset:
                continue
            if ledger.compacted:
                # The end of one ledger's copies is unknown, so nothing is read after those that did not fit.
                behind = max(each.last_offset for each in self._info.ledgers if each.compacted) + 1
                if some := await self._copies(offset, max_bytes, min(end, behind)):
                    return some
                offset = behind
                continue
            some = await self._or_copies(ledger, offset, max_bytes, end)
            size = sum(len(each.data) for each in some)
            if found and size > max_bytes:
                break
            found += some
            max_bytes -= size
            if some and some[-1].last_offset < ledger.last_offset:
                break
            offset = ledger.last_offset + 1
        return found

    async def _or_copies(
        self, ledger: LedgerSummary, offset: int, max_bytes: int, end: int
    ) -> list[StoredEntry]:
        """Return a ledger's entries, wherever it lies by now or, if the compacted ledger replaced it meanwhile, what is
        left of them.
        """
        try:
            return await self._reader(ledger).read(offset, max_bytes=max_bytes, up_to=end)
        except LedgerError:
            now = self._now(ledger)
            if now is not None and now.offloaded and not ledger.offloaded:
                return await self._or_copies(now, offset, max_bytes, end)
            if now is not None and not now.compacted:
                raise
            self.check_open()
            return [] if now is None else await self._copies(offset, max_bytes, min(end, now.last_offset + 1))

    async def find_by_time(self, timestamp_ms: int) -> StoredEntry | None:
        self.check_open()
        copies_seen = False
        for ledger in tuple(self._info.ledgers):
            if ledger.compacted:
                if not copies_seen:
                    copies_seen = True
                    async for entry in self._all_copies():
                        if await looked_at(entry, partial(self._is_found, timestamp_ms=timestamp_ms)):
                            return entry
                continue
            if ledger.max_timestamp < timestamp_ms:
                continue
            found = await self._in_ledger(ledger, timestamp_ms)
            if found is not None:
                return found if found.last_offset < self.high_watermark else None
        return None

    async def _in_ledger(self, ledger: LedgerSummary, timestamp_ms: int) -> StoredEntry | None:
        """Return a ledger's first entry of a time or later, or the first one that is not visible yet."""
        try:
            async for entry in self._reader(ledger).since_time(timestamp_ms):
                if entry.last_offset >= self.high_watermark or await looked_at(
                    entry, partial(self._is_found, timestamp_ms=timestamp_ms)
                ):
                    return entry
        except LedgerError:
            now = self._now(ledger)
            if now is None or not now.offloaded or ledger.offloaded:
                raise
            return await self._in_ledger(now, timestamp_ms)
        return None

    def _now(self, ledger: LedgerSummary) -> LedgerSummary | None:
        """Return the current summary of a ledger, None if it has gone."""
        return next((each for each in self._info.ledgers if each.ledger_id == ledger.ledger_id), None)

    def _is_found(self, entry: StoredEntry, timestamp_ms: int) -> bool:
        return entry.last_offset >= self.log_start_offset and latest_timestamp(entry.data) >= timestamp_ms

    async def find_max_timestamp(self) -> StoredEntry | None:
        ledgers = [each for each in self._info.ledgers if each.entries or each.compacted]
        latest = max((each.max_timestamp for each in ledgers), default=-1)
        found = await self.find_by_time(latest) if latest >= 0 else None
        if found is None and ledgers:
            # The entry of the latest one is not visible yet, or was trimmed: walk what is left.
            offset = self.log_start_offset
            while entries := await self.read(offset, max_bytes=1 << 20):
                async for entry, timestamp in each_looked_at(entries, newest):
                    if found is None or timestamp > latest:
                        found, latest = entry, timestamp
                offset = entries[-1].last_offset + 1
        return found

    async def find_first(self, wanted: Callable[[StoredEntry], bool]) -> StoredEntry | None:
        self.check_open()
        low, high, best = self.log_start_offset, self.high_watermark, None
        while low < high:
            entries = await self.read((low + high) // 2, max_bytes=1)
            if entries and not wanted(entries[0]):
                low = entries[0].last_offset + 1
            else:
                if entries:
                    best = entries[0]
                    high = min((low + high) // 2, await looked_at(best, base_offset))
                else:
                    high = (low + high) // 2
        return best

    async def entry(self, position: Position) -> StoredEntry:
        self.check_open()
        ledger = self._ledger_of(position)
        if ledger.compacted:
            async for copy in self._copies_of(ledger):
                if copy[:2] == position:
                    return copy
        else:
            found = await self._entry_in(ledger, position.entry_id)
            if found.last_offset < self.high_watermark:
                return found
        raise LedgerNotFound(f"there is no entry {position.ledger_id}:{position.entry_id}")

    async def _entry_in(self, ledger: LedgerSummary, entry_id: int) -> StoredEntry:
        try:
            return await self._reader(ledger).at(entry_id)
        except LedgerError:
            now = self._now(ledger)
            if now is None or not now.offloaded or ledger.offloaded:
                raise
            return await self._entry_in(now, entry_id)

    async def offset_behind(self, position: Position) -> int:
        ledger = self._ledger_of(position)
        if not ledger.compacted:
            return (await self.entry(position)).last_offset + 1
        async for copy in self._copies_of(ledger):
            if copy[:2] > position:
                return await looked_at(copy, base_offset)
        return ledger.last_offset + 1

    def _ledger_of(self, position: Position) -> LedgerSummary:
        for ledger in self._info.ledgers:
            if ledger.ledger_id == position.ledger_id:
                return ledger
        raise LedgerNotFound(f"{self.name} has no ledger {position.ledger_id}")

    # -- copies, in the compacted ledger

    async def _copies(self, offset: int, max_bytes: int, up_to: int) -> list[StoredEntry]:
        compacted = self._info.compacted
        if compacted is None or offset > compacted.ledger.last_offset:
            return []
        try:
            found = await self._reader(compacted.ledger).read(offset, max_bytes=max_bytes, up_to=up_to)
        except LedgerError:
            if self._info.compacted is compacted:
                raise
            return await self._copies(offset, max_bytes, up_to)  # a newer one replaced it
        return [_original(entry) for entry in found]

    async def _all_copies(self, offset: int = 0, up_to: int = 1 << 62) -> AsyncIterator[StoredEntry]:
        while found := await self._copies(offset, 1 << 20, up_to):
            for entry in found:
                yield entry
            offset = found[-1].last_offset + 1

    def _copies_of(self, ledger: LedgerSummary) -> AsyncIterator[StoredEntry]:
        return self._all_copies(ledger.first_offset, ledger.last_offset + 1)

    @property
    def compacted(self) -> Compacted | None:
        return self._info.compacted

    @property
    def copies_from(self) -> int:
        return int(self._info.properties.get(TRIMMED, 0))

    async def read_compacted(
        self, offset: int, *, max_bytes: int, up_to: int | None = None
    ) -> list[StoredEntry]:
        self.check_open()
        compacted = self.compacted
        if compacted is not None and offset <= compacted.horizon_offset:
            end = compacted.horizon_offset + 1
            below = end if up_to is None else min(up_to, end)
            found = await self._copies(max(offset, self.copies_from), max_bytes, below)
            if found or below < end:
                return found
            offset = end
        offset = min(max(offset, self.log_start_offset), self.log_end_offset)
        return await self.read(offset, max_bytes=max_bytes, up_to=up_to)

    # -- letting go

    async def roll(self, older_than_ms: int = 0) -> None:
        self.check_open()
        last = self._open_ledger()
        if last is not None and (not older_than_ms or last.created_ms < older_than_ms):
            await self.appends.roll()

    def _open_ledger(self) -> LedgerSummary | None:
        """Return the ledger that is written, if it has entries."""
        ledgers = self._info.ledgers
        return ledgers[-1] if ledgers and not ledgers[-1].sealed and ledgers[-1].entries else None

    async def trim(self, before: int) -> None:
        if before > self.high_watermark or before < 0:
            raise OffsetOutOfRange(f"cannot trim before {before}: the end is {self.high_watermark}")
        self.check_open()
        if before > self.log_start_offset:
            await self.appends.keep_owed()
            await self._let_go(before, lambda ledger: ledger.last_offset < before, is_order=True)

    async def retain(self, now_ms: int) -> None:
        policy, last = self.policy, self._open_ledger()
        if self.closed is not None or not self._info.ledgers:
            return

        def is_past(ledger: LedgerSummary) -> bool:
            latest = ledger.max_timestamp if ledger.max_timestamp >= 0 else ledger.created_ms
            return policy.retention_ms >= 0 and latest < now_ms - policy.retention_ms

        if last is not None and (is_past(last) or self.appends.is_full()):
            try:
                await self.appends.roll()
            except StorageFull as error:
                _log.warning("%s cannot roll over: %s", self.name, error)
        needed = await self.engine.leases.needed(self.name)
        excess = self.size() - policy.retention_bytes if policy.retention_bytes >= 0 else -1

        def is_done_with(ledger: LedgerSummary) -> bool:
            nonlocal excess
            excess -= ledger.size
            return (needed is None or ledger.last_offset < needed) and (is_past(ledger) or excess >= 0)

        await self.appends.keep_owed()
        await self._let_go(self.log_start_offset, is_done_with)

    async def _let_go(
        self, first_offset: int, is_done_with: Callable[[LedgerSummary], bool], *, is_order: bool = False
    ) -> None:
        gone: list[int] = []
        dropped: list[LedgerSummary] = []

        def make(info: ManagedLedgerInfo) -> bool:
            before = {each.ledger_id for each in info.files()}
            start = max(first_offset, self.log_start_offset)
            if is_order and info.compacted is not None:
                info.properties[TRIMMED] = str(first_offset)
            while info.ledgers and info.ledgers[0].sealed and is_done_with(info.ledgers[0]):
                went = info.ledgers.pop(0)
                dropped.append(went)
                start = max(start, went.last_offset + 1)
                if went.compacted and info.compacted and info.compacted.horizon_offset < start:
                    info.compacted = None
            gone.extend(before - {each.ledger_id for each in info.files()})
            changed = (
                bool(gone) or start > self.log_start_offset or len(info.ledgers) < len(self._info.ledgers)
            )
            info.properties[FIRST] = str(start)
            if not info.ledgers:
                info.properties[NEXT] = str(self.high_watermark)
            return changed

        def counts() -> None:
            self.log_start_offset = int(self._info.properties[FIRST])
            self.remove([*gone, *(each.ledger_id for each in dropped if each.offloaded)])
            self.tell_moved()

        await self.list.change(make, counts, beside=lambda: self._doomed(dropped))

    def _doomed(self, dropped: Sequence[LedgerSummary]) -> list[Op]:
        return doomed_objects(self.name, dropped, self.engine.clock() + self.engine.grace_ms)

    # -- tiered storage

    async def offload(self, ledger_id: int, place: TierPlace) -> None:
        self.check_open()
        await self._tiering.offload(ledger_id, place)

    async def delete_local(self, ledger_ids: Collection[int]) -> None:
        self.check_open()
        await self._tiering.delete_local(ledger_ids)

    def remove(self, ledger_ids: Sequence[int]) -> None:
        """Delete ledgers that nothing refers to."""
        for ledger_id in ledger_ids:
            self.readers.pop(ledger_id, None)
            self.engine.background(self.engine.bookies.delete(ledger_id))

    # -- compaction

    @property
    def compaction(self) -> CompactionReport:  # type: ignore[override]
        return self._compactor.report

    def dirty_bytes(self, rules: CompactionRules) -> tuple[int, int, int]:
        return self._compactor.dirty_bytes(rules)

    async def compact(self, rules: CompactionRules) -> bool:
        await self.appends.keep_owed()
        return await self._compactor.compact(rules)

    def check_open(self) -> None:
        if self.closed is not None:
            raise self.closed

    async def make_durable(self) -> None:
        """Return: what is visible is stored already."""

    def entries_of(self, dirty: list[LedgerSummary], from_offset: int) -> EntrySource:
        copies = None if self.compacted is None else self._reader(self.compacted.ledger)
        return BookieSource([self._reader(each) for each in dirty], copies, from_offset, self.check_open)

    async def new_compacted(self, first_offset: int) -> LedgerWriter:
        made = await self.engine.bookies.create(self.custom)
        writer = CopiesWriter(self.engine.bookies, made, first_offset, self.engine.clock())
        before: list[str] = []

        def make(info: ManagedLedgerInfo) -> bool:
            before.append(info.properties.get(DRAFT, ""))
            info.properties[DRAFT] = str(writer.ledger_id)
            return True

        await self.list.change(make)
        self.remove([int(each) for each in before if each])
        return writer

    async def put_in_place(self, compacted: Compacted, sizes: Mapping[int, int]) -> None:
        gone: list[int] = []
        replaced: list[LedgerSummary] = []

        def make(info: ManagedLedgerInfo) -> bool:
            before = {each.ledger_id for each in info.files()}
            info.properties.pop(DRAFT, None)
            for at, each in enumerate(info.ledgers):
                if each.ledger_id in sizes:
                    replaced.append(each)
                    size = sizes[each.ledger_id]
                    info.ledgers[at] = replace(each, compacted=True, size=size, offload=None)
            info.compacted = compacted
            gone.extend(before - {each.ledger_id for each in info.files()})
            return True

        def counts() -> None:
            self.remove(gone)
            self.tell_moved()

        await self.list.change(
            make,
            counts,
            lambda: self.remove([compacted.ledger.ledger_id]),
            lambda: self._doomed(replaced),
        )

    # -- transactions

    @property
    def has_transactions(self) -> bool:
        return TRANSACTIONS in self._info.properties

    async def note_transactions(self) -> None:
        def make(info: ManagedLedgerInfo) -> bool:
            is_new = TRANSACTIONS not in info.properties
            info.properties[TRANSACTIONS] = "1"
            return is_new

        await self.list.change(make)

    # -- what there is

    async def cursors(self) -> CursorStore:
        if self._cursors is None:
            made = KeptCursors(self, self.engine.cursor_keeper, self.list)
            await made.load()
            self._cursors = self._cursors or made
        return self._cursors

    @property
    def terminated(self) -> Position | None:
        return self._info.terminated

    async def terminate(self) -> Position:
        self.check_open()
        self._is_ending = True

        def make(info: ManagedLedgerInfo) -> bool:
            last = info.ledgers[-1] if info.ledgers else None
            info.terminated = info.terminated or (
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

    def ledgers(self) -> list[LedgerSummary]:
        return list(self._info.ledgers)

    def size(self) -> int:
        return sum(each.size for each in self._info.files())

    # -- the end

    async def close(self) -> None:
        if self.closed is None:
            await self.engine.release(self.name)

    async def let_go(self) -> None:
        """Close the log, store all there is, and notify its holders."""
        if self.closed is None:
            self.closed = LedgerClosed(f"managed ledger {self.name} is closed")
        await self.appends.quiet()
        async with self._compactor.running:
            pass
        try:
            if self._cursors is not None:
                await self._cursors.save()
            if isinstance(self.closed, LedgerClosed):
                if self.take_snapshot is not None:
                    snapshot = Snapshot(self.log_end_offset, self.take_snapshot())
                    await self._checkpoints.keep(self.appends.checkpoint(snapshot))
                await self.appends.end()
        except LedgerError as error:
            _log.error(
                "%s cannot be closed in order, and is recovered when it is opened: %s", self.name, error
            )
        if self._cursors is not None:
            self._cursors.close()
        async with self.list.changing:
            self.tell_closed()

    def lost(self, reason: LedgerError) -> None:
        """Close it immediately: another owner has it."""
        if self.closed is None:
            self.closed = reason
            self.appends.give_up(reason)
            self.engine.dropped(self)
            self.tell_closed()

    async def abandon(self) -> ManagedLedgerInfo:
        """Close it without storing anything, since it is deleted. Return the list of its ledgers."""
        if self._cursors is not None:
            await self._cursors.end()
        async with self.list.changing:
            if self.closed is None:
                self.closed = LedgerClosed(f"managed ledger {self.name} was deleted")
            self.appends.give_up(self.closed)
            self.tell_moved()
            self.tell_closed()
        return self._info

    def tell_closed(self) -> None:
        """Notify holders once of the reason why it is closed."""
        reason = self.closed
        assert reason is not None
        self.list.end(reason)
        holders, self.on_closed = self.on_closed, []
        for holder in holders:
            try:
                holder(reason)
            except Exception:
                _log.exception("a holder of %s failed when it was closed", self.name)


def _original(entry: StoredEntry) -> StoredEntry:
    """Return a copy under the position of its original."""
    came = copied_from(entry.data)
    return entry._replace(ledger_id=came.ledger_id, entry_id=came.entry_id, copy=entry.ledger_id)
