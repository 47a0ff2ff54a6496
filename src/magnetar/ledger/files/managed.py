"""A managed ledger of the files engine: the ledgers of one partition, the last of them open for appends."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from magnetar.ledger.boot import UNKNOWN_BOOT
from magnetar.ledger.errors import (
    LedgerClosed,
    LedgerError,
    LedgerFenced,
    LedgerTerminated,
    OffsetOutOfRange,
    StorageFailed,
    StorageFull,
)
from magnetar.ledger.files.compacting import COMPACTING, CompactingLedger
from magnetar.ledger.files.layout import index_path, ledger_path
from magnetar.ledger.files.lazy import LazyAppends
from magnetar.ledger.files.leases import needed_offset
from magnetar.ledger.files.ledger_file import LedgerFile, as_storage_error
from magnetar.ledger.files.recovery import Recovery, describe
from magnetar.ledger.files.sparse import Mark, SparseIndex
from magnetar.ledger.info import ManagedLedgerInfo, encode_info, path_of
from magnetar.ledger.port import (
    Done,
    Flush,
    Gathered,
    LedgerPolicy,
    LedgerSummary,
    Pending,
    Position,
    Snapshot,
    TakenBack,
)
from magnetar.metadata.errors import BadVersion, MetadataError, MetadataFull, NotFound
from magnetar.records.batch import UNKNOWN_TIME
from magnetar.records.compression import Buffer
from magnetar.records.entry import broker_entry_head

if TYPE_CHECKING:
    from magnetar.ledger.files.engine import FilesEngine

CHECKPOINT_BYTES = 64 << 20
CHECKPOINT_ENTRIES = 20_000
_OFFSET = struct.Struct(">Q")
_LEFT = "left_ledger"  # of the metadata's properties: the open ledger, which takes no more entries
_log = logging.getLogger("magnetar.ledger")


class Words(NamedTuple):
    """What is to be kept beside a ledger: ``key`` (ledger id, end, snapshot) tells whether it was kept already."""

    key: tuple[int, int, bytes]
    ledger: Path
    path: Path
    points: SparseIndex
    snapshot: bytes


class FilesManagedLedger(CompactingLedger):
    """See ``ManagedLedger``. All methods run on the event loop; disk waits run in the engine's threads."""

    def __init__(self, engine: FilesEngine, name: str, policy: LedgerPolicy, info: ManagedLedgerInfo) -> None:
        self.name = name
        self.policy = policy
        self.snapshot = None
        self.on_visible = None
        self.on_taken_back = []
        self.watchers = []
        self.on_closed = []
        self.take_snapshot = None
        self._engine = engine
        self._info = info
        self._version = -1
        self._open_files: dict[int, LedgerFile] = {}
        self._writer: LedgerFile | None = None
        self._is_deleted = False
        self._closed: LedgerClosed | LedgerFenced | None = None
        self._keeping = asyncio.Lock()  # one index of this log is written at a time, in order
        # Ledger id, end and snapshot of what was kept last, if the ledger was flushed for it.
        self._kept: tuple[int, int, bytes] | None = None
        self._lazy = LazyAppends(engine, self, self._made_durable)
        self._unsealed: list[tuple[LedgerFile, Words]] = []
        """Full ledgers that could not be sealed yet."""
        self._gathered: list[Buffer] = []
        self._gathered_from: Mark | None = None
        self._gathered_done: Done | None = None
        self._boot = info.properties.get("boot")
        self._checked_bytes = 0
        self._checked_entries = 0
        self._begin()
        self.log_start_offset = self.log_end_offset = self.high_watermark = 0

    # -- opening -----------------------------------------------------------------------------------------------

    def adopt(self, version: int, last: LedgerFile | None, recovery: Recovery) -> None:
        """Take over the metadata's version, the open ledger, and what recovery found."""
        self._version = version
        self._writer = last
        self.log_end_offset = int(self._info.properties.get("next_offset", 0))
        self.log_start_offset = int(self._info.properties.get("first_offset", 0))
        if last is not None:
            self._open_files[last.ledger_id] = last
            if recovery.is_lazy:
                self._lazy.files.add(last)
            if recovery.may_have_lost:
                self._info.properties[_LEFT] = str(last.ledger_id)
            # Not the end of what was read: one crash after the other would each read what all before it had read.
            self._checked_bytes, self._checked_entries = recovery.checked
            self.log_end_offset = max(self.log_end_offset, last.index.next_offset)
        elif self._info.ledgers:
            self.log_end_offset = max(self.log_end_offset, self._info.ledgers[-1].last_offset + 1)
        self.high_watermark = self.log_end_offset
        self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
        self._adopt_snapshot(recovery.kept)

    def _adopt_snapshot(self, kept: tuple[int, int, bytes] | None) -> None:
        if kept is None or len(kept[2]) < _OFFSET.size:
            return
        (offset,) = _OFFSET.unpack_from(kept[2])
        if offset > self.log_end_offset:  # it speaks of messages that were lost with the power
            return
        self._kept = kept
        if data := kept[2][_OFFSET.size :]:
            self.snapshot = Snapshot(offset, data)

    # -- appending ---------------------------------------------------------------------------------------------

    def append(
        self,
        message: Sequence[Buffer],
        *,
        messages: int,
        timestamp_ms: int,
        earliest_ms: int = UNKNOWN_TIME,
    ) -> Pending:
        assert messages > 0
        if self._closed is not None:
            raise self._closed
        if self._info.terminated is not None:
            raise LedgerTerminated("the topic was terminated: it takes no more messages")
        engine = self._engine
        now_ms = engine.clock()
        flush = self.policy.flush
        if flush is Flush.always and engine.journal.failed is not None:
            raise engine.journal.failed
        # While the journal alone could not bring it back, `_journal` says when it is durable.
        gathers = engine.gathers and not (flush is Flush.always and self._lazy.files)
        assert gathers or self._gathered_from is None, "a log's policy stays as it is within a gathering"
        if engine.refused and self in engine.refused:
            raise engine.refused[self]  # within this gathering: what came before was taken back
        writer = self._writable(now_ms)
        if self._boot != engine.boot:
            self.save()  # from here on a power loss of this boot may tear what is written
        for interceptor in engine.interceptors:
            message = interceptor.before_append(self, message, messages)
            earliest_ms = UNKNOWN_TIME  # it may have put in other messages
        base_offset = self.log_end_offset
        last_offset = base_offset + messages - 1
        head = broker_entry_head(now_ms, last_offset)
        position = Position(writer.ledger_id, writer.index.entries)
        mark = self._gathered_from or writer.index.mark()  # it need not be made for each
        parts = writer.add(
            head, list(message), messages=messages, timestamp_ms=timestamp_ms, earliest_ms=earliest_ms
        )
        self.log_end_offset = last_offset + 1
        if not gathers:
            return Pending(base_offset, self._write(writer, mark, parts), position)
        if self._gathered_from is None:
            self._gathered_from = mark
            self._gathered_done = (Done if flush is Flush.always else Gathered)(loop=engine.loop)
            engine.gather(self)
        self._gathered += parts
        return Pending(base_offset, self._gathered_done, position)

    def write_gathered(self) -> LedgerError | None:
        """Write what was gathered, or take it back and say why."""
        mark, parts, writer, done = (
            self._gathered_from,
            self._gathered,
            self._writer,
            self._gathered_done,
        )
        if mark is None or writer is None or done is None:
            return None
        self._gathered_from, self._gathered, self._gathered_done = None, [], None
        try:
            self._write(writer, mark, parts, done)
        except LedgerError as error:
            self._engine.refused[self] = error
            self._tell_taken_back(TakenBack(mark.next_offset, error))
            self._engine.settle_later(done, error)
            return error
        if isinstance(done, Gathered):
            self._engine.settle_later(done, None)
        return None

    def _tell_taken_back(self, what: TakenBack) -> None:
        for holder in tuple(self.on_taken_back):
            try:
                holder(what)
            except Exception:  # the others have to learn of it all the same
                _log.exception("a holder of %s failed when appends were taken back", self.name)

    def _write(
        self, writer: LedgerFile, mark: Mark, parts: list[Buffer], done: Done | None = None
    ) -> Done | None:
        """Write what was added since ``mark``; return what tells when it is durable, if it has to be.

        That is ``done`` where it is given. Raises ``LedgerError`` with all as it was at ``mark``.
        """
        durable = None
        try:
            writer.write(parts, mark.end)
            if self.policy.flush is Flush.always:
                durable = self._journal(writer, mark.end, parts, done)
        except Exception as error:
            writer.take_back(mark)
            self.log_end_offset = mark.next_offset
            if isinstance(error, LedgerError):
                raise
            if not isinstance(error, OSError):
                _log.exception("a write to ledger %d failed", writer.ledger_id)
            raise as_storage_error(error) from error
        if self.policy.flush is not Flush.always:
            self._lazy.files.add(writer)
            if self.policy.flush is Flush.interval:
                self._engine.flush_soon(writer.path)
            self._made_durable(self.log_end_offset)
        if writer.index.end - self._checked_bytes >= CHECKPOINT_BYTES or (
            writer.index.entries - self._checked_entries >= CHECKPOINT_ENTRIES
        ):
            self.checkpoint()
        return durable

    def _journal(self, writer: LedgerFile, at: int, parts: list[Buffer], done: Done | None) -> Done:
        if self._lazy.files:
            assert done is None, "nothing is gathered behind what the journal alone could not bring back"
            # What lies before it was never made durable: the journal alone could not bring this one back.
            self._lazy.files.add(writer)
            return self._lazy.durable()
        return self._engine.journal.append(
            writer.ledger_id, at, writer.index.end - at, parts, self._made_durable, self.log_end_offset, done
        )

    def _made_durable(self, next_offset: int) -> None:
        if next_offset > self.high_watermark:
            self.high_watermark = next_offset
            self._tell()

    def _tell(self) -> None:
        if self.on_visible is not None:
            self.on_visible()
        for watcher in self.watchers:
            watcher()

    def _writable(self, now_ms: int) -> LedgerFile:
        """Give the open ledger, or a new one where there is none yet or the last one has had its time."""
        writer, policy = self._writer, self.policy
        if writer is None:
            return self._roll(now_ms)
        index = writer.index
        full = index.end >= policy.max_ledger_bytes > 0 or index.entries >= policy.max_ledger_entries > 0
        aged = now_ms - self._info.ledgers[-1].created_ms >= policy.max_ledger_ms > 0
        is_left = _LEFT in self._info.properties
        if not is_left and (not index.entries or not (full or aged)):
            return writer
        if (error := self.write_gathered()) is not None:
            raise error
        return self._roll(now_ms)

    def _roll(self, now_ms: int) -> LedgerFile:
        """Open a new ledger for appends, and have the old one sealed in the background."""
        assert self._gathered_from is None
        engine, old = self._engine, self._writer
        words = None if old is None else self._words(old)
        summary = LedgerSummary(engine.new_ledger_id(), self.log_end_offset, created_ms=now_ms)
        LedgerFile.create(engine.disk, ledger_path(engine.root, summary.ledger_id), summary.ledger_id, now_ms)
        self._info.ledgers.append(summary)
        was_left = self._info.properties.pop(_LEFT, None)
        try:
            self.save()
        except BaseException:
            self._info.ledgers.pop()
            if was_left is not None:
                self._info.properties[_LEFT] = was_left
            engine.remove_later([summary.ledger_id])
            raise
        new = engine.ledger_file(summary.ledger_id, self.log_end_offset)
        self._writer = self._open_files[summary.ledger_id] = new
        self._checked_bytes, self._checked_entries = new.index.end, 0
        if old is not None and words is not None:
            self._sealing = engine.background(self._seal(old, words))
        return new

    async def _seal(self, old: LedgerFile, words: Words) -> None:
        """Make a ledger that is full durable, keep its index, and note in the metadata that it is whole."""
        async with self._keeping:
            summary = next((s for s in self._info.ledgers if s.ledger_id == old.ledger_id), None)
            if summary is None or self._is_deleted:
                return
            try:
                await self._engine.keep([words])
            except LedgerError:
                self._unsealed.append((old, words))
                raise
            self._kept = words.key
            self._lazy.files.discard(old)
            if not self._is_deleted:
                describe(summary, old.index)
                self.save()

    def checkpoint(self) -> None:
        """Keep, in the background, the index of the open ledger, so that recovery need not read it from its start."""
        writer = self._writer
        if writer is not None:
            self._checked_bytes, self._checked_entries = writer.index.end, writer.index.entries
            # Where nobody asked for flushes, they would only cost: what was not flushed outlives all but a power loss.
            flushes = self.policy.flush is not Flush.os or self._engine.boot == UNKNOWN_BOOT
            self._engine.background(self._keep_index(writer, flushes=flushes))

    async def _keep_index(self, ledger: LedgerFile, *, flushes: bool = True) -> None:
        async with self._keeping:
            if ledger is not self._writer or self._is_deleted:
                return  # its last index is kept when it is sealed
            words = self._words(ledger)
            if words.key == self._kept:
                return
            if flushes:
                await self._engine.keep([words])
                self._kept = words.key
            else:
                await self._engine.keep_for_this_boot(words)
                self._kept = None

    def _words(self, ledger: LedgerFile) -> Words:
        """Give what the index of the open ledger would say now, with what the log's owner adds."""
        if self.take_snapshot is not None:
            self.snapshot = Snapshot(self.log_end_offset, self.take_snapshot())
        offset, snapshot = self.snapshot or Snapshot(0, b"")
        data = _OFFSET.pack(offset) + snapshot
        index = ledger.index
        key = (ledger.ledger_id, index.end, data)
        path = index_path(self._engine.root, ledger.ledger_id)
        return Words(key, ledger.path, path, index, data)

    def save(self) -> None:
        """Write the list of ledgers; raise ``LedgerFenced`` when somebody else wrote it meanwhile."""
        properties = self._info.properties
        properties["next_offset"] = str(
            self._info.ledgers[-1].first_offset if self._info.ledgers else self.log_end_offset
        )
        properties["first_offset"] = str(self.log_start_offset)
        properties["boot"] = self._boot = self._engine.boot
        try:
            self._version = self._engine.metadata.put(
                path_of(self.name), encode_info(self._info), self._version
            )
        except (BadVersion, NotFound) as error:
            was_open = self._closed is None
            self._closed = fenced = LedgerFenced(f"managed ledger {self.name} has another owner: {error}")
            if was_open:
                self._engine.drop_fenced(self)
            raise fenced from error
        except MetadataError as error:
            raise metadata_failed(error) from error

    # -- keeping and letting go --------------------------------------------------------------------------------

    def trim(self, before: int) -> None:
        if before > self.high_watermark or before < 0:
            raise OffsetOutOfRange(f"cannot trim before {before}: the end is {self.high_watermark}")
        if self._closed is not None:
            raise self._closed
        if before > self.log_start_offset:
            self._trim_copies(before)
            self._let_go(before, lambda summary: summary.last_offset < before)

    def retain(self, now_ms: int) -> None:
        policy, last = self.policy, self._writer
        if self._closed is not None or not self._info.ledgers:
            return
        unsealed, self._unsealed = self._unsealed, []
        for old, words in unsealed:  # the disk may let us by now, and what is not sealed never goes
            self._sealing = self._engine.background(self._seal(old, words))
        try:
            if last is not None and last.index.entries and self._is_past(self.ledgers()[-1], now_ms):
                self._roll(now_ms)
            elif last is not None and last.index.entries:
                self._writable(now_ms)
        except StorageFull:
            pass  # all the more reason to let go of old ledgers
        excess = self.size() - policy.retention_bytes if policy.retention_bytes >= 0 else -1
        needed = needed_offset(self._engine.root, self.name, now_ms)

        def done_with(summary: LedgerSummary) -> bool:
            nonlocal excess
            excess -= summary.size
            if needed is not None and summary.last_offset >= needed:
                return False
            return self._is_past(summary, now_ms) or excess >= 0

        self._let_go(self.log_start_offset, done_with)

    def _is_past(self, summary: LedgerSummary, now_ms: int) -> bool:
        latest = summary.max_timestamp if summary.max_timestamp >= 0 else summary.created_ms
        return self.policy.retention_ms >= 0 and latest < now_ms - self.policy.retention_ms

    def _let_go(self, first_offset: int, done_with: Callable[[LedgerSummary], bool]) -> None:
        """Begin at ``first_offset``; delete sealed ledgers from the oldest on, as long as ``done_with`` says so."""
        ledgers, was_first = self._info.ledgers, self.log_start_offset
        count = 0
        while count < len(ledgers) - 1 and self._may_go(ledgers[count]) and done_with(ledgers[count]):
            count += 1
        dropped = ledgers[:count]
        del ledgers[:count]
        self.log_start_offset = max(first_offset, ledgers[0].first_offset) if dropped else first_offset
        if not dropped and self.log_start_offset == was_first:
            return
        compacted = self._info.compacted
        gone = [summary.ledger_id for summary in dropped if not summary.compacted]
        if any(summary.compacted for summary in dropped):
            gone += self._forget_copies()
        try:
            self.save()
        except BaseException:
            ledgers[:0], self._info.compacted = dropped, compacted
            self.log_start_offset = was_first
            raise
        for ledger_id in gone:
            self._open_files.pop(ledger_id, None)
        if gone:
            self._engine.background(self._remove(gone))
        self._tell()

    def _may_go(self, summary: LedgerSummary) -> bool:
        return summary.sealed and summary.last_offset < self.high_watermark

    async def _remove(self, ledger_ids: list[int]) -> None:
        """Delete ledgers, after the owner's snapshot, which may lie beside them, was kept elsewhere."""
        if self._writer is not None:
            await self._keep_index(self._writer)
        async with self._keeping:
            self._engine.remove_later(ledger_ids)

    @property
    def terminated(self) -> Position | None:
        return self._info.terminated

    def terminate(self) -> Position:
        if self._closed is not None:
            raise self._closed
        if (error := self.write_gathered()) is not None:
            raise error
        if self._info.terminated is None:
            ledgers = self.ledgers()
            last = Position(ledgers[-1].ledger_id, ledgers[-1].entries - 1) if ledgers else Position(-1, -1)
            self._info.terminated = last
            try:
                self.save()
            except BaseException:
                self._info.terminated = None
                raise
        return self._info.terminated

    def ledgers(self) -> list[LedgerSummary]:
        for summary in self._info.ledgers:
            ledger = self._open_files.get(summary.ledger_id)
            if not summary.sealed and ledger is not None:
                index = ledger.index
                summary.entries, summary.size = index.entries, index.end
                summary.last_offset, summary.max_timestamp = index.next_offset - 1, index.max_timestamp
        return list(self._info.ledgers)

    def size(self) -> int:
        return sum(summary.size for summary in self.ledgers())

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
            and self.high_watermark == self.log_end_offset
        )

    def stop(self) -> None:
        """Take no more appends."""
        if self._closed is None:
            self._closed = LedgerClosed(f"managed ledger {self.name} is closed")

    async def quiet(self) -> None:
        """Wait until nothing of this log is being written in the background."""
        async with self._keeping:
            pass

    async def ended(self) -> None:
        """Wait, after ``stop``, until a compaction has given up and nothing is written in the background."""
        async with self._compactor.running:
            await self.quiet()

    def tell_closed(self) -> None:
        """Tell whoever holds it why it takes and gives nothing any more; each is told once."""
        reason = self._closed
        assert reason is not None
        holders, self.on_closed = self.on_closed, []
        for holder in holders:
            try:
                holder(reason)
            except Exception:  # the others have to learn of it all the same
                _log.exception("a holder of %s failed when it was closed", self.name)

    def last_words(self) -> Words | None:
        """Give what is still to be kept at a clean end, if anything is."""
        if self._writer is None or isinstance(self._closed, LedgerFenced) or self._is_deleted:
            return None
        words = self._words(self._writer)
        same = words.key == self._kept and self._info.properties.get("closed_at") == closed_mark(words.key)
        return None if same else words

    def note_closed(self, words: Words) -> None:
        """Note in the metadata up to where the open ledger is whole and durable."""
        self._kept = words.key
        self._info.properties["closed_at"] = closed_mark(words.key)
        self.save()

    def let_files_go(self) -> None:
        for ledger in self._open_files.values():
            self._engine.files.forget(ledger.path)
        self._open_files.clear()

    def abandon(self) -> None:
        """Stop at once, because the managed ledger is deleted; its files go when nothing writes beside them."""
        self._closed = LedgerClosed(f"managed ledger {self.name} was deleted")
        self._is_deleted = True
        self.let_files_go()
        self._engine.background(self._remove(self._every_file()))
        self._tell()
        self.tell_closed()

    def _every_file(self) -> list[int]:
        draft = self._info.properties.get(COMPACTING)
        return [summary.ledger_id for summary in self._info.files()] + ([int(draft)] if draft else [])


def closed_mark(key: tuple[int, int, bytes]) -> str:
    """Give the text that ``closed_at`` reads."""
    return f"{key[0]}:{key[1]}"


def metadata_failed(error: MetadataError) -> StorageFull | StorageFailed:
    """Say in storage's words what the metadata store said."""
    words = f"the metadata store failed: {error}"
    return StorageFull(words) if isinstance(error, MetadataFull) else StorageFailed(words)
