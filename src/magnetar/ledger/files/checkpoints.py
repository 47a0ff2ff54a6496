"""Indexes and the owner's snapshot, stored next to a log's ledgers so that recovery need not read these.

The open ledger's is kept every so many bytes or entries, a full one's when it is sealed. All of it is written in the
background, one after the other, and only once the ledger itself is flushed as far as the policy asks for it.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

from magnetar.ledger.boot import UNKNOWN_BOOT
from magnetar.ledger.errors import LedgerError
from magnetar.ledger.files.flushing import Checkpoint
from magnetar.ledger.files.lazy import LazyAppends
from magnetar.ledger.files.ledger_file import LedgerFile
from magnetar.ledger.files.recovery import describe
from magnetar.ledger.files.shared import EngineParts
from magnetar.ledger.files.state import LogState
from magnetar.ledger.formats.info import ManagedLedgerInfo
from magnetar.ledger.formats.layout import index_path
from magnetar.ledger.ledger_list import changed
from magnetar.ledger.port import Flush, Snapshot

CHECKPOINT_BYTES = 64 << 20
CHECKPOINT_ENTRIES = 20_000
_OFFSET = struct.Struct(">Q")


class Checkpoints:
    """The checkpoints of one log."""

    def __init__(
        self, shared: EngineParts, state: LogState, lazy: LazyAppends, has_queue: Callable[[], bool]
    ) -> None:
        """``has_queue`` returns whether a placed entry waits for a ledger."""
        self.keeping = asyncio.Lock()
        """Held while one is written: one index of this log at a time, in order."""
        self.sealing: asyncio.Task[None] | None = None
        self._shared = shared
        self._state = state
        self._log = state.log
        self._lazy = lazy
        self._has_queue = has_queue
        # Ledger id, end and snapshot of what was kept last, if the ledger was flushed for it.
        self._kept: tuple[int, int, bytes] | None = None
        self._bytes = self._entries = 0
        self._end: Checkpoint | None = None
        self._unsealed: list[tuple[LedgerFile, Checkpoint]] = []
        """Full ledgers that could not be sealed yet."""

    def adopt(self, kept: tuple[int, int, bytes] | None, checked: tuple[int, int]) -> None:
        """Take over what recovery found: the newest snapshot, and how much of the open ledger its index covers."""
        # Not the end of what was read: one crash after the other would each read what all before it had read.
        self._bytes, self._entries = checked
        if kept is not None and self._adopt_snapshot(kept[2], self._log.log_end_offset):
            self._kept = kept

    def _adopt_snapshot(self, data: bytes, end: int) -> bool:
        """Take over a snapshot, unless it covers messages from ``end`` on, which were lost or taken back."""
        offset = _OFFSET.unpack_from(data)[0] if len(data) >= _OFFSET.size else end + 1
        if 0 < offset <= end:
            self._log.snapshot = Snapshot(offset, data[_OFFSET.size :])
        return bool(offset <= end)

    def take_back(self, offset: int) -> None:
        """Drop snapshots that cover messages from ``offset`` on, which were taken back."""
        log = self._log
        if log.snapshot is not None and log.snapshot.offset > offset:
            log.snapshot = None
            if self._kept is not None:
                self._adopt_snapshot(self._kept[2], offset)

    def begin(self, new: LedgerFile) -> None:
        """Note that a new ledger is the open one."""
        self._bytes, self._entries = new.index.end, 0

    def look(self, writer: LedgerFile) -> None:
        """Store the open ledger's index if enough was written since."""
        index = writer.index
        if index.end - self._bytes >= CHECKPOINT_BYTES or index.entries - self._entries >= CHECKPOINT_ENTRIES:
            self.keep_soon(writer)

    def keep_soon(self, writer: LedgerFile) -> None:
        """Store, in the background, the index of the open ledger, so that recovery need not read it from its start."""
        self._bytes, self._entries = writer.index.end, writer.index.entries
        # If the policy does not ask for flushes, they would only cost: unflushed data outlive all but a power loss.
        flushes = self._log.policy.flush is not Flush.os or self._shared.boot == UNKNOWN_BOOT
        self._shared.work.background(self.keep(writer, flushes=flushes))

    async def keep(self, ledger: LedgerFile, *, flushes: bool = True) -> None:
        """Store the index of the open ledger."""
        async with self.keeping:
            if ledger is not self._state.writer or self._state.is_deleted:
                return  # its last index is stored when it is sealed
            checkpoint = self._of(ledger)
            if checkpoint.key == self._kept:
                return
            if flushes:
                await self._shared.flushing.keep([checkpoint])
                self._kept = checkpoint.key
            else:
                await self._shared.flushing.keep_for_this_boot(checkpoint)
                self._kept = None

    def _of(self, ledger: LedgerFile) -> Checkpoint:
        """Return what a ledger's index would say now, with what the log's owner adds."""
        log = self._log
        if (
            log.take_snapshot is not None and not self._has_queue()
        ):  # entries that wait for a ledger may be taken back
            log.snapshot = Snapshot(log.log_end_offset, log.take_snapshot())
        offset, snapshot = log.snapshot or Snapshot(0, b"")
        data = _OFFSET.pack(offset) + snapshot
        key = (ledger.ledger_id, ledger.index.end, data)
        return Checkpoint(
            key, ledger.path, index_path(self._shared.root, ledger.ledger_id), ledger.index, data
        )

    async def remove(self, ledger_ids: list[int]) -> None:
        """Delete ledgers, after the owner's snapshot, which may lie next to them, was stored elsewhere."""
        if self._state.writer is not None:
            await self.keep(self._state.writer)
        async with self.keeping:
            self._shared.remove_later(ledger_ids)

    # -- full ledgers ------------------------------------------------------------------------------------------

    def note_end(self, writer: LedgerFile | None) -> None:
        """Note the checkpoint of the open ledger if it ends here."""
        self._end = None if writer is None else self._of(writer)

    def seal(self, old: LedgerFile) -> None:
        """Seal a ledger that is full, in the background."""
        checkpoint, self._end = self._end, None
        if checkpoint is None or checkpoint.key[:2] != (old.ledger_id, old.index.end):
            checkpoint = self._of(old)  # something was taken back since
        self.sealing = self._shared.work.background(self._seal(old, checkpoint))

    async def sealed(self) -> None:
        """Wait until a ledger that was full just now is sealed, or could not be."""
        if self.sealing is not None and not self.sealing.done():
            await asyncio.wait([self.sealing])

    def seal_again(self) -> None:
        """Retry what failed: the disk may work by now, and a ledger that is not sealed is never deleted."""
        unsealed, self._unsealed = self._unsealed, []
        for old, checkpoint in unsealed:
            self.sealing = self._shared.work.background(self._seal(old, checkpoint))

    async def _seal(self, old: LedgerFile, checkpoint: Checkpoint) -> None:
        """Make a full ledger durable, store its index, and note in the metadata that it is whole."""
        state = self._state

        def make(info: ManagedLedgerInfo) -> bool:
            summary = changed(info, old.ledger_id)
            if summary is not None:
                describe(summary, old.index)
            return summary is not None and not state.is_deleted

        async with self.keeping:
            if state.is_deleted or all(
                each.ledger_id != old.ledger_id for each in state.ledger_list.info.ledgers
            ):
                return
            try:
                await self._shared.flushing.keep([checkpoint])
            except LedgerError:
                self._unsealed.append((old, checkpoint))
                raise
            self._kept = checkpoint.key
            self._lazy.files.discard(old)
            await state.ledger_list.change(make)

    # -- the end -----------------------------------------------------------------------------------------------

    def last(self) -> Checkpoint | None:
        """Return the checkpoint that is still due at a clean end, if any."""
        writer = self._state.writer
        if writer is None:
            return None
        checkpoint = self._of(writer)
        closed_at = self._state.ledger_list.info.properties.get("closed_at")
        return None if checkpoint.key == self._kept and closed_at == checkpoint.mark else checkpoint

    async def note_closed(self, checkpoint: Checkpoint) -> None:
        """Note in the metadata up to where the open ledger is whole and durable."""

        def make(info: ManagedLedgerInfo) -> bool:
            info.properties["closed_at"] = checkpoint.mark
            return True

        self._kept = checkpoint.key
        await self._state.ledger_list.change(make)
