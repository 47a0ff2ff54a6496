"""The compacted ledger beside a managed ledger: putting a new one in its place. For reading from it see `reading`.

A commit is one write of the metadata: with it the new compacted ledger counts and, where it replaces history, the
ledgers below the horizon do not any more. Their files go after it, in the background. A run that a crash ended left
nothing but one file, which the metadata names beforehand (``compacting``), and which the next opening removes.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from dataclasses import replace

from magnetar.ledger.compaction import Draft, Plan, Stretch, run
from magnetar.ledger.errors import LedgerError
from magnetar.ledger.files.layout import HEADER_BYTES, index_path, ledger_path
from magnetar.ledger.files.lazy import LazyAppends
from magnetar.ledger.files.ledger_file import LedgerFile, as_storage_error
from magnetar.ledger.files.reading import TRIMMED, ReadableLedger
from magnetar.ledger.files.recovery import describe
from magnetar.ledger.pins import pinned_offset
from magnetar.ledger.port import (
    Compacted,
    CompactionReport,
    CompactionRules,
    CompactionStatus,
    LedgerSummary,
)

COMPACTING = "compacting"


class CompactingLedger(ReadableLedger):
    """What a managed ledger of the files engine does about compaction."""

    _writer: LedgerFile | None
    _lazy: LazyAppends
    _sealing: asyncio.Task[None] | None

    @abstractmethod
    def save(self) -> None: ...

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

    # -- compacting --------------------------------------------------------------------------------------------

    def _range(self, rules: CompactionRules) -> list[LedgerSummary]:
        """Give the ledgers that hold what may be compacted now."""
        horizon = -1 if self._info.compacted is None else self._info.compacted.horizon_offset
        now_ms = self._engine.clock()
        found = []
        for each in self.ledgers():
            if each.compacted or each.last_offset <= horizon or not each.entries:
                continue
            if rules.replaces and not (each.sealed and each.last_offset < self.high_watermark):
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
        await self._lazy.flush()  # a copy must not outlive its original's loss
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
        up_to = min(self.high_watermark, dirty[-1].last_offset + 1)
        from_offset = self.log_start_offset if compacted is None else compacted.horizon_offset + 1
        stretches = []
        for summary in dirty:
            ledger = await self._ledger(summary)
            index = ledger.index
            at, entry_id = index.before_offset(max(from_offset, self.log_start_offset))
            stretches.append(
                Stretch(
                    ledger.path,
                    summary.ledger_id,
                    at,
                    entry_id,
                    index.end,
                    max(from_offset, self.log_start_offset),
                )
            )
        clean = None
        if compacted is not None:
            index = (await self._copies(compacted)).index
            path = ledger_path(engine.root, compacted.ledger.ledger_id)
            clean = Stretch(path, compacted.ledger.ledger_id, HEADER_BYTES, 0, index.end)
        ledger_id = engine.new_ledger_id()
        trimmed = int(self._info.properties.get(TRIMMED, 0))
        return Plan(
            rules,
            clean,
            stretches,
            self.log_start_offset if rules.replaces else trimmed,
            up_to,
            up_to - max(from_offset, self.log_start_offset),
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
            self._info.properties[TRIMMED] = str(before)

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
