"""The compacted ledger of a managed ledger: how the files engine writes one and replaces the old one.

A commit is one write of the metadata: from then on the new compacted ledger counts and, if it replaces history, the
ledgers below the horizon do not any more. Their files go after it, in the background. A run that a crash ended left
nothing but one file, which the metadata names beforehand (``compacting``), and which the next opening removes.
For reading from the compacted ledger see `reading`; for when and what to compact see
`magnetar.ledger.compaction.compactor`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from magnetar.ledger.compaction.runs import EntrySource
from magnetar.ledger.files.checkpoints import Checkpoints
from magnetar.ledger.files.lazy import LazyAppends
from magnetar.ledger.files.reading import TRIMMED, LogReader
from magnetar.ledger.files.shared import EngineParts
from magnetar.ledger.files.state import LogState
from magnetar.ledger.files.streams import FilesSource, LedgerFileWriter
from magnetar.ledger.formats.info import ManagedLedgerInfo
from magnetar.ledger.port import Compacted, LedgerSummary, LedgerWriter
from magnetar.ledger.tiers.tiering import doomed_objects
from magnetar.metadata.ops import Op

COMPACTING = "compacting"


class CompactedLedgers:
    """The part of one log that its compactor uses. Its methods are those of `CompactableLog`."""

    def __init__(
        self,
        shared: EngineParts,
        state: LogState,
        reader: LogReader,
        lazy: LazyAppends,
        checkpoints: Checkpoints,
    ) -> None:
        self._shared = shared
        self._state = state
        self._reader = reader
        self._lazy = lazy
        self._checkpoints = checkpoints

    @property
    def copies_from(self) -> int:
        """See `CompactableLog.copies_from`."""
        return int(self._state.ledger_list.info.properties.get(TRIMMED, 0))

    async def make_durable(self) -> None:
        """Do as `CompactableLog.make_durable`."""
        await self._lazy.flush()

    def entries_of(self, dirty: list[LedgerSummary], from_offset: int) -> EntrySource:
        """Do as `CompactableLog.entries_of`."""
        state, reader = self._state, self._reader
        compacted = state.ledger_list.info.compacted
        return FilesSource(
            self._shared,
            [partial(reader.ledger, summary) for summary in dirty],
            None if compacted is None else partial(reader.copies, compacted),
            from_offset,
            state.check_open,
        )

    async def new_compacted(self, first_offset: int) -> LedgerWriter:
        """Do as `CompactableLog.new_compacted`."""
        writer = LedgerFileWriter(self._shared, await self._shared.ids.new(), first_offset)

        def name_it(info: ManagedLedgerInfo) -> bool:
            info.properties[COMPACTING] = str(writer.ledger_id)
            return True

        await self._state.ledger_list.change(name_it)
        return writer

    async def put_in_place(self, compacted: Compacted, sizes: Mapping[int, int]) -> None:
        """Do as `CompactableLog.put_in_place`."""
        state, gone, notes = self._state, list[int](), list[Op]()

        def make(info: ManagedLedgerInfo) -> bool:
            replaced = [each for each in info.ledgers if each.ledger_id in sizes]
            notes[:] = doomed_objects(state.log.name, replaced)
            for at, each in enumerate(info.ledgers):
                if each.ledger_id in sizes:
                    if not (each.compacted or each.offloaded):
                        gone.append(each.ledger_id)
                    size = sizes[each.ledger_id]
                    info.ledgers[at] = replace(each, compacted=True, size=size, offload=None)
            was, info.compacted = info.compacted, compacted
            if was is not None and was is not compacted:
                gone.append(was.ledger.ledger_id)
            info.properties.pop(COMPACTING, None)
            return True

        def counts() -> None:
            for ledger_id in (*gone, *sizes):
                state.open_files.pop(ledger_id, None)
            if notes:
                self._shared.has_doomed = True
            self._shared.work.background(self._checkpoints.remove(gone))
            state.tell_moved()

        def refused() -> None:
            if compacted is not state.ledger_list.info.compacted:
                self._shared.remove_later([compacted.ledger.ledger_id])

        await state.ledger_list.change(make, counts, refused, lambda: notes)
