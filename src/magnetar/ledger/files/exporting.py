"""Write a sealed ledger's file as the two objects of tiered storage. Runs in a thread, in bounded pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.ledger.errors import LedgerCorrupt
from magnetar.ledger.files.ledger_file import as_storage_error
from magnetar.ledger.files.recovery import sealed_index
from magnetar.ledger.formats.layout import (
    FRAME,
    FRAME_BYTES,
    HEADER_BYTES,
    check_header,
    frame_crc,
    ledger_path,
)
from magnetar.ledger.tiers.blocks import DataBlock, OffloadedIndex, block_parts
from magnetar.ledger.tiers.place import TierPlace
from magnetar.ledger.tiers.tiers import Tiers
from magnetar.ledger.tiers.writing import write_objects
from magnetar.ledger.values import LedgerSummary

if TYPE_CHECKING:
    from magnetar.ledger.files.disk import Disk
    from magnetar.ledger.files.shared import EngineParts


def export(
    shared: EngineParts,
    tiers: Tiers,
    place: TierPlace,
    uuid: str,
    summary: LedgerSummary,
    attributes: Mapping[str, str],
) -> int:
    """Write a ledger's objects, with ``attributes`` in addition to Pulsar's; return how many bytes they are.

    Raises ``LedgerCorrupt`` for a damaged ledger, of which no object exists then, and ``TierFailed``.
    """
    store = tiers.store(place)
    try:
        blocks = LedgerBlocks(shared.disk, shared.root, summary, tiers.settings.block_bytes)
        return write_objects(store, uuid, summary, blocks, attributes)
    except OSError as error:
        raise as_storage_error(error) from error


class LedgerBlocks:
    """The blocks of a data object, made of a ledger's file on demand; ``index`` has their places."""

    def __init__(self, disk: Disk, root: Path, summary: LedgerSummary, block_bytes: int) -> None:
        self.entry_bytes = 0
        self._disk = disk
        self._summary = summary
        self._path = ledger_path(root, summary.ledger_id)
        self._block_bytes = block_bytes
        own = sealed_index(disk, root, summary)
        self._end = own.end
        self.index = OffloadedIndex(summary.ledger_id, own=own.encode())

    def written(self) -> Iterator[bytes]:
        """Yield the data object, a block at a time; raise ``LedgerCorrupt`` at the first entry that is damaged."""
        file = self._disk.open(self._path)
        try:
            check_header(file.read(HEADER_BYTES, 0), self._summary.ledger_id, self._path)
            at, entry_id, want = HEADER_BYTES, 0, self._block_bytes
            while at < self._end:
                data = memoryview(file.read(min(want, self._end - at), at))
                entries, checksums, used, need = self._frames(data, at, entry_id)
                if not entries:
                    if need <= len(data) or at + need > self._end:
                        raise self._damaged(at, entry_id)
                    want = need
                    continue
                yield self._block(entry_id, entries, checksums, at, used)
                at, entry_id, want = at + used, entry_id + len(entries), self._block_bytes
        finally:
            file.close()
        if entry_id != self._summary.entries:
            raise LedgerCorrupt(
                f"{self._path}: holds {entry_id} entries, and {self._summary.entries} are due"
            )

    def _frames(
        self, data: memoryview, start: int, entry_id: int
    ) -> tuple[list[memoryview], list[int], int, int]:
        """Return the whole entries in ``data``, their checksums, the bytes they take, and what the next one needs."""
        entries: list[memoryview] = []
        checksums: list[int] = []
        at, ledger_id = 0, self._summary.ledger_id
        while at + FRAME_BYTES <= len(data):
            length, crc, found = FRAME.unpack_from(data, at)
            end = at + FRAME_BYTES + length
            if end > len(data):
                return entries, checksums, at, end - at
            entry = data[at + FRAME_BYTES : end]
            due = entry_id + len(entries)
            if found != due or frame_crc(ledger_id, due, entry) != crc:
                raise self._damaged(start + at, due)
            entries.append(entry)
            checksums.append(crc)
            at = end
        return entries, checksums, at, FRAME_BYTES if not entries else 0

    def _block(
        self, first: int, entries: list[memoryview], checksums: list[int], own_start: int, own_bytes: int
    ) -> bytes:
        made = b"".join(block_parts(first, entries, checksums))
        start = self.index.data_bytes
        self.index.blocks.append(DataBlock(first, start, start + len(made), own_start, own_start + own_bytes))
        self.index.data_bytes += len(made)
        self.entry_bytes += sum(map(len, entries))
        return made

    def _damaged(self, at: int, entry_id: int) -> LedgerCorrupt:
        return LedgerCorrupt(
            f"{self._path}: entry {entry_id} at byte {at} is damaged, so the ledger is not offloaded; "
            "see 'magnetar ledger verify'",
            at=at,
        )
