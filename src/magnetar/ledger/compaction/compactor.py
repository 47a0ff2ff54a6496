"""Compaction of one log, on any engine: whether there is anything to compact, what may be, and the result.

An engine has to provide a `CompactableLog`: its entries as streams, a writer of new ledgers, and one operation
that replaces the old compacted ledger by the new one.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Mapping

from magnetar.ledger.compaction.job import Job
from magnetar.ledger.compaction.runs import CompactedDraft, EntrySource, run
from magnetar.ledger.compaction.workers import CompactionWorkers
from magnetar.ledger.leases import Leases
from magnetar.ledger.port import (
    Compacted,
    CompactionReport,
    CompactionRules,
    CompactionStatus,
    LedgerSummary,
    LedgerWriter,
    ManagedLedger,
)
from magnetar.records.aborted import UNKNOWN, Decided


class CompactableLog(ManagedLedger):
    """A managed ledger that can be compacted, as its `Compactor` sees it."""

    @property
    @abstractmethod
    def copies_from(self) -> int:
        """The offset before which copies were deleted on demand, though they may still lie there."""

    @abstractmethod
    def check_open(self) -> None:
        """Raise ``LedgerError`` if the log is closed."""

    @abstractmethod
    async def make_durable(self) -> None:
        """Make all that is visible durable: a copy must not outlive its original's loss."""

    @abstractmethod
    def entries_of(self, dirty: list[LedgerSummary], from_offset: int) -> EntrySource:
        """Return the entries of these ledgers from an offset on, and those of the compacted ledger."""

    @abstractmethod
    async def new_compacted(self, first_offset: int) -> LedgerWriter:
        """Begin a ledger of copies. If a crash leaves it unfinished, it is removed when the log is opened again."""

    @abstractmethod
    async def put_in_place(self, compacted: Compacted, sizes: Mapping[int, int]) -> None:
        """Commit a compacted ledger, and mark the ledgers in ``sizes`` as compacted, with so many bytes left of each.

        It is one step, which continues if its caller is cancelled. What nothing refers to then is removed, also the
        compacted ledger itself if it is not committed. Raises ``LedgerError``, and then all is as it was.
        """


class Compactor:
    """Compacts one log."""

    def __init__(
        self,
        log: CompactableLog,
        leases: Leases,
        workers: CompactionWorkers,
        one_at_a_time: asyncio.Lock,
        clock: Callable[[], int],
    ) -> None:
        self.report = CompactionReport()
        self.running = asyncio.Lock()
        self._log = log
        self._leases = leases
        self._workers = workers
        self._one_at_a_time = one_at_a_time
        self._clock = clock
        self._looks_back = False
        """Whether the last run met copies of transactional entries whose keys no run has noted."""

    def dirty_bytes(self, rules: CompactionRules) -> tuple[int, int, int]:
        """Do as `ManagedLedger.dirty_bytes`."""
        compacted, dirty, size = self._log.compacted, self._dirty(rules), 0
        stable = self._log.last_stable_offset
        for each in dirty:
            share = 1.0
            if compacted is not None and each.ledger_id == compacted.horizon.ledger_id:
                share = (each.entries - compacted.horizon.entry_id - 1) / each.entries
            if stable <= each.last_offset:  # undecided entries may not be compacted
                begin = each.first_offset if compacted is None else compacted.horizon_offset + 1
                begin = max(begin, each.first_offset)
                share *= (stable - begin) / (each.last_offset + 1 - begin)
            size += int(each.size * share)
        return (
            0 if compacted is None or not compacted.ledger.entries else compacted.ledger.size,
            size,
            dirty[0].created_ms if dirty else 0,
        )

    async def compact(self, rules: CompactionRules) -> bool:
        """Do as `ManagedLedger.compact`."""
        async with self.running, self._one_at_a_time:
            report, began_ms, removed = self.report, self._clock(), 0
            report.status, report.error = CompactionStatus.RUNNING, ""
            try:
                did = rules.replaces and await self._replace_history()
                while (draft := await self._compact_once(rules)) is not None:
                    did, removed = True, removed + draft.removed
            except BaseException as error:
                report.status, report.error = CompactionStatus.ERROR, f"{type(error).__name__}: {error}"
                report.failed_ms = self._clock()
                raise
            report.status, report.succeeded_ms = CompactionStatus.SUCCESS, self._clock()
            report.took_ms, report.removed = report.succeeded_ms - began_ms, removed
            return did

    def _dirty(self, rules: CompactionRules) -> list[LedgerSummary]:
        """Return the ledgers with entries that may be compacted now."""
        log, found = self._log, []
        horizon = -1 if log.compacted is None else log.compacted.horizon_offset
        now_ms, stable = self._clock(), log.last_stable_offset
        for each in log.ledgers():
            if each.compacted or each.last_offset <= horizon or not each.entries:
                continue
            if rules.replaces and not (each.sealed and each.last_offset < log.high_watermark):
                break
            if max(each.first_offset, horizon + 1) >= stable:
                break
            if rules.min_age_ms > 0 and each.max_timestamp > now_ms - rules.min_age_ms:
                break
            found.append(each)
        return found

    async def _compact_once(self, rules: CompactionRules) -> CompactedDraft | None:
        """Do one run, within the map's memory; None if there is nothing to do, or a lease forbids it."""
        log = self._log
        log.check_open()
        if log.transactions is None and log.has_transactions:
            return None  # how far it is decided has to be known first
        dirty = self._dirty(rules)
        if not dirty or await self._is_leased(
            dirty[-1].last_offset if rules.replaces else self._end_of_copies()
        ):
            return None
        await log.make_durable()
        draft = await self._draft(rules, dirty)
        if draft is None:
            return None
        replaced = self._replaced(rules, draft)
        try:
            may_count = await self._may_count(rules, draft, replaced)
        except BaseException:
            await draft.writer.discard()
            raise
        if not may_count:
            await draft.writer.discard()
            return None
        await log.put_in_place(
            Compacted(draft.ledger, draft.horizon, draft.horizon_offset),
            {each.ledger_id: draft.bytes_of.get(each.ledger_id, 0) for each in replaced},
        )
        self._looks_back = draft.unnoted
        if log.transactions is not None and draft.ended and replaced:
            end = self._end_of_copies()
            log.transactions.forget_ended({each for each in draft.ended if each <= end})
        return draft

    async def _may_count(
        self, rules: CompactionRules, draft: CompactedDraft, replaced: list[LedgerSummary]
    ) -> bool:
        """Return whether no reader needs what a draft replaces, once the owner has stored what it needs of it."""
        if replaced:
            await self._before_compaction()
        if await self._is_leased(draft.horizon_offset if rules.replaces else self._end_of_copies()):
            return False
        self._log.check_open()
        return True

    async def _draft(self, rules: CompactionRules, dirty: list[LedgerSummary]) -> CompactedDraft | None:
        log, compacted = self._log, self._log.compacted
        stable = log.last_stable_offset
        up_to = min(stable, dirty[-1].last_offset + 1)
        begin = max(log.log_start_offset, 0 if compacted is None else compacted.horizon_offset + 1)
        if begin >= up_to:
            return None
        begins = dirty[0].first_offset if compacted is None else compacted.ledger.first_offset
        clean = 0 if compacted is None else compacted.ledger.size
        worker = self._workers.worker(clean + sum(each.size for each in dirty))
        first_offset = log.log_start_offset if rules.replaces else log.copies_from
        transactions = log.transactions
        decided = UNKNOWN if transactions is None else Decided(transactions.aborted_columns(), stable)
        messages = up_to - (begins if self._looks_back else begin)
        job = Job(rules, messages, first_offset, self._clock(), decided, self._looks_back)
        return await run(job, log.entries_of(dirty, begin), up_to, worker, lambda: log.new_compacted(begins))

    def _replaced(self, rules: CompactionRules, draft: CompactedDraft) -> list[LedgerSummary]:
        """Return the ledgers whose entries are read from the new compacted ledger once it is committed."""
        return [
            each
            for each in self._log.ledgers()
            if each.compacted or (rules.replaces and each.sealed and each.last_offset <= draft.horizon_offset)
        ]

    async def _replace_history(self) -> bool:
        """Delete the history that an earlier compaction retained below its horizon; return whether there was any."""
        log, compacted = self._log, self._log.compacted
        if compacted is None:
            return False
        log.check_open()
        gone = [
            each.ledger_id
            for each in log.ledgers()
            if each.sealed and not each.compacted and each.last_offset <= compacted.horizon_offset
        ]
        if not gone or await self._is_leased(compacted.horizon_offset):
            return False
        await self._before_compaction()
        if await self._is_leased(compacted.horizon_offset):  # meanwhile
            return False
        log.check_open()
        sizes = dict.fromkeys(gone, 0)
        sizes[gone[-1]] = compacted.ledger.size
        await log.put_in_place(compacted, sizes)
        return True

    def _end_of_copies(self) -> int:
        """Return the last offset for which copies replace history, -1 if there is none."""
        return max((each.last_offset for each in self._log.ledgers() if each.compacted), default=-1)

    async def _is_leased(self, offset: int) -> bool:
        """Return whether a reader outside the broker may read at or before an offset."""
        needed = await self._leases.needed(self._log.name)
        return needed is not None and needed <= offset

    async def _before_compaction(self) -> None:
        for keep in tuple(self._log.before_compaction):
            await keep()
