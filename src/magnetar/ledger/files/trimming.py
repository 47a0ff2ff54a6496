"""Deletion at the beginning of a log: what is trimmed on demand, and what retention does not cover any more."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.ledger.errors import OffsetOutOfRange, StorageFull
from magnetar.ledger.files.appending import Appender
from magnetar.ledger.files.reading import TRIMMED
from magnetar.ledger.files.shared import EngineParts
from magnetar.ledger.files.state import LogState
from magnetar.ledger.formats.info import ManagedLedgerInfo
from magnetar.ledger.ledger_list import FIRST
from magnetar.ledger.port import LedgerSummary
from magnetar.ledger.tiers.tiering import doomed_objects
from magnetar.metadata.ops import Op


class Trimmer:
    """The trimmer of one log. Its methods are those of `ManagedLedger`."""

    def __init__(self, shared: EngineParts, state: LogState, appender: Appender) -> None:
        self._shared = shared
        self._state = state
        self._log = state.log
        self._appender = appender

    async def trim(self, before: int) -> None:
        """Do as `ManagedLedger.trim`."""
        log = self._log
        if before > log.high_watermark or before < 0:
            raise OffsetOutOfRange(f"cannot trim before {before}: the end is {log.high_watermark}")
        self._state.check_open()
        if before > log.log_start_offset:
            await self._let_go(before, lambda summary: summary.last_offset < before, trims=True)

    async def retain(self, now_ms: int) -> None:
        """Do as `ManagedLedger.retain`."""
        log, state, policy = self._log, self._state, self._log.policy
        writer = state.writer
        if state.closed is not None or not state.ledger_list.info.ledgers:
            return
        self._appender.checkpoints.seal_again()
        if writer is not None and writer.index.entries:
            try:
                if self._is_past(log.ledgers()[-1], now_ms) or not self._appender.takes_more(now_ms):
                    await self._appender.roll()
            except StorageFull:
                pass  # all the more reason to delete old ledgers
        needed = await self._shared.leases.needed(log.name)
        excess = log.size() - policy.retention_bytes if policy.retention_bytes >= 0 else -1

        def done_with(summary: LedgerSummary) -> bool:
            nonlocal excess
            excess -= summary.size
            if needed is not None and summary.last_offset >= needed:
                return False
            return self._is_past(summary, now_ms) or excess >= 0

        await self._let_go(log.log_start_offset, done_with)

    def _is_past(self, summary: LedgerSummary, now_ms: int) -> bool:
        latest = summary.max_timestamp if summary.max_timestamp >= 0 else summary.created_ms
        retention_ms = self._log.policy.retention_ms
        return retention_ms >= 0 and latest < now_ms - retention_ms

    async def _let_go(
        self, first_offset: int, done_with: Callable[[LedgerSummary], bool], *, trims: bool = False
    ) -> None:
        """Begin at ``first_offset``; delete sealed ledgers from the oldest on, while ``done_with`` is true of them."""
        log, state, gone, notes = self._log, self._state, list[int](), list[Op]()
        start = first_offset

        def make(info: ManagedLedgerInfo) -> bool:
            nonlocal start
            ledgers, count = info.ledgers, 0
            if trims and info.compacted is not None:
                info.properties[TRIMMED] = str(
                    first_offset
                )  # copies of what was let go are not read any more
            while count < len(ledgers) - 1 and self._may_go(ledgers[count]) and done_with(ledgers[count]):
                count += 1
            dropped = ledgers[:count]
            notes[:] = doomed_objects(log.name, dropped)
            del ledgers[:count]
            start = max(first_offset, ledgers[0].first_offset) if dropped else first_offset
            gone.extend(each.ledger_id for each in dropped if not (each.compacted or each.offloaded))
            if any(summary.compacted for summary in dropped):
                gone.extend(_forget_copies(info))
            start = max(start, log.log_start_offset)
            info.properties[FIRST] = str(start)
            return bool(dropped) or start != log.log_start_offset

        def counts() -> None:
            log.log_start_offset = start
            if notes:
                self._shared.has_doomed = True
            for ledger_id in gone:
                state.open_files.pop(ledger_id, None)
            if gone:
                self._shared.work.background(self._appender.checkpoints.remove(gone))
            state.tell_moved()

        await state.ledger_list.change(make, counts, beside=lambda: notes)

    def _may_go(self, summary: LedgerSummary) -> bool:
        return summary.sealed and summary.last_offset < self._log.high_watermark


def _forget_copies(info: ManagedLedgerInfo) -> list[int]:
    """Drop a compacted ledger that replaced history, once nothing of that history is left; return its id."""
    compacted = info.compacted
    if compacted is None or compacted.horizon_offset >= info.ledgers[0].first_offset:
        return []
    info.compacted = None
    return [compacted.ledger.ledger_id]
