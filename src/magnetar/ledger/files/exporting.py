"""From a sealed ledger's file to the two objects that tiered storage has of it. Runs in a thread, in bounded pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from magnetar.ledger.errors import LedgerCorrupt, TierFailed
from magnetar.ledger.files.layout import (
    FRAME,
    FRAME_BYTES,
    HEADER_BYTES,
    check_header,
    frame_crc,
    ledger_path,
)
from magnetar.ledger.files.ledger_file import as_storage_error
from magnetar.ledger.files.recovery import sealed_index
from magnetar.ledger.offload.blocks import DataBlock, OffloadedIndex, block_parts, encode_index
from magnetar.ledger.offload.objects import (
    VERSION_ATTRIBUTE,
    ObjectStore,
    data_key,
    index_key,
)
from magnetar.ledger.offload.place import TierPlace
from magnetar.ledger.offload.tiers import Tiers
from magnetar.ledger.values import LedgerSummary
from magnetar.records.compression import Buffer

if TYPE_CHECKING:
    from magnetar.ledger.disk import Disk
    from magnetar.ledger.files.shared import EngineParts


def export(
    shared: EngineParts,
    tiers: Tiers,
    place: TierPlace,
    uuid: str,
    summary: LedgerSummary,
    attributes: Mapping[str, str],
) -> int:
    """Write a ledger's objects, with ``attributes`` besides what Pulsar wants; return how many bytes they are.

    Raises ``LedgerCorrupt`` for a damaged ledger, of which nothing is there then, and ``TierFailed``.
    """
    store = tiers.store(place)
    try:
        blocks = LedgerBlocks(shared.disk, shared.root, summary, tiers.settings.block_bytes)
        return write_objects(store, uuid, summary, blocks, attributes)
    except OSError as error:
        raise as_storage_error(error) from error


class WrittenBlocks(Protocol):
    """The blocks of a data object; ``index`` and ``entry_bytes`` are whole when all of them have been taken."""

    index: OffloadedIndex
    entry_bytes: int

    def written(self) -> Iterable[Buffer]:
        """Yield the data object, a block at a time."""


def write_objects(
    store: ObjectStore,
    uuid: str,
    summary: LedgerSummary,
    blocks: WrittenBlocks,
    attributes: Mapping[str, str],
) -> int:
    """Write a ledger's two objects and ask whether they are there; return how many bytes they are.

    Raises what ``blocks`` raises, of which nothing is there then, and ``TierFailed``. Runs in a thread.
    """
    key, index_name = data_key(uuid, summary.ledger_id), index_key(uuid, summary.ledger_id)
    attributes = {VERSION_ATTRIBUTE: "1", **attributes}
    store.put(key, blocks.written(), attributes)
    index = encode_index(
        blocks.index, entries=summary.entries, length=blocks.entry_bytes, created_ms=summary.created_ms
    )
    store.put(index_name, [index], attributes)
    for name, size in ((key, blocks.index.data_bytes), (index_name, len(index))):
        there = store.size(name)
        if there != size:
            raise TierFailed(
                f"tiered storage {store.where}: {name} has {there} bytes there, and {size} were written"
            )
    return blocks.index.data_bytes + len(index)


class LedgerBlocks:
    """The blocks of a data object, made of a ledger's file as they are asked for; ``index`` tells where they lie."""

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
