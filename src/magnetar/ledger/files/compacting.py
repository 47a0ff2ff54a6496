"""The compacted ledger beside a managed ledger: how the files engine writes one and puts it in the old one's place.

A commit is one write of the metadata: with it the new compacted ledger counts and, where it replaces history, the
ledgers below the horizon do not any more. Their files go after it, in the background. A run that a crash ended left
nothing but one file, which the metadata names beforehand (``compacting``), and which the next opening removes.
For reading from the compacted ledger see `reading`; for when and what to compact `magnetar.ledger.compactor`.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from magnetar.ledger.compaction import Source
from magnetar.ledger.compactor import CompactableLog, Compactor
from magnetar.ledger.files.lazy import LazyAppends
from magnetar.ledger.files.ledger_file import LedgerFile
from magnetar.ledger.files.reading import TRIMMED, ReadableLedger
from magnetar.ledger.files.streams import FilesSource, FilesWriter
from magnetar.ledger.port import Compacted, CompactionReport, CompactionRules, LedgerSummary, LedgerWriter

COMPACTING = "compacting"


class CompactingLedger(ReadableLedger, CompactableLog):
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
        engine = self._engine
        self.letting_go = []
        self._compactor = Compactor(self, engine.leases, engine.workers, engine.one_compaction, engine.clock)
        self._sealing = None

    @property
    def compaction(self) -> CompactionReport:  # type: ignore[override]
        return self._compactor.report

    def dirty_bytes(self, rules: CompactionRules) -> tuple[int, int, int]:
        return self._compactor.dirty_bytes(rules)

    async def compact(self, rules: CompactionRules) -> bool:
        return await self._compactor.compact(rules)

    # -- what the compactor asks for

    @property
    def copies_from(self) -> int:
        return int(self._info.properties.get(TRIMMED, 0))

    def check_open(self) -> None:
        if self._closed is not None:
            raise self._closed

    async def make_durable(self) -> None:
        await self._lazy.flush()

    def entries_of(self, dirty: list[LedgerSummary], from_offset: int) -> Source:
        compacted = self._info.compacted
        return FilesSource(
            self._engine,
            [partial(self._ledger, summary) for summary in dirty],
            None if compacted is None else partial(self._copies, compacted),
            from_offset,
            self.check_open,
        )

    async def new_compacted(self, first_offset: int) -> LedgerWriter:
        writer = FilesWriter(self._engine, first_offset, self._forget_draft)
        self._info.properties[COMPACTING] = str(writer.ledger_id)
        self.save()
        return writer

    def _forget_draft(self) -> None:
        """Forget a draft; the metadata stops to name it with the next write."""
        self._info.properties.pop(COMPACTING, None)

    async def put_in_place(self, compacted: Compacted, sizes: Mapping[int, int]) -> None:
        info, was = self._info, self._info.compacted
        replaced = [each for each in info.ledgers if each.ledger_id in sizes]
        before = [replace(each) for each in replaced]
        draft = info.properties.pop(COMPACTING, None)
        info.compacted = compacted
        for each in replaced:
            each.compacted, each.size = True, sizes[each.ledger_id]
        try:
            self.save()
        except BaseException:
            info.compacted = was
            for each, old in zip(replaced, before, strict=True):
                each.compacted, each.size = old.compacted, old.size
            if draft is not None:
                info.properties[COMPACTING] = draft
            raise
        gone = [old.ledger_id for old in before if not old.compacted]
        if was is not None and was is not compacted:
            gone.append(was.ledger.ledger_id)
        self._let_files_go(gone)

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
