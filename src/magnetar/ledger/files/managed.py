"""A managed ledger of the files engine: the ledgers of one partition, the last of them open for appends.

It is made of parts that know what all logs of the engine share (`EngineParts`) and the state of this one (`LogState`),
and none of which knows the log itself: the `Appender` and its `Checkpoints`, the `LogReader`, the `Trimmer`, and what
the `Compactor` needs (`CompactedLedgers`). The list of ledgers is a `LedgerList`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from magnetar.ledger.compaction.compactor import CompactableLog, Compactor
from magnetar.ledger.compaction.runs import EntrySource
from magnetar.ledger.cursors.keeper import CursorKeeper
from magnetar.ledger.cursors.kept import KeptCursors
from magnetar.ledger.cursors.store import CursorStore
from magnetar.ledger.errors import LedgerClosed, LedgerError, LedgerTerminated
from magnetar.ledger.files.appending import LEFT, Appender
from magnetar.ledger.files.compacting import COMPACTING, CompactedLedgers
from magnetar.ledger.files.flushing import Checkpoint
from magnetar.ledger.files.ledger_file import LedgerFile
from magnetar.ledger.files.reading import LogReader
from magnetar.ledger.files.recovery import Recovery
from magnetar.ledger.files.shared import EngineParts
from magnetar.ledger.files.state import LogState
from magnetar.ledger.files.tiering import FilesTiering
from magnetar.ledger.files.trimming import Trimmer
from magnetar.ledger.formats.info import ManagedLedgerInfo
from magnetar.ledger.ledger_list import FIRST, NEXT, TRANSACTIONS, LedgerList
from magnetar.ledger.port import (
    Compacted,
    CompactionReport,
    CompactionRules,
    LedgerPolicy,
    LedgerSummary,
    LedgerWriter,
    Pending,
    Position,
    StoredEntry,
)
from magnetar.ledger.tiers.place import TierPlace
from magnetar.records.batch import UNKNOWN_TIME
from magnetar.records.compression import Buffer

_log = logging.getLogger("magnetar.ledger")


class LogHolder(Protocol):
    """The owner of the open logs: the engine."""

    async def close_some(self, some: Sequence[FilesManagedLedger], /) -> bool:
        """Close logs together; return whether all was stored."""
        ...

    def drop_lost(self, managed: FilesManagedLedger, /) -> None:
        """Drop a log that another owner took."""
        ...


class FilesManagedLedger(CompactableLog):
    """See ``ManagedLedger``. All methods run on the event loop; disk waits run in the engine's threads."""

    def __init__(
        self,
        shared: EngineParts,
        holder: LogHolder,
        keeper: CursorKeeper,
        name: str,
        policy: LedgerPolicy,
        info: ManagedLedgerInfo,
        version: int,
    ) -> None:
        """``keeper`` stores its cursors; ``info`` and ``version`` are from the metadata store."""
        self.name = name
        self.policy = policy
        self.room = shared.room
        self.snapshot = None
        self.on_moved = None
        self.on_taken_back = []
        self.watchers = []
        self.on_closed = []
        self.before_compaction = []
        self.take_snapshot = None
        self.log_start_offset = self.log_end_offset = self.high_watermark = 0
        self.ledger_list = LedgerList(shared.metadata, name, shared.boot, info, version, self._lost)
        self.state = LogState(self, self.ledger_list)
        self._shared = shared
        self._holder = holder
        self._keeper = keeper
        self._cursors: KeptCursors | None = None
        self._is_ending = False
        self._appender = Appender(shared, self.state)
        self.checkpoints = self._appender.checkpoints
        self.reader = LogReader(shared, self.state, self._appender.write_gathered)
        self._trimmer = Trimmer(shared, self.state, self._appender)
        self._tiering = FilesTiering(shared, self.state, self.checkpoints)
        self._ledgers = CompactedLedgers(
            shared, self.state, self.reader, self._appender.lazy, self.checkpoints
        )
        self._compactor = Compactor(self, shared.leases, shared.workers, shared.one_compaction, shared.clock)

    def adopt(self, last: LedgerFile | None, recovery: Recovery) -> None:
        """Take over the open ledger, and what recovery found."""
        info = self.ledger_list.info
        self.log_end_offset = int(info.properties.get(NEXT, 0))
        self.log_start_offset = int(info.properties.get(FIRST, 0))
        if last is not None:
            self.state.open_files[last.ledger_id] = last
            if recovery.may_have_lost:
                info.properties[LEFT] = str(last.ledger_id)
            self.log_end_offset = max(self.log_end_offset, last.index.next_offset)
        elif info.ledgers:
            self.log_end_offset = max(self.log_end_offset, info.ledgers[-1].last_offset + 1)
        self.high_watermark = self.log_end_offset
        self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
        self._appender.adopt(last, is_lazy=recovery.is_lazy)
        self.checkpoints.adopt(recovery.kept, recovery.checked)

    # -- appending ---------------------------------------------------------------------------------------------

    def append(
        self,
        message: Sequence[Buffer],
        *,
        messages: int,
        timestamp_ms: int,
        earliest_ms: int = UNKNOWN_TIME,
        tail_crc: int | None = None,
    ) -> Pending:
        if self.state.closed is not None:
            raise self.state.closed
        if self._is_ending or self.ledger_list.info.terminated is not None:
            raise LedgerTerminated("the topic was terminated: it takes no more messages")
        return self._appender.append(
            message,
            messages=messages,
            timestamp_ms=timestamp_ms,
            earliest_ms=earliest_ms,
            tail_crc=tail_crc,
        )

    def checkpoint(self) -> None:
        """Store the index of the open ledger in the background."""
        if self.state.writer is not None:
            self.checkpoints.keep_soon(self.state.writer)

    # -- rolling over, letting go ------------------------------------------------------------------------------

    async def roll(self, older_than_ms: int = 0) -> None:
        self.check_open()
        writer, ledgers = self.state.writer, self.ledger_list.info.ledgers
        if writer is None or not writer.index.entries:
            return
        if not older_than_ms or ledgers[-1].created_ms < older_than_ms:
            await self._appender.roll()
        await self.checkpoints.sealed()

    async def trim(self, before: int) -> None:
        await self._trimmer.trim(before)

    async def retain(self, now_ms: int) -> None:
        await self._trimmer.retain(now_ms)

    async def offload(self, ledger_id: int, place: TierPlace) -> None:
        self.check_open()
        await self._tiering.offload(ledger_id, place)

    async def delete_local(self, ledger_ids: Collection[int]) -> None:
        self.check_open()
        await self._tiering.delete_local(ledger_ids)

    @property
    def terminated(self) -> Position | None:
        return self.ledger_list.info.terminated

    async def terminate(self) -> Position:
        self.check_open()
        if self.terminated is not None:
            return self.terminated
        self._is_ending = True

        def make(info: ManagedLedgerInfo) -> bool:
            if info.terminated is None:
                ledgers = self.ledgers()
                info.terminated = (
                    Position(ledgers[-1].ledger_id, ledgers[-1].entries - 1) if ledgers else Position(-1, -1)
                )
            return True

        try:
            await self._appender.quiet()
            await self.ledger_list.change(make)
        finally:
            self._is_ending = False
        assert self.terminated is not None
        return self.terminated

    # -- reading -----------------------------------------------------------------------------------------------

    # Asked for every partition of a Fetch: a coroutine around a coroutine would be resumed with it each time.
    def read(
        self, offset: int, *, max_bytes: int, up_to: int | None = None
    ) -> Coroutine[Any, Any, list[StoredEntry]]:
        return self.reader.read(offset, max_bytes=max_bytes, up_to=up_to)

    async def entry(self, position: Position) -> StoredEntry:
        return await self.reader.entry(position)

    async def find_by_time(self, timestamp_ms: int) -> StoredEntry | None:
        return await self.reader.find_by_time(timestamp_ms)

    async def find_max_timestamp(self) -> StoredEntry | None:
        return await self.reader.find_max_timestamp()

    async def find_first(self, wanted: Callable[[StoredEntry], bool]) -> StoredEntry | None:
        return await self.reader.find_first(wanted)

    async def read_compacted(
        self, offset: int, *, max_bytes: int, up_to: int | None = None
    ) -> list[StoredEntry]:
        return await self.reader.read_compacted(offset, max_bytes=max_bytes, up_to=up_to)

    async def offset_behind(self, position: Position) -> int:
        return await self.reader.offset_behind(position)

    # -- compaction --------------------------------------------------------------------------------------------

    @property
    def compacted(self) -> Compacted | None:
        return self.ledger_list.info.compacted

    @property
    def compaction(self) -> CompactionReport:  # type: ignore[override]
        return self._compactor.report

    def dirty_bytes(self, rules: CompactionRules) -> tuple[int, int, int]:
        return self._compactor.dirty_bytes(rules)

    async def compact(self, rules: CompactionRules) -> bool:
        return await self._compactor.compact(rules)

    @property
    def copies_from(self) -> int:
        return self._ledgers.copies_from

    def check_open(self) -> None:
        self.state.check_open()

    async def make_durable(self) -> None:
        await self._ledgers.make_durable()

    def entries_of(self, dirty: list[LedgerSummary], from_offset: int) -> EntrySource:
        return self._ledgers.entries_of(dirty, from_offset)

    async def new_compacted(self, first_offset: int) -> LedgerWriter:
        return await self._ledgers.new_compacted(first_offset)

    async def put_in_place(self, compacted: Compacted, sizes: Mapping[int, int]) -> None:
        await self._ledgers.put_in_place(compacted, sizes)

    # -- transactions ------------------------------------------------------------------------------------------

    @property
    def has_transactions(self) -> bool:
        return TRANSACTIONS in self.ledger_list.info.properties

    async def note_transactions(self) -> None:
        def make(info: ManagedLedgerInfo) -> bool:
            is_new = TRANSACTIONS not in info.properties
            info.properties[TRANSACTIONS] = "1"
            return is_new

        await self.ledger_list.change(make)

    # -- what there is -----------------------------------------------------------------------------------------

    def ledgers(self) -> list[LedgerSummary]:
        found = self.ledger_list.info.ledgers
        for summary in found:
            ledger = self.state.open_files.get(summary.ledger_id)
            if not summary.sealed and ledger is not None:
                index = ledger.index
                summary.entries, summary.size = index.entries, index.end
                summary.last_offset, summary.max_timestamp = index.next_offset - 1, index.max_timestamp
        return list(found)

    async def cursors(self) -> CursorStore:
        if self._cursors is None:
            made = KeptCursors(self, self._keeper, self.ledger_list)
            await made.load()
            self._cursors = self._cursors or made  # another call may have been faster
        return self._cursors

    @property
    def has_cursors(self) -> bool:
        """True if its cursors were requested."""
        return self._cursors is not None

    async def save_cursors(self) -> None:
        """Store its cursors, as far as possible."""
        if self._cursors is not None:
            try:
                await self._cursors.save()
            except LedgerError as error:
                _log.error("cursors of %s cannot be kept: %s", self.name, error)
            self._cursors.close()

    async def end_cursors(self) -> None:
        """Stop writing its cursors."""
        if self._cursors is not None:
            await self._cursors.end()

    def size(self) -> int:
        return sum(summary.size for summary in self.ledgers())

    # -- the end -----------------------------------------------------------------------------------------------

    async def close(self) -> None:
        if self.state.closed is None:
            await self._holder.close_some([self])

    @property
    def is_unused(self) -> bool:
        """True if it has no listeners, and nothing of it is in flight."""
        return (
            self.state.closed is None
            and not self.watchers
            and self.on_moved is None
            and not self._compactor.running.locked()
            and not self.ledger_list.changing.locked()
            and self.high_watermark == self.log_end_offset
        )

    def _lost(self, reason: LedgerError) -> None:
        """Close it: another owner took it over, or its state in the metadata store is unknown."""
        if self.state.closed is None:
            self.state.closed = reason
            self._holder.drop_lost(self)
        self.state.closed = reason

    def stop(self) -> None:
        """Take no more appends."""
        if self.state.closed is None:
            self.state.closed = LedgerClosed(f"managed ledger {self.name} is closed")

    async def quiet(self) -> None:
        """Wait until nothing of this log is being written in the background."""
        await self._appender.quiet()
        async with self.checkpoints.keeping:
            pass
        async with self.ledger_list.changing:
            pass

    async def ended(self) -> None:
        """Wait, after ``stop``, until a compaction has given up and nothing is written in the background."""
        async with self._compactor.running:
            await self.quiet()

    def last_checkpoint(self) -> Checkpoint | None:
        """Return the checkpoint that is still due at a clean end, if any."""
        if type(self.state.closed) is not LedgerClosed or self.state.is_deleted:
            return None
        return self.checkpoints.last()

    def let_files_go(self) -> None:
        for ledger in self.state.open_files.values():
            self._shared.files.forget(str(ledger.path))
        self.state.open_files.clear()

    def abandon(self) -> None:
        """Stop immediately, because the managed ledger is deleted; its files go when nothing writes next to them."""
        self.state.closed = LedgerClosed(f"managed ledger {self.name} was deleted")
        self.state.is_deleted = True
        self.let_files_go()
        self._shared.work.background(self.checkpoints.remove(self._every_file()))
        self.state.tell_moved()
        self.state.tell_closed()

    def _every_file(self) -> list[int]:
        info = self.ledger_list.info
        draft = info.properties.get(COMPACTING)
        return [summary.ledger_id for summary in info.files()] + ([int(draft)] if draft else [])
