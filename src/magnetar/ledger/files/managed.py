"""A managed ledger of the files engine: the ledgers of one partition, the last of them open for appends.

What is appended goes through the `Appender`, what is kept beside it through `Checkpoints`, the list of ledgers is a
`LedgerList`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from magnetar.ledger.cursors import CursorStore
from magnetar.ledger.errors import LedgerClosed, LedgerError, LedgerTerminated, OffsetOutOfRange, StorageFull
from magnetar.ledger.files.appending import LEFT, Appender
from magnetar.ledger.files.checkpoints import Checkpoint, Checkpoints
from magnetar.ledger.files.compacting import COMPACTING, CompactingLedger
from magnetar.ledger.files.ledger_file import LedgerFile
from magnetar.ledger.files.ledger_list import FIRST, NEXT, LedgerList
from magnetar.ledger.files.recovery import Recovery
from magnetar.ledger.info import ManagedLedgerInfo
from magnetar.ledger.kept_cursors import KeptCursors
from magnetar.ledger.port import LedgerPolicy, LedgerSummary, Pending, Position, TakenBack
from magnetar.records.batch import UNKNOWN_TIME
from magnetar.records.compression import Buffer

if TYPE_CHECKING:
    from magnetar.ledger.files.engine import FilesEngine

_log = logging.getLogger("magnetar.ledger")


class FilesManagedLedger(CompactingLedger):
    """See ``ManagedLedger``. All methods run on the event loop; disk waits run in the engine's threads."""

    def __init__(
        self, engine: FilesEngine, name: str, policy: LedgerPolicy, info: ManagedLedgerInfo, version: int
    ) -> None:
        self.name = name
        self.policy = policy
        self.snapshot = None
        self.on_visible = None
        self.on_taken_back = []
        self.watchers = []
        self.on_closed = []
        self.take_snapshot = None
        self._cursors: KeptCursors | None = None
        self.log_start_offset = self.log_end_offset = self.high_watermark = 0
        self.ledger_list = LedgerList(engine.metadata, name, engine.boot, info, version, self._lost)
        self.open_files: dict[int, LedgerFile] = {}
        self.is_deleted = False
        self._engine = engine
        self._closed: LedgerError | None = None
        self._is_ending = False
        self._appender = Appender(engine, self)
        self.lazy = self._appender.lazy
        self.checkpoints = Checkpoints(engine, self)
        self._begin()

    def adopt(self, last: LedgerFile | None, recovery: Recovery) -> None:
        """Take over the open ledger, and what recovery found."""
        info = self.ledger_list.info
        self.log_end_offset = int(info.properties.get(NEXT, 0))
        self.log_start_offset = int(info.properties.get(FIRST, 0))
        if last is not None:
            self.open_files[last.ledger_id] = last
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
    ) -> Pending:
        if self._closed is not None:
            raise self._closed
        if self._is_ending or self.ledger_list.info.terminated is not None:
            raise LedgerTerminated("the topic was terminated: it takes no more messages")
        return self._appender.append(
            message, messages=messages, timestamp_ms=timestamp_ms, earliest_ms=earliest_ms
        )

    def made_durable(self, next_offset: int) -> None:
        """All below ``next_offset`` may be read."""
        if next_offset > self.high_watermark:
            self.high_watermark = next_offset
            self.tell_moved()

    def tell_moved(self) -> None:
        """Tell whoever holds the log that one of its bounds has moved."""
        if self.on_visible is not None:
            self.on_visible()
        for watcher in self.watchers:
            watcher()

    def tell_taken_back(self, what: TakenBack) -> None:
        """Tell whoever holds the log that appends were not kept."""
        for holder in tuple(self.on_taken_back):
            try:
                holder(what)
            except Exception:  # the others have to learn of it all the same
                _log.exception("a holder of %s failed when appends were taken back", self.name)

    def write_gathered(self) -> None:
        self._appender.write_gathered()

    @property
    def writer(self) -> LedgerFile | None:
        """The open ledger."""
        return self._appender.writer

    @property
    def has_queue(self) -> bool:
        """Whether something waits for a ledger."""
        return self._appender.has_queue

    def checkpoint(self) -> None:
        """Keep the index of the open ledger in the background."""
        if self.writer is not None:
            self.checkpoints.keep_soon(self.writer)

    # -- rolling over, letting go ------------------------------------------------------------------------------

    async def roll(self, older_than_ms: int = 0) -> None:
        self.check_open()
        writer, ledgers = self.writer, self.ledger_list.info.ledgers
        if writer is None or not writer.index.entries:
            return
        if not older_than_ms or ledgers[-1].created_ms < older_than_ms:
            await self._appender.roll()
        await self.checkpoints.sealed()

    async def trim(self, before: int) -> None:
        if before > self.high_watermark or before < 0:
            raise OffsetOutOfRange(f"cannot trim before {before}: the end is {self.high_watermark}")
        self.check_open()
        if before > self.log_start_offset:
            await self._let_go(before, lambda summary: summary.last_offset < before, trims=True)

    async def retain(self, now_ms: int) -> None:
        policy, writer = self.policy, self.writer
        if self._closed is not None or not self.ledger_list.info.ledgers:
            return
        self.checkpoints.seal_again()
        if writer is not None and writer.index.entries:
            try:
                if self._is_past(self.ledgers()[-1], now_ms) or not self._appender.takes_more(now_ms):
                    await self._appender.roll()
            except StorageFull:
                pass  # all the more reason to let go of old ledgers
        needed = await self._engine.leases.needed(self.name)
        excess = self.size() - policy.retention_bytes if policy.retention_bytes >= 0 else -1

        def done_with(summary: LedgerSummary) -> bool:
            nonlocal excess
            excess -= summary.size
            if needed is not None and summary.last_offset >= needed:
                return False
            return self._is_past(summary, now_ms) or excess >= 0

        await self._let_go(self.log_start_offset, done_with)

    def _is_past(self, summary: LedgerSummary, now_ms: int) -> bool:
        latest = summary.max_timestamp if summary.max_timestamp >= 0 else summary.created_ms
        return self.policy.retention_ms >= 0 and latest < now_ms - self.policy.retention_ms

    async def _let_go(
        self, first_offset: int, done_with: Callable[[LedgerSummary], bool], *, trims: bool = False
    ) -> None:
        """Begin at ``first_offset``; delete sealed ledgers from the oldest on, as long as ``done_with`` says so."""
        gone: list[int] = []
        start = first_offset

        def make(info: ManagedLedgerInfo) -> bool:
            nonlocal start
            ledgers, count = info.ledgers, 0
            if trims:
                self._trim_copies(info, first_offset)
            while count < len(ledgers) - 1 and self._may_go(ledgers[count]) and done_with(ledgers[count]):
                count += 1
            dropped = ledgers[:count]
            del ledgers[:count]
            start = max(first_offset, ledgers[0].first_offset) if dropped else first_offset
            gone.extend(summary.ledger_id for summary in dropped if not summary.compacted)
            if any(summary.compacted for summary in dropped):
                gone.extend(self._forget_copies(info))
            start = max(start, self.log_start_offset)
            info.properties[FIRST] = str(start)
            return bool(dropped) or start != self.log_start_offset

        def counts() -> None:
            self.log_start_offset = start
            for ledger_id in gone:
                self.open_files.pop(ledger_id, None)
            if gone:
                self._engine.background(self._remove(gone))
            self.tell_moved()

        await self.ledger_list.change(make, counts)

    def _may_go(self, summary: LedgerSummary) -> bool:
        return summary.sealed and summary.last_offset < self.high_watermark

    async def _remove(self, ledger_ids: list[int]) -> None:
        """Delete ledgers, after the owner's snapshot, which may lie beside them, was kept elsewhere."""
        if self.writer is not None:
            await self.checkpoints.keep(self.writer)
        async with self.checkpoints.keeping:
            self._engine.remove_later(ledger_ids)

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

    # -- what there is -----------------------------------------------------------------------------------------

    def ledgers(self) -> list[LedgerSummary]:
        found = self.ledger_list.info.ledgers
        for summary in found:
            ledger = self.open_files.get(summary.ledger_id)
            if not summary.sealed and ledger is not None:
                index = ledger.index
                summary.entries, summary.size = index.entries, index.end
                summary.last_offset, summary.max_timestamp = index.next_offset - 1, index.max_timestamp
        return list(found)

    async def cursors(self) -> CursorStore:
        if self._cursors is None:
            made = KeptCursors(self, self._engine.cursor_keeper)
            await made.load()
            self._cursors = self._cursors or made  # somebody may have been quicker
        return self._cursors

    @property
    def has_cursors(self) -> bool:
        """Whether anybody asked for its cursors."""
        return self._cursors is not None

    async def save_cursors(self) -> None:
        """Keep what is known of its cursors, as far as that can be kept."""
        if self._cursors is not None:
            try:
                await self._cursors.save()
            except LedgerError as error:
                _log.error("cursors of %s cannot be kept: %s", self.name, error)
            self._cursors.close()

    async def end_cursors(self) -> None:
        """Have nothing more written of its cursors."""
        if self._cursors is not None:
            await self._cursors.end()

    def size(self) -> int:
        return sum(summary.size for summary in self.ledgers())

    # -- the end -----------------------------------------------------------------------------------------------

    async def close(self) -> None:
        if self._closed is None:
            await self._engine.close_some([self])

    @property
    def is_unused(self) -> bool:
        """Whether nobody listens to it, and nothing of it is on its way."""
        return (
            self._closed is None
            and not self.watchers
            and self.on_visible is None
            and not self._compactor.running.locked()
            and not self.ledger_list.changing.locked()
            and self.high_watermark == self.log_end_offset
        )

    def _lost(self, reason: LedgerError) -> None:
        """Another owner took it over, or what the metadata store has of it is not known."""
        if self._closed is None:
            self._closed = reason
            self._engine.drop_lost(self)
        self._closed = reason

    def stop(self) -> None:
        """Take no more appends."""
        if self._closed is None:
            self._closed = LedgerClosed(f"managed ledger {self.name} is closed")

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

    def tell_closed(self) -> None:
        """Tell whoever holds it why it takes and gives nothing any more; each is told once."""
        reason = self._closed
        assert reason is not None
        self.ledger_list.end(reason)
        holders, self.on_closed = self.on_closed, []
        for holder in holders:
            try:
                holder(reason)
            except Exception:  # the others have to learn of it all the same
                _log.exception("a holder of %s failed when it was closed", self.name)

    def last_checkpoint(self) -> Checkpoint | None:
        """Return what is still to be kept at a clean end, if anything is."""
        if type(self._closed) is not LedgerClosed or self.is_deleted:
            return None
        return self.checkpoints.last()

    def let_files_go(self) -> None:
        for ledger in self.open_files.values():
            self._engine.files.forget(ledger.path)
        self.open_files.clear()

    def abandon(self) -> None:
        """Stop at once, because the managed ledger is deleted; its files go when nothing writes beside them."""
        self._closed = LedgerClosed(f"managed ledger {self.name} was deleted")
        self.is_deleted = True
        self.let_files_go()
        self._engine.background(self._remove(self._every_file()))
        self.tell_moved()
        self.tell_closed()

    def _every_file(self) -> list[int]:
        info = self.ledger_list.info
        draft = info.properties.get(COMPACTING)
        return [summary.ledger_id for summary in info.files()] + ([int(draft)] if draft else [])
