"""Reading from a managed ledger of the files engine: which of its ledgers has the requested offset.

What was compacted is read from the compacted ledger, whose copies go by the positions of their originals.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from magnetar.ledger.errors import LedgerNotFound, OffsetOutOfRange
from magnetar.ledger.files.ledger_file import LedgerFile
from magnetar.ledger.files.shared import EngineParts
from magnetar.ledger.files.state import LogState
from magnetar.ledger.formats.info import ManagedLedgerInfo
from magnetar.ledger.looking import base_offset, each_looked_at, looked_at, newest
from magnetar.ledger.port import Compacted, LedgerSummary, Position, StoredEntry
from magnetar.records.copied import copied_from
from magnetar.records.entry import latest_timestamp

TRIMMED = "compacted_from"
T = TypeVar("T")


class LogReader:
    """Reads one log. Its verbs are those of `ManagedLedger`."""

    def __init__(self, shared: EngineParts, state: LogState, write_gathered: Callable[[], None]) -> None:
        """``write_gathered`` writes what was appended within a gathering to its file."""
        self._shared = shared
        self._state = state
        self._log = state.log
        self._write_gathered = write_gathered

    @property
    def _info(self) -> ManagedLedgerInfo:
        return self._state.ledger_list.info

    async def read(self, offset: int, *, max_bytes: int, up_to: int | None = None) -> list[StoredEntry]:
        """Do as `ManagedLedger.read`."""
        log, closed = self._log, self._state.closed
        if closed is not None:
            raise closed
        up_to = log.high_watermark if up_to is None else min(up_to, log.high_watermark)
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is not in [{log.log_start_offset}, {log.log_end_offset}]"
            )
        if offset >= up_to:
            return []
        while offset < up_to and (summary := self._holding(offset)) is not None:
            if summary.compacted:
                last = summary.last_offset
                entries = await self.read_copies(offset, max_bytes=max_bytes, up_to=min(up_to, last + 1))
                if entries:
                    return entries
                offset = last + 1
                continue
            try:
                ledger = await self.ledger(summary)
                return await ledger.read(offset, max_bytes=max_bytes, up_to=up_to)
            except LedgerNotFound:
                if (
                    self._holding(offset) is summary
                ):  # otherwise it made room for the compacted ledger meanwhile
                    raise
        return []

    def _holding(self, offset: int) -> LedgerSummary | None:
        """Return the ledger that contains an offset or, if a repair has left a gap, the one after it."""
        ledgers = self._info.ledgers
        which = bisect_right(ledgers, offset, key=lambda ledger: ledger.first_offset) - 1
        if which >= 0 and ledgers[which].sealed and ledgers[which].last_offset < offset:
            which += 1
        return ledgers[which] if 0 <= which < len(ledgers) else None

    async def ledger(self, summary: LedgerSummary) -> LedgerFile:
        """Return one of the log's ledgers to read from; raise ``LedgerNotFound``."""
        self._write_gathered()
        found = self._state.open_files.get(summary.ledger_id)
        if found is None:
            found = await self._opened(summary)
            if any(each is summary for each in self._info.ledgers):  # otherwise it may lie elsewhere by now
                self._state.open_files[summary.ledger_id] = found
        return found

    async def _opened(self, summary: LedgerSummary) -> LedgerFile:
        if not summary.offloaded:
            return await self._shared.open_sealed(summary)
        from magnetar.ledger.files.offloaded import OffloadedLedger  # most brokers have nothing there
        from magnetar.ledger.tiers.offloaded import open_blocks

        return OffloadedLedger(self._shared, await open_blocks(self._shared.tiers, summary))

    async def entry(self, position: Position) -> StoredEntry:
        """Do as `ManagedLedger.entry`."""
        for summary in self._info.ledgers:
            if summary.ledger_id == position.ledger_id and summary.compacted:
                return await self._copy(summary, position)
            if summary.ledger_id == position.ledger_id:
                return await self._from(summary, lambda ledger: ledger.read_entry(position.entry_id))
        raise LedgerNotFound(f"{self._log.name} has no ledger {position.ledger_id}")

    async def _from(
        self, summary: LedgerSummary, reading: Callable[[LedgerFile], Coroutine[Any, Any, T]]
    ) -> T:
        """Return the result of ``reading`` for a ledger, also if its file goes meanwhile and tiered storage has it."""
        try:
            return await reading(await self.ledger(summary))
        except LedgerNotFound:
            now = next((each for each in self._info.ledgers if each.ledger_id == summary.ledger_id), summary)
            if now is summary or not now.offloaded:
                raise
            return await reading(await self.ledger(now))

    async def find_by_time(self, timestamp_ms: int) -> StoredEntry | None:
        """Do as `ManagedLedger.find_by_time`."""
        copy = await self._copy_by_time(timestamp_ms) if self._info.ledgers else None
        if copy is not None:
            return copy
        for summary in list(self._info.ledgers):
            if summary.compacted or (summary.sealed and summary.max_timestamp < timestamp_ms):
                continue
            found = await self._from(summary, lambda ledger: self._from_time(ledger, timestamp_ms))
            if found is not None:
                return found if found.last_offset < self._log.high_watermark else None
        return None

    async def _from_time(self, ledger: LedgerFile, timestamp_ms: int) -> StoredEntry | None:
        if ledger.index.max_timestamp < timestamp_ms:
            return None
        at, entry_id = ledger.index.before_time(timestamp_ms)
        return await ledger.find(
            at,
            entry_id,
            lambda e: (
                e.last_offset >= self._log.log_start_offset and latest_timestamp(e.data) >= timestamp_ms
            ),
        )

    async def find_max_timestamp(self) -> StoredEntry | None:
        """Do as `ManagedLedger.find_max_timestamp`."""
        latest = (
            max((s.max_timestamp for s in self._info.readable()), default=-1) if self._log.ledgers() else -1
        )
        while latest >= 0:
            found = await self.find_by_time(latest)
            if found is not None:
                return found
            # The entry of the latest one is not visible yet, or was trimmed: walk what is left.
            latest = await self._latest_visible()
        return None

    async def _latest_visible(self) -> int:
        latest, offset = -1, self._log.log_start_offset
        while entries := await self.read(offset, max_bytes=1 << 20):
            async for _, timestamp in each_looked_at(entries, newest):
                latest = max(latest, timestamp)
            offset = entries[-1].last_offset + 1
        return latest

    async def find_first(self, wanted: Callable[[StoredEntry], bool]) -> StoredEntry | None:
        """Do as `ManagedLedger.find_first`."""
        low, high, best = self._log.log_start_offset, self._log.high_watermark, None
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
        """Return the offset of an entry's first message: one after the previous entry's last."""
        if entry.copy >= 0:
            return await looked_at(entry, base_offset)
        if entry.entry_id == 0:
            return next(s.first_offset for s in self._info.ledgers if s.ledger_id == entry.ledger_id)
        return (await self.entry(Position(entry.ledger_id, entry.entry_id - 1))).last_offset + 1

    # -- copies, in the compacted ledger ------------------------------------------------------------------------

    async def read_compacted(
        self, offset: int, *, max_bytes: int, up_to: int | None = None
    ) -> list[StoredEntry]:
        """Do as `ManagedLedger.read_compacted`."""
        compacted = self._info.compacted
        if compacted is not None and offset <= compacted.horizon_offset:
            offset = max(offset, int(self._info.properties.get(TRIMMED, 0)))
            end = compacted.horizon_offset + 1
            if up_to is not None and up_to < end:
                return await self.read_copies(offset, max_bytes=max_bytes, up_to=up_to)
            found = await self.read_copies(offset, max_bytes=max_bytes)
            if found:
                return found
            offset = end
        offset = min(max(offset, self._log.log_start_offset), self._log.log_end_offset)
        return await self.read(offset, max_bytes=max_bytes, up_to=up_to)

    async def read_copies(
        self, offset: int, *, max_bytes: int, up_to: int | None = None
    ) -> list[StoredEntry]:
        """Return the copies from ``offset`` on, below ``up_to``; none if there are none."""
        compacted = self._info.compacted
        if compacted is None or offset > compacted.ledger.last_offset:
            return []
        ledger = await self.copies(compacted)
        up_to = compacted.horizon_offset + 1 if up_to is None else up_to
        try:
            entries = await ledger.read(offset, max_bytes=max_bytes, up_to=up_to)
        except LedgerNotFound:
            if self._info.compacted is compacted:
                raise
            return await self.read_copies(offset, max_bytes=max_bytes, up_to=up_to)  # a newer one replaced it
        return [as_original(entry) for entry in entries]

    async def copies(self, compacted: Compacted) -> LedgerFile:
        """Return a compacted ledger to read from; raise ``LedgerNotFound``."""
        found = self._state.open_files.get(compacted.ledger.ledger_id)
        if found is None:
            found = await self._shared.open_sealed(compacted.ledger)
            if self._info.compacted is compacted:
                self._state.open_files[compacted.ledger.ledger_id] = found
        return found

    async def _copy_at_or_behind(self, summary: LedgerSummary, entry_id: int) -> StoredEntry | None:
        """Return the first copy from this ledger with that entry id or a higher one."""
        low, high, best = summary.first_offset, summary.last_offset + 1, None
        while low < high:
            middle = (low + high) // 2
            found = await self.read_copies(middle, max_bytes=1, up_to=summary.last_offset + 1)
            if found and found[0].entry_id < entry_id:
                low = found[0].last_offset + 1
            else:
                best, high = (found[0] if found else best), middle
        return best

    async def _copy(self, summary: LedgerSummary, position: Position) -> StoredEntry:
        found = await self._copy_at_or_behind(summary, position.entry_id)
        if found is None or found.entry_id != position.entry_id:
            raise LedgerNotFound(
                f"{self._log.name}: entry {position.ledger_id}:{position.entry_id} was compacted away"
            )
        return found

    async def offset_behind(self, position: Position) -> int:
        """Do as `ManagedLedger.offset_behind`."""
        for summary in self._info.ledgers:
            if summary.compacted and summary.ledger_id == position.ledger_id:
                following = await self._copy_at_or_behind(summary, position.entry_id + 1)
                return (
                    summary.last_offset + 1 if following is None else await looked_at(following, base_offset)
                )
        return (await self.entry(position)).last_offset + 1

    async def _copy_by_time(self, timestamp_ms: int) -> StoredEntry | None:
        """Return the first copy of that time or later, where copies replace history."""
        compacted = self._info.compacted
        if compacted is None or not self._info.ledgers[0].compacted:
            return None
        ledger = await self.copies(compacted)
        found = await self._from_time(ledger, timestamp_ms)
        return None if found is None else as_original(found)


def as_original(entry: StoredEntry) -> StoredEntry:
    """Return a copy under the position of its original."""
    came = copied_from(entry.data)
    return entry._replace(ledger_id=came.ledger_id, entry_id=came.entry_id, copy=entry.ledger_id)
