"""The compacted ledger beside a managed ledger: reading from it, and putting a new one in its place.

A commit is one write of the metadata: with it the new compacted ledger counts and, where it replaces history, the
ledgers below the horizon do not any more. Their files go after it, in the background. A run that a crash ended left
nothing but one file, which the metadata names beforehand (``compacting``), and which the next opening removes.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.ledger.compaction import Draft, Plan, Stretch, run
from magnetar.ledger.errors import LedgerClosed, LedgerError, LedgerFenced, LedgerNotFound
from magnetar.ledger.files.layout import HEADER_BYTES, index_path, ledger_path
from magnetar.ledger.files.ledger_file import LedgerFile, as_storage_error
from magnetar.ledger.files.recovery import describe
from magnetar.ledger.info import ManagedLedgerInfo
from magnetar.ledger.pins import pinned_offset
from magnetar.ledger.port import (
    Compacted,
    CompactionReport,
    CompactionRules,
    CompactionStatus,
    LedgerSummary,
    ManagedLedger,
    Position,
    StoredEntry,
)
from magnetar.records.compaction import copied_from
from magnetar.records.entry import decode_entry, latest_timestamp

if TYPE_CHECKING:
    from magnetar.ledger.files.engine import FilesEngine

COMPACTING = "compacting"
_TRIMMED = "compacted_from"


class CompactingLedger(ManagedLedger):
    """What a managed ledger of the files engine does about compaction."""

    _engine: FilesEngine
    _info: ManagedLedgerInfo
    _open_files: dict[int, LedgerFile]
    _writer: LedgerFile | None
    _closed: LedgerClosed | LedgerFenced | None
    _lazy: set[LedgerFile]
    _sealing: asyncio.Task[None] | None

    @abstractmethod
    def save(self) -> None: ...

    @abstractmethod
    async def _ledger(self, summary: LedgerSummary) -> LedgerFile: ...

    @abstractmethod
    def _lazy_paths(self) -> list[Path]: ...

    @abstractmethod
    def _roll(self, now_ms: int) -> LedgerFile: ...

    @abstractmethod
    async def _remove(self, ledger_ids: list[int]) -> None: ...

    @abstractmethod
    def _tell(self) -> None: ...

    def _begin(self) -> None:
        self.compaction = CompactionReport()
        self.letting_go = []
        self._compacting = asyncio.Lock()
        self._sealing = None

    @property
    def compacted(self) -> Compacted | None:
        return self._info.compacted

    # -- reading -----------------------------------------------------------------------------------------------

    async def read_compacted(self, offset: int, *, max_bytes: int) -> list[StoredEntry]:
        compacted = self._info.compacted
        if compacted is not None and offset <= compacted.horizon_offset:
            offset = max(offset, int(self._info.properties.get(_TRIMMED, 0)))
            found = await self._read_copies(offset, max_bytes=max_bytes)
            if found:
                return found
            offset = compacted.horizon_offset + 1
        return await self.read(min(max(offset, self.first_offset), self.next_offset), max_bytes=max_bytes)

    async def _read_copies(
        self, offset: int, *, max_bytes: int, up_to: int | None = None
    ) -> list[StoredEntry]:
        """Give the copies from ``offset`` on, below ``up_to``; none if there are none."""
        compacted = self._info.compacted
        if compacted is None or offset > compacted.ledger.last_offset:
            return []
        ledger = await self._copies(compacted)
        up_to = compacted.horizon_offset + 1 if up_to is None else up_to
        try:
            entries = await ledger.read(offset, max_bytes=max_bytes, up_to=up_to)
        except LedgerNotFound:
            if self._info.compacted is compacted:
                raise
            return await self._read_copies(
                offset, max_bytes=max_bytes, up_to=up_to
            )  # a newer one took its place
        return [as_original(entry) for entry in entries]

    async def _copies(self, compacted: Compacted) -> LedgerFile:
        found = self._open_files.get(compacted.ledger.ledger_id)
        if found is None:
            found = await self._engine.open_sealed(compacted.ledger)
            if self._info.compacted is compacted:
                self._open_files[compacted.ledger.ledger_id] = found
        return found

    async def _copy_at_or_behind(self, summary: LedgerSummary, entry_id: int) -> StoredEntry | None:
        """Give the first copy from this ledger with that entry id or a higher one."""
        low, high, best = summary.first_offset, summary.last_offset + 1, None
        while low < high:
            middle = (low + high) // 2
            found = await self._read_copies(middle, max_bytes=1, up_to=summary.last_offset + 1)
            if found and found[0].entry_id < entry_id:
                low = found[0].last_offset + 1
            else:
                best, high = (found[0] if found else best), middle
        return best

    async def _copy(self, summary: LedgerSummary, position: Position) -> StoredEntry:
        found = await self._copy_at_or_behind(summary, position.entry_id)
        if found is None or found.entry_id != position.entry_id:
            raise LedgerNotFound(
                f"{self.name}: entry {position.ledger_id}:{position.entry_id} was compacted away"
            )
        return found

    async def offset_behind(self, position: Position) -> int:
        for summary in self._info.ledgers:
            if summary.compacted and summary.ledger_id == position.ledger_id:
                following = await self._copy_at_or_behind(summary, position.entry_id + 1)
                return (
                    summary.last_offset + 1 if following is None else decode_entry(following.data).base_offset
                )
        return (await self.entry(position)).last_offset + 1

    async def _copy_by_time(self, timestamp_ms: int) -> StoredEntry | None:
        """Give the first copy of that time or later, where copies replace history."""
        compacted = self._info.compacted
        if compacted is None or not self._info.ledgers[0].compacted:
            return None
        ledger = await self._copies(compacted)
        if ledger.index.max_timestamp < timestamp_ms:
            return None
        at, entry_id = ledger.index.before_time(timestamp_ms)
        found = await ledger.find(
            at,
            entry_id,
            lambda e: e.last_offset >= self.first_offset and latest_timestamp(e.data) >= timestamp_ms,
        )
        return None if found is None else as_original(found)

    # -- compacting --------------------------------------------------------------------------------------------

    def _range(self, rules: CompactionRules) -> list[LedgerSummary]:
        """Give the ledgers that hold what may be compacted now."""
        horizon = -1 if self._info.compacted is None else self._info.compacted.horizon_offset
        now_ms = self._engine.clock()
        found = []
        for each in self.ledgers():
            if each.compacted or each.last_offset <= horizon or not each.entries:
                continue
            if rules.replaces and not (each.sealed and each.last_offset < self.visible_offset):
                break
            if rules.least_age_ms > 0 and each.max_timestamp > now_ms - rules.least_age_ms:
                break
            found.append(each)
        return found

    def dirty_bytes(self, rules: CompactionRules) -> tuple[int, int, int]:
        compacted = self._info.compacted
        clean = 0 if compacted is None else compacted.ledger.size - HEADER_BYTES
        dirty = self._range(rules)
        size = 0
        for each in dirty:
            share = 1.0
            if compacted is not None and each.ledger_id == compacted.horizon.ledger_id:
                share = (each.entries - compacted.horizon.entry_id - 1) / each.entries
            size += int((each.size - HEADER_BYTES) * share)
        return clean, size, dirty[0].created_ms if dirty else 0

    async def compact(self, rules: CompactionRules) -> bool:
        async with self._compacting, self._engine.one_compaction:
            report, began_ms = self.compaction, self._engine.clock()
            report.status, report.error, removed = CompactionStatus.RUNNING, "", 0
            try:
                did = rules.replaces and self._replace_history()
                while True:
                    draft = await self._compact_once(rules)
                    if draft is None:
                        break
                    did = True
                    removed += draft.removed
            except BaseException as error:
                report.status, report.error = CompactionStatus.ERROR, f"{type(error).__name__}: {error}"
                report.failed_ms = self._engine.clock()
                raise
            report.status, report.succeeded_ms = CompactionStatus.SUCCESS, self._engine.clock()
            report.took_ms, report.removed = report.succeeded_ms - began_ms, removed
            return did

    async def _compact_once(self, rules: CompactionRules) -> Draft | None:
        """Do one run, as far as the map's memory goes."""
        if self._closed is not None:
            raise self._closed
        dirty = self._range(rules)
        if not dirty or self._is_pinned(rules):
            return None
        if self._lazy:
            await self._engine.flush(self._lazy_paths())  # a copy must not outlive its original's loss
        plan = await self._plan(rules, dirty)
        self._info.properties[COMPACTING] = str(plan.ledger_id)
        self.save()
        try:
            draft = await self._engine.in_thread(lambda: self._run(plan))
        except OSError as error:
            self._drop(plan.ledger_id)
            raise as_storage_error(error) from error
        except LedgerError:
            self._drop(plan.ledger_id)
            raise
        if draft is None or self._is_pinned(rules):
            self._drop(plan.ledger_id)
            return None
        self._commit(rules, plan, draft)
        return draft

    def _run(self, plan: Plan) -> Draft | None:
        draft = run(plan, self._engine.disk)
        if draft is not None:
            self._engine.disk.replace({index_path(self._engine.root, plan.ledger_id): draft.index.encode()})
        return draft

    def _is_pinned(self, rules: CompactionRules) -> bool:
        """Tell whether somebody past the broker reads what would go."""
        dirty = self._range(rules)
        return rules.replaces and bool(dirty) and self._is_pinned_below(dirty[-1].last_offset)

    def _is_pinned_below(self, offset: int) -> bool:
        needed = pinned_offset(self._engine.root, self.name, self._engine.clock())
        return needed is not None and needed <= offset

    async def _plan(self, rules: CompactionRules, dirty: list[LedgerSummary]) -> Plan:
        engine, compacted = self._engine, self._info.compacted
        up_to = min(self.visible_offset, dirty[-1].last_offset + 1)
        from_offset = self.first_offset if compacted is None else compacted.horizon_offset + 1
        stretches = []
        for summary in dirty:
            ledger = await self._ledger(summary)
            index = ledger.index
            at, entry_id = index.before_offset(max(from_offset, self.first_offset))
            stretches.append(
                Stretch(
                    ledger.path,
                    summary.ledger_id,
                    at,
                    entry_id,
                    index.end,
                    max(from_offset, self.first_offset),
                )
            )
        clean = None
        if compacted is not None:
            index = (await self._copies(compacted)).index
            path = ledger_path(engine.root, compacted.ledger.ledger_id)
            clean = Stretch(path, compacted.ledger.ledger_id, HEADER_BYTES, 0, index.end)
        ledger_id = engine.new_ledger_id()
        trimmed = int(self._info.properties.get(_TRIMMED, 0))
        return Plan(
            rules,
            clean,
            stretches,
            self.first_offset if rules.replaces else trimmed,
            up_to,
            up_to - max(from_offset, self.first_offset),
            ledger_path(engine.root, ledger_id),
            ledger_id,
            dirty[0].first_offset if compacted is None else compacted.ledger.first_offset,
            engine.clock(),
            lambda: self._closed is None,
        )

    def _drop(self, ledger_id: int) -> None:
        """Forget a draft; the metadata stops to name it with the next write."""
        self._info.properties.pop(COMPACTING, None)
        self._engine.remove_later([ledger_id])

    def _commit(self, rules: CompactionRules, plan: Plan, draft: Draft) -> None:
        """Have the draft count."""
        if self._closed is not None:
            self._drop(plan.ledger_id)
            raise self._closed
        info, was = self._info, self._info.compacted
        summary = LedgerSummary(plan.ledger_id, plan.begins, created_ms=plan.now_ms)
        describe(summary, draft.index)
        replaced = [
            each
            for each in info.ledgers
            if each.compacted or (rules.replaces and each.sealed and each.last_offset <= draft.horizon_offset)
        ]
        before = [replace(each) for each in replaced]
        if replaced:
            try:
                self._before_letting_go()
            except BaseException:
                self._drop(plan.ledger_id)
                raise
        info.compacted = Compacted(summary, draft.horizon, draft.horizon_offset)
        info.properties.pop(COMPACTING, None)
        for each in replaced:
            each.compacted, each.size = True, draft.bytes_of.get(each.ledger_id, 0)
        try:
            self.save()
        except BaseException:
            info.compacted = was
            for each, old in zip(replaced, before, strict=True):
                each.compacted, each.size = old.compacted, old.size
            self._drop(plan.ledger_id)
            raise
        engine = self._engine
        self._open_files[plan.ledger_id] = engine.ledger_file(plan.ledger_id, plan.begins, draft.index)
        gone = [old.ledger_id for old in before if not old.compacted]
        gone += [] if was is None else [was.ledger.ledger_id]
        self._let_files_go(gone)

    def _replace_history(self) -> bool:
        """Let go of what a compaction that kept history has left below its horizon; tell whether there was any."""
        compacted = self._info.compacted
        if compacted is None or self._closed is not None or self._is_pinned_below(compacted.horizon_offset):
            return False
        gone = [
            each
            for each in self._info.ledgers
            if each.sealed and not each.compacted and each.last_offset <= compacted.horizon_offset
        ]
        before = [replace(each) for each in gone]
        if gone:
            self._before_letting_go()
        for each in gone:
            each.compacted, each.size = True, 0
        if gone:
            gone[-1].size = compacted.ledger.size
            try:
                self.save()
            except BaseException:
                for each, old in zip(gone, before, strict=True):
                    each.compacted, each.size = False, old.size
                raise
            self._let_files_go([each.ledger_id for each in gone])
        return bool(gone)

    def _before_letting_go(self) -> None:
        for keep in self.letting_go:
            keep()

    def _let_files_go(self, ledger_ids: list[int]) -> None:
        for ledger_id in ledger_ids:
            self._open_files.pop(ledger_id, None)
        self._engine.background(self._remove(ledger_ids))
        self._tell()

    def _trim_copies(self, before: int) -> None:
        """Have copies of what was let go on demand not be read any more."""
        if self._info.compacted is not None:
            self._info.properties[_TRIMMED] = str(before)

    def _forget_copies(self) -> list[int]:
        """Let go of a compacted ledger that replaced history, once nothing of that history is left; give its id."""
        compacted = self._info.compacted
        if compacted is None or compacted.horizon_offset >= self._info.ledgers[0].first_offset:
            return []
        self._info.compacted = None
        return [compacted.ledger.ledger_id]

    async def roll(self, older_than_ms: int = 0) -> None:
        writer = self._writer
        if self._closed is not None:
            raise self._closed
        if writer is None or not writer.index.entries:
            return
        if not older_than_ms or self._info.ledgers[-1].created_ms < older_than_ms:
            self._roll(self._engine.clock())
        if self._sealing is not None and not self._sealing.done():
            await asyncio.wait([self._sealing])


def as_original(entry: StoredEntry) -> StoredEntry:
    """Give a copy under the position of what it is a copy of."""
    came = copied_from(entry.data)
    return entry._replace(ledger_id=came.ledger_id, entry_id=came.entry_id, copy=entry.ledger_id)
