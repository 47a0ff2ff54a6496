"""A managed ledger of the files engine: the ledgers of one partition, the last of them open for appends."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from magnetar.ledger.errors import (
    LedgerClosed,
    LedgerFenced,
    LedgerNotFound,
    OffsetOutOfRange,
    StorageFailed,
    StorageFull,
)
from magnetar.ledger.files.layout import index_path, ledger_path
from magnetar.ledger.files.ledger_file import LedgerFile
from magnetar.ledger.info import ManagedLedgerInfo, encode_info, path_of
from magnetar.ledger.port import (
    Appended,
    Flush,
    LedgerPolicy,
    LedgerSummary,
    ManagedLedger,
    Position,
    StoredEntry,
)
from magnetar.metadata.errors import BadVersion, MetadataError, NotFound
from magnetar.records.compression import Buffer
from magnetar.records.entry import broker_entry_head, latest_timestamp

if TYPE_CHECKING:
    from magnetar.ledger.files.engine import FilesEngine

CHECKPOINT_BYTES = 64 << 20
CHECKPOINT_ENTRIES = 50_000


class FilesManagedLedger(ManagedLedger):
    """See ``ManagedLedger``. All methods run on the event loop; disk waits run in the engine's threads."""

    def __init__(self, engine: FilesEngine, name: str, policy: LedgerPolicy, info: ManagedLedgerInfo) -> None:
        self.name = name
        self.policy = policy
        self.attachment = b""
        self.attachment_offset = 0
        self.on_visible = None
        self.attach = None
        self._engine = engine
        self._info = info
        self._version = -1
        self._open_files: dict[int, LedgerFile] = {}
        self._writer: LedgerFile | None = None
        self._closed: LedgerClosed | LedgerFenced | None = None
        self._checked_bytes = 0
        self._checked_entries = 0
        self.next_offset = int(info.properties.get("next_offset", 0))
        self.first_offset = int(info.properties.get("first_offset", 0))
        self.visible_offset = self.next_offset

    # -- opening -----------------------------------------------------------------------------------------------

    def adopt(self, version: int, last: LedgerFile | None) -> None:
        """Take over what recovery found: the metadata's version, and the open ledger with its index."""
        self._version = version
        self._writer = last
        if last is not None:
            self._open_files[last.ledger_id] = last
            self._checked_bytes, self._checked_entries = last.index.end, last.index.entries
            self.next_offset = max(self.next_offset, last.index.next_offset)
        elif self._info.ledgers:
            self.next_offset = max(self.next_offset, self._info.ledgers[-1].last_offset + 1)
        self.visible_offset = self.next_offset
        self.first_offset = min(self.first_offset, self.next_offset)

    def adopt_attachment(self, data: bytes) -> None:
        """Take over what an index file carries for the log's owner."""
        if len(data) >= 8:
            (self.attachment_offset,) = struct.unpack_from(">Q", data)
            self.attachment = data[8:]

    # -- appending ---------------------------------------------------------------------------------------------

    def append(self, message: Sequence[Buffer], *, messages: int, timestamp_ms: int) -> Appended:
        assert messages > 0
        if self._closed is not None:
            raise self._closed
        engine = self._engine
        now_ms = engine.clock()
        flush = self.policy.flush
        if flush is Flush.always and engine.journal.failed is not None:
            raise engine.journal.failed
        writer = self._writable(now_ms)
        base_offset = self.next_offset
        last_offset = base_offset + messages - 1
        head = broker_entry_head(now_ms, last_offset)
        written = writer.append(head, list(message), messages=messages, timestamp_ms=timestamp_ms)
        self.next_offset = last_offset + 1
        position = Position(writer.ledger_id, written.entry_id)
        durable = None
        if flush is Flush.always:
            durable = engine.journal.append(
                writer.ledger_id,
                written.at,
                written.length,
                written.parts,
                self._made_durable,
                self.next_offset,
            )
        else:
            if flush is Flush.interval:
                engine.flush_soon(writer.path)
            self._made_durable(self.next_offset)
        if writer.index.end - self._checked_bytes >= CHECKPOINT_BYTES or (
            writer.index.entries - self._checked_entries >= CHECKPOINT_ENTRIES
        ):
            self.checkpoint()
        return Appended(position, base_offset, durable)

    def _made_durable(self, next_offset: int) -> None:
        if next_offset > self.visible_offset:
            self.visible_offset = next_offset
            if self.on_visible is not None:
                self.on_visible()

    def _writable(self, now_ms: int) -> LedgerFile:
        """Give the open ledger, or a new one where there is none yet or the last one has had its time."""
        writer, policy = self._writer, self.policy
        if writer is None:
            return self._roll(now_ms)
        index = writer.index
        full = index.end >= policy.max_ledger_bytes > 0 or index.entries >= policy.max_ledger_entries > 0
        aged = now_ms - self._info.ledgers[-1].created_ms >= policy.max_ledger_ms > 0
        return self._roll(now_ms) if index.entries and (full or aged) else writer

    def _roll(self, now_ms: int) -> LedgerFile:
        """Open a new ledger for appends, and have the old one sealed in the background."""
        engine, old = self._engine, self._writer
        summary = LedgerSummary(engine.new_ledger_id(), self.next_offset, created_ms=now_ms)
        LedgerFile.create(engine.disk, ledger_path(engine.root, summary.ledger_id), summary.ledger_id, now_ms)
        self._info.ledgers.append(summary)
        try:
            self._save()
        except BaseException:
            self._info.ledgers.pop()
            engine.remove_later([summary.ledger_id])
            raise
        new = engine.ledger_file(summary.ledger_id, self.next_offset)
        self._writer = self._open_files[summary.ledger_id] = new
        self._checked_bytes, self._checked_entries = new.index.end, 0
        if old is not None:
            engine.background(self._seal(old))
        return new

    async def _seal(self, old: LedgerFile) -> None:
        """Make a ledger that is no longer written durable, keep its index, and note in the metadata that it is whole."""
        await self._keep_index(old)
        summary = next((s for s in self._info.ledgers if s.ledger_id == old.ledger_id), None)
        if summary is None or self._closed is not None:
            return  # trimmed or deleted meanwhile
        describe(summary, old)
        self._save()

    def checkpoint(self) -> None:
        """Keep, in the background, the index of the open ledger, so that recovery need not read it from its start."""
        writer = self._writer
        if writer is None:
            return
        self._checked_bytes, self._checked_entries = writer.index.end, writer.index.entries
        self._engine.background(self._keep_index(writer))

    async def _keep_index(self, ledger: LedgerFile) -> None:
        owned = self.attach() if self.attach is not None else self.attachment
        at = self.next_offset if self.attach is not None else self.attachment_offset
        data = ledger.index.encode(struct.pack(">Q", at) + owned)
        disk, path = self._engine.disk, index_path(self._engine.root, ledger.ledger_id)

        def keep() -> None:
            disk.sync([ledger.path])
            disk.replace(path, data)

        await self._engine.in_thread(keep)

    def _save(self) -> None:
        """Write the list of ledgers; raise ``LedgerFenced`` when somebody else wrote it meanwhile."""
        properties = self._info.properties
        properties["next_offset"] = str(
            self._info.ledgers[-1].first_offset if self._info.ledgers else self.next_offset
        )
        properties["first_offset"] = str(self.first_offset)
        try:
            self._version = self._engine.metadata.put(
                path_of(self.name), encode_info(self._info), self._version
            )
        except (BadVersion, NotFound) as error:
            self._closed = LedgerFenced(f"managed ledger {self.name} has another owner: {error}")
            raise self._closed from error
        except MetadataError as error:
            raise _as_ledger_error(error) from error

    # -- reading -----------------------------------------------------------------------------------------------

    async def read(self, offset: int, *, max_bytes: int, up_to: int | None = None) -> list[StoredEntry]:
        up_to = self.visible_offset if up_to is None else min(up_to, self.visible_offset)
        if not self.first_offset <= offset <= self.next_offset:
            raise OffsetOutOfRange(f"offset {offset} is not in [{self.first_offset}, {self.next_offset}]")
        if offset >= up_to:
            return []
        ledgers = self._info.ledgers
        which = bisect_right(ledgers, offset, key=lambda ledger: ledger.first_offset) - 1
        while 0 <= which < len(ledgers):
            ledger = await self._ledger(ledgers[which])
            if offset < ledger.index.next_offset:
                return await ledger.read(offset, max_bytes=max_bytes, up_to=up_to)
            which += 1
        return []

    async def _ledger(self, summary: LedgerSummary) -> LedgerFile:
        found = self._open_files.get(summary.ledger_id)
        if found is None:
            found = await self._engine.open_sealed(summary)
            self._open_files[summary.ledger_id] = found
        return found

    async def entry(self, position: Position) -> StoredEntry:
        for summary in self._info.ledgers:
            if summary.ledger_id == position.ledger_id:
                return await (await self._ledger(summary)).read_entry(position.entry_id)
        raise LedgerNotFound(f"{self.name} has no ledger {position.ledger_id}")

    async def find_by_time(self, timestamp_ms: int) -> StoredEntry | None:
        for summary in list(self._info.ledgers):
            if summary.sealed and summary.max_timestamp < timestamp_ms:
                continue
            ledger = await self._ledger(summary)
            if ledger.index.max_timestamp < timestamp_ms:
                continue
            at, entry_id = ledger.index.before_time(timestamp_ms)
            found = await ledger.find(
                at, entry_id, lambda e: self._is_read(e) and latest_timestamp(e.data) >= timestamp_ms
            )
            if found is not None:
                return found if found.last_offset < self.visible_offset else None
        return None

    def _is_read(self, entry: StoredEntry) -> bool:
        return entry.last_offset >= self.first_offset

    async def find_max_timestamp(self) -> StoredEntry | None:
        latest = max((s.max_timestamp for s in self.ledgers()), default=-1)
        while latest >= 0:
            found = await self.find_by_time(latest)
            if found is not None:
                return found
            # What holds the latest one is not visible yet, or was trimmed: walk what is left.
            latest = await self._latest_visible()
        return None

    async def _latest_visible(self) -> int:
        latest, offset = -1, self.first_offset
        while entries := await self.read(offset, max_bytes=1 << 20):
            latest = max(latest, *(latest_timestamp(entry.data) for entry in entries))
            offset = entries[-1].last_offset + 1
        return latest

    async def find_first(self, wanted: Callable[[StoredEntry], bool]) -> StoredEntry | None:
        low, high, best = self.first_offset, self.visible_offset, None
        while low < high:
            entries = await self.read((low + high) // 2, max_bytes=1)
            if not entries:
                break
            if wanted(entries[0]):
                best, high = entries[0], min((low + high) // 2, entries[0].last_offset)
                base = await self._base_of(entries[0])
                high = min(high, base)
            else:
                low = entries[0].last_offset + 1
        return best

    async def _base_of(self, entry: StoredEntry) -> int:
        """Give the offset of an entry's first message: one behind the entry before it."""
        if entry.entry_id == 0:
            return next(s.first_offset for s in self._info.ledgers if s.ledger_id == entry.ledger_id)
        return (await self.entry(Position(entry.ledger_id, entry.entry_id - 1))).last_offset + 1

    # -- keeping and letting go --------------------------------------------------------------------------------

    def trim(self, before: int) -> None:
        if before > self.visible_offset or before < 0:
            raise OffsetOutOfRange(f"cannot trim before {before}: the end is {self.visible_offset}")
        if before <= self.first_offset:
            return
        self.first_offset = before
        self._drop(lambda summary: summary.last_offset < before)

    def retain(self, now_ms: int) -> None:
        policy, last = self.policy, self._writer
        if self._closed is not None or not self._info.ledgers:
            return
        if last is not None and last.index.entries and self._is_past(last.index.max_timestamp, now_ms):
            self._roll(now_ms)
        elif last is not None and last.index.entries:
            self._writable(now_ms)
        excess = self.size() - policy.retention_bytes if policy.retention_bytes >= 0 else -1

        def done_with(summary: LedgerSummary) -> bool:
            nonlocal excess
            excess -= summary.size
            return self._is_past(summary.max_timestamp, now_ms) or excess >= 0

        self._drop(done_with)

    def _is_past(self, timestamp_ms: int, now_ms: int) -> bool:
        return self.policy.retention_ms >= 0 and timestamp_ms < now_ms - self.policy.retention_ms

    def _drop(self, done_with: Callable[[LedgerSummary], bool]) -> None:
        """Delete sealed ledgers from the oldest on, as long as ``done_with`` says so; then tell the readers."""
        ledgers = self._info.ledgers
        count = 0
        while count < len(ledgers) - 1 and ledgers[count].sealed and done_with(ledgers[count]):
            count += 1
        dropped = ledgers[:count]
        if dropped:
            self.checkpoint()  # the dropped ones may hold the owner's last attachment
            del ledgers[:count]
            self.first_offset = max(self.first_offset, ledgers[0].first_offset)
        self._save()
        for summary in dropped:
            self._open_files.pop(summary.ledger_id, None)
        self._engine.remove_later([summary.ledger_id for summary in dropped])
        if self.on_visible is not None:
            self.on_visible()

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
        if self._closed is not None:
            return
        self._closed = LedgerClosed(f"managed ledger {self.name} is closed")
        writer = self._writer
        if writer is not None and (self._dirty(writer) or self.attach is not None):
            await self._keep_index(writer)
            self._info.properties["closed_at"] = f"{writer.ledger_id}:{writer.index.end}"
            self._save()
        for ledger in self._open_files.values():
            self._engine.files.forget(ledger.path)
        self._open_files.clear()

    def _dirty(self, writer: LedgerFile) -> bool:
        return self._info.properties.get("closed_at") != f"{writer.ledger_id}:{writer.index.end}"

    def abandon(self) -> list[int]:
        """Stop at once, because the managed ledger is deleted; give the ids of its ledgers."""
        self._closed = LedgerClosed(f"managed ledger {self.name} was deleted")
        self._open_files.clear()
        if self.on_visible is not None:
            self.on_visible()
        return [summary.ledger_id for summary in self._info.ledgers]


def describe(summary: LedgerSummary, ledger: LedgerFile) -> None:
    """Fill in what is known of a ledger that will not change any more."""
    index = ledger.index
    summary.entries, summary.size = index.entries, index.end
    summary.last_offset, summary.max_timestamp = index.next_offset - 1, index.max_timestamp
    summary.sealed = True


def closed_at(info: ManagedLedgerInfo, ledger_id: int) -> int:
    """Give up to where this ledger's file was whole at the last clean close (0: not known)."""
    ledger, _, end = info.properties.get("closed_at", "").partition(":")
    return int(end) if ledger == str(ledger_id) and end.isdecimal() else 0


def _as_ledger_error(error: MetadataError) -> StorageFull | StorageFailed:
    words = f"the metadata store failed: {error}"
    return StorageFull(words) if "full" in str(error) else StorageFailed(words)
