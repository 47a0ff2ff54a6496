"""A sealed ledger of the files engine that lies in tiered storage alone, read as if its file were still here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.ledger.files.ledger_file import LedgerFile
from magnetar.ledger.tiers.offloaded import OffloadedBlocks

if TYPE_CHECKING:
    from magnetar.ledger.files.shared import EngineParts


class OffloadedLedger(LedgerFile):
    """An offloaded ledger, read as a file is."""

    __slots__ = ("_blocks", "_objects")

    def __init__(self, shared: EngineParts, blocks: OffloadedBlocks) -> None:
        super().__init__(shared.root, shared.files, blocks.objects.index, shared.work.in_thread)
        self.path = Path(blocks.objects.where)
        self._blocks = blocks
        self._objects = blocks.objects

    async def _bytes(self, size: int, at: int) -> bytes:
        first, last = self._objects.covering(size, at)
        return self._objects.cut(await self._blocks.some(first, last), first, size, at)

    def read_apart(self, size: int, at: int) -> bytes:
        first, last = self._objects.covering(size, at)
        return self._objects.cut(self._objects.frames(first, last), first, size, at)
