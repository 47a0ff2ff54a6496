"""The compacted ledger beside a managed ledger: how the files engine writes one and puts it in the old one's place.

A commit is one write of the metadata: with it the new compacted ledger counts and, where it replaces history, the
ledgers below the horizon do not any more. Their files go after it, in the background. A run that a crash ended left
nothing but one file, which the metadata names beforehand (``compacting``), and which the next opening removes.
For reading from the compacted ledger see `reading`; for when and what to compact `magnetar.ledger.compactor`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from magnetar.ledger.compaction import Source
from magnetar.ledger.compactor import CompactableLog, Compactor
from magnetar.ledger.files.lazy import LazyAppends
from magnetar.ledger.files.reading import TRIMMED, ReadableLedger
from magnetar.ledger.files.streams import FilesSource, FilesWriter
from magnetar.ledger.info import ManagedLedgerInfo
from magnetar.ledger.port import Compacted, CompactionReport, CompactionRules, LedgerSummary, LedgerWriter

COMPACTING = "compacting"


class CompactingLedger(ReadableLedger, CompactableLog):
    """What a managed ledger of the files engine does about compaction."""

    lazy: LazyAppends

    @abstractmethod
    async def _remove(self, ledger_ids: list[int]) -> None: ...

    @abstractmethod
    def tell_moved(self) -> None: ...

    def _begin(self) -> None:
        engine = self._engine
        self.letting_go = []
        self._compactor = Compactor(self, engine.leases, engine.workers, engine.one_compaction, engine.clock)

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
        await self.lazy.flush()

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
        writer = FilesWriter(self._engine, await self._engine.ids.new(), first_offset)

        def name_it(info: ManagedLedgerInfo) -> bool:
            info.properties[COMPACTING] = str(writer.ledger_id)
            return True

        await self.ledger_list.change(name_it)
        return writer

    async def put_in_place(self, compacted: Compacted, sizes: Mapping[int, int]) -> None:
        gone: list[int] = []

        def make(info: ManagedLedgerInfo) -> bool:
            for at, each in enumerate(info.ledgers):
                if each.ledger_id in sizes:
                    if not each.compacted:
                        gone.append(each.ledger_id)
                    info.ledgers[at] = replace(each, compacted=True, size=sizes[each.ledger_id])
            was, info.compacted = info.compacted, compacted
            if was is not None and was is not compacted:
                gone.append(was.ledger.ledger_id)
            info.properties.pop(COMPACTING, None)
            return True

        def counts() -> None:
            for ledger_id in gone:
                self.open_files.pop(ledger_id, None)
            self._engine.background(self._remove(gone))
            self.tell_moved()

        def refused() -> None:
            if compacted is not self._info.compacted:
                self._engine.remove_later([compacted.ledger.ledger_id])

        await self.ledger_list.change(make, counts, refused)

    @staticmethod
    def _trim_copies(info: ManagedLedgerInfo, before: int) -> None:
        """Have copies of what was let go on demand not be read any more."""
        if info.compacted is not None:
            info.properties[TRIMMED] = str(before)

    @staticmethod
    def _forget_copies(info: ManagedLedgerInfo) -> list[int]:
        """Let go of a compacted ledger that replaced history, once nothing of that history is left; give its id."""
        compacted = info.compacted
        if compacted is None or compacted.horizon_offset >= info.ledgers[0].first_offset:
            return []
        info.compacted = None
        return [compacted.ledger.ledger_id]
