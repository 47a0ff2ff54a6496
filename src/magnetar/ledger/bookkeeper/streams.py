"""Ledgers on bookies for compaction and cursors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from magnetar.ledger.bookkeeper.bookies import Bookies, BookieWriter
from magnetar.ledger.bookkeeper.reading import BookieReader
from magnetar.ledger.compaction.runs import Chunks, EntrySource
from magnetar.ledger.cursors.store import CursorLedgers
from magnetar.ledger.errors import LedgerCorrupt, LedgerError
from magnetar.ledger.port import LedgerSummary, LedgerWriter, NewEntry, StoredEntry
from magnetar.records.batch import UNKNOWN_TIME
from magnetar.records.compression import Buffer

_CHUNK_BYTES = 1 << 20


async def sent(writer: BookieWriter, rows: Sequence[Sequence[Buffer]]) -> None:
    """Write entries and wait until all of them are stored; raise ``LedgerError``."""
    waits: list[asyncio.Future[LedgerError | None]] = []
    for row in rows:
        waits.append(asyncio.get_running_loop().create_future())
        writer.send(row, waits[-1].set_result)
    for failed in await asyncio.gather(*waits):
        if failed is not None:
            raise failed


class CopiesWriter(LedgerWriter):
    """Writes a ledger that no log names yet."""

    def __init__(self, bookies: Bookies, writer: BookieWriter, first_offset: int, now_ms: int) -> None:
        self.ledger_id = writer.ledger_id
        self._bookies = bookies
        self._writer = writer
        self._summary = LedgerSummary(self.ledger_id, first_offset, first_offset - 1, created_ms=now_ms)

    async def append(self, entries: Sequence[NewEntry]) -> None:
        await sent(self._writer, [[each.data] for each in entries])
        summary = self._summary
        for each in entries:
            summary.entries += 1
            summary.size += len(each.data)
            summary.last_offset = each.last_offset
            summary.max_timestamp = max(summary.max_timestamp, each.max_timestamp)

    async def seal(self) -> LedgerSummary:
        await self._writer.close()
        self._summary.sealed, self._summary.min_timestamp = True, UNKNOWN_TIME
        return self._summary

    async def discard(self) -> None:
        await self._bookies.delete(self.ledger_id)


class BookieSource(EntrySource):
    """Entries as a compaction reads them, some at a time."""

    def __init__(
        self,
        dirty: Sequence[BookieReader],
        copies: BookieReader | None,
        from_offset: int,
        check_open: Callable[[], None],
    ) -> None:
        self._dirty = dirty
        self._copies = copies
        self._from_offset = from_offset
        self._check_open = check_open

    async def dirty(self, up_to: int) -> Chunks:
        for ledger in self._dirty:
            async for entries in self._some(ledger):
                wanted = [each for each in entries if self._from_offset <= each.last_offset < up_to]
                if wanted:
                    yield wanted

    async def copies(self) -> Chunks:
        if self._copies is not None:
            async for entries in self._some(self._copies):
                yield entries

    async def _some(self, ledger: BookieReader) -> Chunks:
        chunk: list[StoredEntry] = []
        size = 0
        async for entry in ledger.since(0):
            self._check_open()
            chunk.append(entry)
            size += len(entry.data)
            if size >= _CHUNK_BYTES:
                yield chunk
                chunk, size = [], 0
        if chunk:
            yield chunk


class CursorStates(CursorLedgers):
    """States of cursors that are too large for the metadata: the last entry of a ledger each, as Pulsar has it."""

    def __init__(self, bookies: Bookies, background: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        self._bookies = bookies
        self._background = background

    async def write(self, state: bytes) -> int:
        writer = await self._bookies.create({"application": b"pulsar", "component": b"managed-ledger"})
        await sent(writer, [[state]])
        await writer.close()
        return writer.ledger_id

    async def read(self, ledger_id: int) -> bytes:
        found = await self._bookies.recover(ledger_id)
        if found.last_entry < 0:
            raise LedgerCorrupt(f"ledger {ledger_id}, which should hold a cursor's state, is empty")
        (state,) = await self._bookies.read(ledger_id, found.last_entry, found.last_entry)
        return state

    def forget(self, ledger_ids: Iterable[int]) -> None:
        for ledger_id in ledger_ids:
            self._background(self._bookies.delete(ledger_id))
