"""Ledgers of the files engine as streams: a source of entries, and a writer of new ledgers. All I/O is in threads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from magnetar.ledger.compaction.runs import Chunks, EntrySource
from magnetar.ledger.errors import LedgerCorrupt, StorageFull
from magnetar.ledger.files.ledger_file import LedgerFile, as_storage_error
from magnetar.ledger.files.recovery import describe
from magnetar.ledger.files.shared import EngineParts
from magnetar.ledger.files.walk import Walked, walk
from magnetar.ledger.formats.layout import (
    FRAME_BYTES,
    HEADER_BYTES,
    encode_header,
    frame_head,
    index_path,
    ledger_path,
)
from magnetar.ledger.formats.sparse import SparseIndex
from magnetar.ledger.port import LedgerSummary, LedgerWriter, NewEntry
from magnetar.records.compression import Buffer

T = TypeVar("T")
CHUNK_BYTES = 4 << 20
WRITE_BYTES = 1 << 20
_NO_END = 1 << 62


class LedgerFileWriter(LedgerWriter):
    """Writes a ledger's file in large pieces; its index comes with the end."""

    frame_bytes = FRAME_BYTES

    def __init__(self, shared: EngineParts, ledger_id: int, first_offset: int) -> None:
        self.ledger_id = ledger_id
        self.index = SparseIndex(self.ledger_id, first_offset)
        self._shared = shared
        self._path = ledger_path(shared.root, self.ledger_id)
        self._summary = LedgerSummary(self.ledger_id, first_offset, created_ms=shared.clock())
        self._parts: list[Buffer] = [encode_header(self.ledger_id, self._summary.created_ms)]
        self._size, self._at = HEADER_BYTES, 0

    async def append(self, entries: Sequence[NewEntry]) -> None:
        size, room = sum(len(data) for data, _, _ in entries), self._shared.room
        if not room.has(size):
            raise StorageFull(
                f"no room on the disk for a copy of a ledger: {size:,} bytes more were to be written"
            )
        room.take(size)

        def append() -> None:
            for data, last_offset, latest in entries:
                self._add(data, last_offset, latest)
                if self._size >= WRITE_BYTES:
                    self._write()

        await _in_thread(self._shared, append)

    def _add(self, data: Buffer, last_offset: int, latest: int) -> None:
        index, length = self.index, len(data)
        self._parts += (frame_head(self.ledger_id, index.entries, b"", [data], length), data)
        self._size += FRAME_BYTES + length
        index.add(FRAME_BYTES + length, last_offset + 1 - index.next_offset, latest)

    def _write(self) -> None:
        file = self._shared.disk.open(self._path, create=True)
        try:
            file.write(self._parts, self._at)
        finally:
            file.close()
        self._at += self._size
        self._parts, self._size = [], 0

    async def seal(self) -> LedgerSummary:
        def seal() -> None:
            if self._parts:
                self._write()
            self._shared.disk.sync([self._path])
            self._shared.disk.replace({index_path(self._shared.root, self.ledger_id): self.index.encode()})

        await _in_thread(self._shared, seal)
        describe(self._summary, self.index)
        return self._summary

    async def discard(self) -> None:
        # The metadata names it until another draft is named; then, or when the log is opened, it is not there any more.
        self._shared.remove_later([self.ledger_id])


class FilesSource(EntrySource):
    """Entries as they lie in the files of ledgers, read in large pieces.

    ``dirty`` open the ledgers that were not compacted yet, ``clean`` the compacted one.
    """

    def __init__(
        self,
        shared: EngineParts,
        dirty: Sequence[Callable[[], Awaitable[LedgerFile]]],
        clean: Callable[[], Awaitable[LedgerFile]] | None,
        from_offset: int,
        check_open: Callable[[], None],
    ) -> None:
        self._shared = shared
        self._dirty = dirty
        self._clean = clean
        self._from_offset = from_offset
        self._check_open = check_open

    async def dirty(self, up_to: int) -> Chunks:
        for ledger_of in self._dirty:
            ledger = await ledger_of()
            at, entry_id = ledger.index.before_offset(self._from_offset)
            async for entries in self._stretch(ledger, at, entry_id, self._from_offset, up_to):
                yield entries

    async def copies(self) -> Chunks:
        if self._clean is not None:
            ledger = await self._clean()
            async for entries in self._stretch(ledger, HEADER_BYTES, 0, -1, _NO_END):
                yield entries

    async def _stretch(self, ledger: LedgerFile, at: int, entry_id: int, offset: int, up_to: int) -> Chunks:
        """Return the entries from a place on that hold ``offset`` and later ones, below ``up_to``."""
        end, want = ledger.index.end, CHUNK_BYTES
        while at < end:
            self._check_open()
            size = min(want, end - at)
            walked = await self._walked(ledger, size, at, entry_id, offset, up_to)
            if walked.entries:
                yield walked.entries
            if walked.at > at:
                at, entry_id, want = walked.at, walked.entry_id, CHUNK_BYTES
            elif not walked.short_by:
                return
            elif at + size == end:
                raise LedgerCorrupt(f"{ledger.path}: entry {entry_id} at byte {at} runs past the end")
            else:
                want = size + walked.short_by

    async def _walked(
        self, ledger: LedgerFile, size: int, at: int, entry_id: int, offset: int, up_to: int
    ) -> Walked:
        path = ledger.path

        def work() -> Walked:
            data = memoryview(ledger.read_apart(size, at))
            if len(data) < size:
                raise LedgerCorrupt(f"{path}: ends at byte {at + len(data)}, not at {at + size}")
            return walk(
                data, at, ledger.ledger_id, entry_id, offset=offset, max_bytes=_NO_END, up_to=up_to, path=path
            )

        return await _in_thread(self._shared, work)


async def _in_thread(shared: EngineParts, work: Callable[[], T]) -> T:
    try:
        return await shared.work.in_thread(work)
    except OSError as error:
        raise as_storage_error(error) from error
