"""Ledgers of bookies on their way to tiered storage, and read from there: the same two objects as the files engine's.

The checksums and places that the files engine takes from a ledger's file are those that this file would have, so every
reader of offloaded ledgers reads these. Their ids are BookKeeper's, so positions stay the same.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from magnetar.ledger.bookkeeper.closed import as_file
from magnetar.ledger.bookkeeper.reading import UNKNOWN_BEFORE, BookieReader
from magnetar.ledger.errors import LedgerCorrupt, LedgerError
from magnetar.ledger.formats.layout import FRAME, FRAME_BYTES, frame_crc, read_frame
from magnetar.ledger.formats.sparse import SparseIndex
from magnetar.ledger.tiers.blocks import DataBlock, OffloadedIndex, block_parts
from magnetar.ledger.tiers.tiering import LogTiering, leaving
from magnetar.ledger.values import LedgerSummary, StoredEntry
from magnetar.records.entry import latest_timestamp

if TYPE_CHECKING:
    from magnetar.ledger.bookkeeper.shared import BookKeeperParts, WrittenLog
    from magnetar.ledger.bookkeeper.tail import Tail
    from magnetar.ledger.formats.info import ManagedLedgerInfo
    from magnetar.ledger.tiers.offloaded import OffloadedBlocks
    from magnetar.ledger.tiers.place import TierPlace
    from magnetar.ledger.tiers.tiers import Tiers

GRACE_MS = 3_600_000
"""How long to wait before deleting objects of a failed attempt: its owner may not know yet that it lost the log."""
LEAVING = "leaving_bookies"
"""A property of the list: ledgers that lie in tiered storage alone, which bookies may still have as well."""
_MOST_POINTS = 2048
_log = logging.getLogger("magnetar.ledger")


class BookKeeperTiering(LogTiering):
    """The tiering of one log."""

    def __init__(self, log: WrittenLog, reader_of: Callable[[LedgerSummary], BookieReader]) -> None:
        super().__init__(log.engine, log.name, log.list)
        self._engine: BookKeeperParts = log.engine
        self._log = log
        self._reader_of = reader_of
        self._left: set[int] = set()
        """Ledgers that lie in tiered storage alone, and whose deletion bookies have not confirmed."""

    async def _export(
        self, tiers: Tiers, place: TierPlace, uuid: str, summary: LedgerSummary, attributes: Mapping[str, str]
    ) -> int:
        from magnetar.ledger.tiers.writing import write_objects

        feed = EntryFeed(self._reader_of(summary), tiers.settings.block_bytes)
        blocks = BookieBlocks(feed, summary, tiers.settings.block_bytes)
        try:
            return await tiers.writing(
                lambda: write_objects(tiers.store(place), uuid, summary, blocks, attributes)
            )
        finally:
            feed.end()  # a thread must not wait for a loop that requests nothing any more

    async def delete_local(self, ledger_ids: Collection[int]) -> None:
        """Do as `ManagedLedger.delete_local`. A ledger that this broker could not read there stays here as well."""
        readable: list[int] = []
        for each in leaving(self._list.info.ledgers, ledger_ids):
            try:
                await TieredReader(each, self._engine).ready()
            except LedgerCorrupt as error:
                _log.error("%s: ledger %d stays on bookies as well: %s", self._name, each.ledger_id, error)
            else:
                readable.append(each.ledger_id)
        await super().delete_local(readable)

    def _goes(self, info: ManagedLedgerInfo, ledger_ids: Sequence[int]) -> None:
        if ledger_ids:
            info.properties[LEAVING] = ",".join(map(str, sorted({*self._left, *ledger_ids})))

    def _remove(self, ledger_ids: Sequence[int]) -> None:
        self._left.update(ledger_ids)
        self.remove_left()

    def remove_left(self) -> None:
        """Delete from bookies the ledgers that lie in tiered storage alone, and were not known to be gone."""
        for ledger_id in tuple(self._left):
            self._log.readers.pop(ledger_id, None)
            self._engine.background(self._removed(ledger_id))

    async def _removed(self, ledger_id: int) -> None:
        await self._engine.bookies.delete(ledger_id)
        self._left.discard(ledger_id)
        if not self._left:
            with suppress(LedgerError):  # the next owner of the log asks bookies again
                await self._list.change(self._nothing_is_left)

    def _nothing_is_left(self, info: ManagedLedgerInfo) -> bool:
        return not self._left and info.properties.pop(LEAVING, None) is not None

    def opened(self) -> None:
        """Continue what an earlier owner may not have finished."""
        said = self._list.info.properties.get(LEAVING, "")
        self._left = {int(each) for each in said.split(",") if each}
        self.remove_left()


class EntryFeed:
    """A ledger's entries for a thread that waits for them: read on the loop, one request ahead of the thread."""

    def __init__(self, reader: BookieReader, about_bytes: int) -> None:
        self._reader = reader
        self._about_bytes = about_bytes
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._ended = False
        self._coming: concurrent.futures.Future[list[StoredEntry]] | None = None

    def chunks(self) -> Iterator[list[StoredEntry]]:
        """Yield all of them; raise ``LedgerError``, or ``CancelledError`` after `end`."""
        coming, entries = self._ask(0), self._reader.entries
        while True:
            chunk = coming.result()
            following = chunk[-1].entry_id + 1
            if following >= entries:
                yield chunk
                return
            coming = self._ask(following)
            yield chunk

    def _ask(self, entry_id: int) -> concurrent.futures.Future[list[StoredEntry]]:
        with self._lock:
            if self._ended:
                raise concurrent.futures.CancelledError
            question = self._reader.some(entry_id, self._about_bytes)
            self._coming = asyncio.run_coroutine_threadsafe(question, self._loop)
            return self._coming

    def end(self) -> None:
        """Release the thread, wherever it waits."""
        with self._lock:
            self._ended = True
            if self._coming is not None:
                self._coming.cancel()


class BookieBlocks:
    """The blocks of a ledger's data object, made of entries on bookies; ``index`` has their places."""

    def __init__(self, feed: EntryFeed, summary: LedgerSummary, block_bytes: int) -> None:
        self.entry_bytes = 0
        self.index = OffloadedIndex(summary.ledger_id)
        self._feed = feed
        self._summary = summary
        self._block_bytes = block_bytes
        self._own = SparseIndex(summary.ledger_id, summary.first_offset)

    def written(self) -> Iterator[bytes]:
        """Yield the data object, a block at a time; raise ``LedgerCorrupt`` if it contradicts the metadata."""
        pending: list[StoredEntry] = []
        size = 0
        for chunk in self._feed.chunks():
            for entry in chunk:
                pending.append(entry)
                size += len(entry.data)
                if size >= self._block_bytes:
                    yield self._block(pending)
                    pending, size = [], 0
        if pending:
            yield self._block(pending)
        own, summary = self._own, self._summary
        found = own.entries, own.next_offset - 1, self.entry_bytes
        if found != (summary.entries, summary.last_offset, summary.size):
            raise LedgerCorrupt(
                f"ledger {summary.ledger_id} has {found[0]} entries of {found[2]} bytes, the last one of offset"
                f" {found[1]}, where {summary.entries} of {summary.size} bytes are due, up to offset"
                f" {summary.last_offset}: it is not offloaded"
            )
        self.index.own = own.encode()

    def _block(self, entries: Sequence[StoredEntry]) -> bytes:
        index, own = self.index, self._own
        first, own_start = own.entries, own.end
        checksums = []
        for entry in entries:
            checksums.append(frame_crc(index.ledger_id, entry.entry_id, entry.data))
            messages = entry.last_offset + 1 - own.next_offset
            own.add(FRAME_BYTES + len(entry.data), messages, latest_timestamp(entry.data))
            self.entry_bytes += len(entry.data)
        made = b"".join(block_parts(first, [entry.data for entry in entries], checksums))
        start = index.data_bytes
        index.blocks.append(DataBlock(first, start, start + len(made), own_start, own.end))
        index.data_bytes += len(made)
        return made


class TieredReader(BookieReader):
    """A ledger that is read from tiered storage."""

    is_tiered = True

    def __init__(self, summary: LedgerSummary, engine: BookKeeperParts, tail: Tail | None = None) -> None:
        tail = engine.tail if tail is None else tail
        super().__init__(
            summary.ledger_id, summary.first_offset, self._from_blocks, tail, summary.entries, summary.size
        )
        self._summary = summary
        self._engine = engine
        self._blocks: OffloadedBlocks | None = None
        self._opening = asyncio.Lock()

    async def ready(self) -> None:
        await self._opened()

    async def _opened(self) -> OffloadedBlocks:
        async with self._opening:
            if self._blocks is None:
                from magnetar.ledger.tiers.offloaded import open_blocks

                self._blocks = await open_blocks(self._engine.tiers, as_file(self._summary))
                index = self._blocks.objects.index
                step = -(-len(index.entry_ids) // _MOST_POINTS) or 1
                for at in range(step, len(index.entry_ids), step):
                    latest = index.times[at]
                    self.points.add(
                        index.entry_ids[at], index.offsets[at], latest if latest >= 0 else UNKNOWN_BEFORE
                    )
            return self._blocks

    async def _from_blocks(self, first: int, last: int) -> list[bytes]:
        """Return entries from one on, as many as are requested and in its block."""
        blocks = await self._opened()
        found = blocks.objects.found.blocks
        number = bisect_right(found, first, key=lambda block: block.first_entry) - 1
        block = found[number]
        (data,) = await blocks.some(number, number)
        view = memoryview(data)
        at, entry_id = blocks.objects.index.before_entry(first)
        at -= block.own_start
        if at < 0:  # the point lies in an earlier block
            at, entry_id = 0, block.first_entry
        entries: list[bytes] = []
        while at < len(view) and entry_id <= last:
            if entry_id < first:
                at += FRAME_BYTES + FRAME.unpack_from(view, at)[0]
                entry_id += 1
                continue
            frame = read_frame(view, at, self.ledger_id, entry_id)
            if frame is None:
                raise LedgerCorrupt(
                    f"{blocks.objects.where}: entry {self.ledger_id}:{entry_id} is damaged", at=block.start
                )
            entries.append(bytes(frame.entry))
            at += FRAME_BYTES + len(frame.entry)
            entry_id += 1
        if not entries:
            raise LedgerCorrupt(
                f"{blocks.objects.where}: entry {self.ledger_id}:{first} is not in its block", at=block.start
            )
        return entries
