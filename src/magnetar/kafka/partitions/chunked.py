"""Large messages that a Pulsar producer sent in pieces, put together for the Kafka consumers of one partition.

`magnetar.records.chunks` says what a consumer gets at each piece; here what it has to know is remembered from fetch to
fetch, or looked up in the log behind a consumer that begins in the middle.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from magnetar.kafka.partitions.conversions import ConvertedPart, FrameOf
from magnetar.kafka.partitions.formats import Batch
from magnetar.ledger.errors import OffsetOutOfRange
from magnetar.ledger.port import ManagedLedger, StoredEntry
from magnetar.records.batch import read_header
from magnetar.records.chunks import Chunk, Chunks, Gets, piece_in, whole
from magnetar.records.pulsar_plain import UnreadableBatch, plain_kafka_batch

if TYPE_CHECKING:
    from magnetar.records.schema_ids import SchemaPrefix

_READERS = 16
_FIRST_STEP = 8
_BLOCK_BYTES = 1 << 20
_PARTS_AT_A_STRETCH = 256


class _Seen(NamedTuple):
    """An entry that was looked at: its offset, its bytes, and the piece that it is, if it is one."""

    offset: int
    stored: int
    piece: Chunk | None


class _LookedBack(NamedTuple):
    """What is known at a piece when one has looked back: before it is taken note of, and after."""

    before: Chunks[int]
    after: Chunks[int]


class ChunkedMessages:
    """What consumers of one partition know of messages under way, by the offset that each fetches next."""

    def __init__(self, log: ManagedLedger, most_bytes: int, frame_of: FrameOf | None = None) -> None:
        self._log = log
        self._frame_of = frame_of
        self._most_bytes = most_bytes
        self._known: OrderedDict[int, Chunks[int]] = OrderedDict()

    def follows(self, offset: int) -> bool:
        """Return whether a fetch from here goes on behind pieces."""
        return offset in self._known

    async def batches(
        self, offset: int, entries: Sequence[StoredEntry], parts: Sequence[ConvertedPart], max_bytes: int
    ) -> list[Batch]:
        """Return the batches of ``parts``, which are ``entries`` from ``offset`` on, with messages put together."""
        # What is known here, and what was met since: from these is told again what was known before a part too many.
        # A copy before each part would cost as much as there are messages under way, for each of them.
        known = self._known.get(offset)
        start = Chunks[int](self._most_bytes) if known is None else known
        since: list[_Seen] = []
        chunks = start.copy()
        chunks.looked_back = looked_back = start.looked_back or offset <= self._log.log_start_offset
        out: list[Batch] = []
        size = number = 0
        met = False
        for part in parts:
            if len(out) % _PARTS_AT_A_STRETCH == _PARTS_AT_A_STRETCH - 1:
                await asyncio.sleep(0)
            entry, batch = entries[number], part.batch
            if part.piece is None:
                chunks.pass_by(part.stored)
            else:
                batch, found = await self._resolved(entry, part, chunks)
                if found is not None:
                    chunks, start, since, looked_back = found.after, found.before, [], True
            if out and size + len(batch) > max_bytes:
                chunks = start.copy()
                chunks.looked_back = looked_back
                _tell(chunks, since)
                break
            out.append(batch)
            since.append(_Seen(entry.last_offset, part.stored, part.piece))
            size += len(batch)
            number += part.entries
            met = met or part.piece is not None
        if chunks or met:
            self._remember(read_header(out[-1]).last_offset + 1, chunks)
        return out

    def _remember(self, offset: int, chunks: Chunks[int]) -> None:
        self._known[offset] = chunks
        self._known.move_to_end(offset)
        while len(self._known) > _READERS:
            self._known.popitem(last=False)

    async def _resolved(
        self, entry: StoredEntry, part: ConvertedPart, chunks: Chunks[int]
    ) -> tuple[Batch, _LookedBack | None]:
        """Return what a consumer gets at a piece, and what was found out for it, if one had to look back."""
        assert part.piece is not None
        found = None
        assert part.stored == len(entry.data)
        gets, places = chunks.take(part.piece, entry.last_offset, part.stored)
        if gets is Gets.UNKNOWN:
            chunks = await self._looked_back(entry.last_offset)
            found = _LookedBack(chunks.copy(), chunks)
            gets, places = chunks.take(part.piece, entry.last_offset, part.stored)
        if gets is Gets.NOTHING:
            return part.batch, found
        loop = asyncio.get_running_loop()
        if gets is Gets.WHOLE:
            pieces = await self._pieces(places[:-1])
            if pieces is not None:
                frame = None if self._frame_of is None else await self._frame_of(entry, whole=True)
                return await loop.run_in_executor(None, _whole, entry.data, pieces, frame), found
        return await loop.run_in_executor(None, plain_kafka_batch, entry.data), found

    async def _pieces(self, offsets: Sequence[int]) -> list[memoryview] | None:
        """Return the entries of these offsets; None if retention has taken one."""
        try:
            return [(await self._log.read(offset, max_bytes=1))[0].data for offset in offsets]
        except OffsetOutOfRange:
            return None

    async def _looked_back(self, offset: int) -> Chunks[int]:
        """Return what a consumer knows that comes to ``offset`` from as far before as counts."""
        log, chunks = self._log, Chunks[int](self._most_bytes, looked_back=True)
        blocks: list[list[_Seen]] = []
        start, size, step = offset, 0, _FIRST_STEP
        while start > log.log_start_offset and size < chunks.reach:
            low = max(start - step, log.log_start_offset)
            block = await self._between(low, start)
            blocks.append(block)
            size += sum(seen.stored for seen in block)
            # About as many more offsets as have the bytes that are left, and never many more than before.
            left = (chunks.reach - size) * (offset - low) // max(size, 1)
            start, step = low, max(min(2 * step, left), 1)
        for block in reversed(blocks):
            _tell(chunks, block)
            await asyncio.sleep(0)
        return chunks

    async def _between(self, low: int, high: int) -> list[_Seen]:
        """Return what matters of the entries that end in ``[low, high)``, as far as retention has left them."""
        found: list[_Seen] = []
        while low < high:
            try:
                entries = await self._log.read(low, max_bytes=_BLOCK_BYTES, up_to=high)
            except OffsetOutOfRange:
                break
            if not entries:
                break
            found += [
                _Seen(entry.last_offset, len(entry.data), piece_in(entry.data, self._most_bytes))
                for entry in entries
            ]
            low = entries[-1].last_offset + 1
            await asyncio.sleep(0)  # other clients wait meanwhile
        return found


def _tell(chunks: Chunks[int], met: Sequence[_Seen]) -> None:
    """Tell what was met, in order."""
    for seen in met:
        if seen.piece is None:
            chunks.pass_by(seen.stored)
        else:
            chunks.take(seen.piece, seen.offset, seen.stored)


def _whole(last: memoryview, pieces: Sequence[memoryview], frame: SchemaPrefix | None) -> Batch:
    batch = whole(last, pieces)
    if frame is None or isinstance(batch, UnreadableBatch):
        return batch
    from magnetar.records.schema_ids import framed

    return framed(batch, frame)
