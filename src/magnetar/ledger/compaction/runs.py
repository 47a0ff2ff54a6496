"""One run of a compaction: two passes over a log's entries make a new compacted ledger.

The first pass reads what was not compacted yet (the *dirty* part) and notes the last offset of every key, as many as
the map's memory can hold; the last entry that fits is the *horizon*. If it meets pieces of chunked messages that began
before, it searches the existing copies for these. The second pass copies, from the existing compacted ledger and from
the dirty part up to the horizon, what no later message supersedes. The copies retain offsets and, in their heads,
positions.

Entries come as a stream and go to a `LedgerWriter`, so this runs on every engine; a `Worker` does the passes, away from
the event loop. Nothing that exists is changed here, so whenever it ends early, all is as it was.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field

from magnetar.ledger.compaction.job import Copies, Job, Worker
from magnetar.ledger.errors import LedgerError
from magnetar.ledger.port import LedgerSummary, LedgerWriter, Position, StoredEntry

Chunks = AsyncGenerator[Sequence[StoredEntry], None]
_log = logging.getLogger("magnetar.ledger")


class KeysDoNotFit(LedgerError):
    """One entry has more keys than the map of a compaction may hold."""


class EntrySource(ABC):
    """The source of one run's entries, some at a time. Damage and closed logs raise ``LedgerError``."""

    @abstractmethod
    def dirty(self, up_to: int) -> Chunks:
        """Return the entries that were not compacted yet, below offset ``up_to``."""

    @abstractmethod
    def copies(self) -> Chunks:
        """Return the entries of the existing compacted ledger, as they lie in it; none without one."""


@dataclass(slots=True)
class CompactedDraft:
    """A compacted ledger that is whole and durable, and not committed yet. The caller may discard it."""

    writer: LedgerWriter
    ledger: LedgerSummary
    horizon: Position
    horizon_offset: int
    removed: int = 0
    bytes_of: dict[int, int] = field(default_factory=dict)
    """How many bytes came from each ledger."""
    ended: list[int] = field(default_factory=list)
    """The offsets of markers that are omitted: of what they ended, nothing was left before."""
    unnoted: bool = False
    """Whether it has a transactional entry whose keys no run has noted."""


async def run(
    job: Job,
    source: EntrySource,
    up_to: int,
    worker: Worker,
    new_ledger: Callable[[], Awaitable[LedgerWriter]],
) -> CompactedDraft | None:
    """Write the new compacted ledger; None if there was nothing to compact below ``up_to``. Raises ``LedgerError``."""
    await worker.begin(job)
    try:
        horizon = await _noted(job, source.dirty(up_to), worker)
        if horizon is None:
            return None
        if await worker.looks_back():
            async with aclosing(_ahead(source.copies())) as chunks:
                async for entries in chunks:
                    await worker.look_back(entries)
        writer = await new_ledger()
        try:
            return await _written(source, horizon, worker, writer)
        except BaseException:
            await writer.discard()
            raise
    finally:
        await worker.end()


async def _noted(job: Job, dirty: Chunks, worker: Worker) -> StoredEntry | None:
    """Return the last entry whose keys are all noted, or None if there is no entry."""
    last = None
    async with aclosing(_ahead(dirty)) as chunks:
        async for entries in chunks:
            noted = await worker.note(entries)
            last = entries[noted - 1] if noted else last
            if last is None:
                raise KeysDoNotFit(
                    f"entry {entries[0].ledger_id}:{entries[0].entry_id} has more keys than "
                    f"log.cleaner.dedupe.buffer.size ({job.rules.buffer_bytes} bytes) holds"
                )
            if noted < len(entries):
                break
    return last


async def _written(
    source: EntrySource, horizon: StoredEntry, worker: Worker, writer: LedgerWriter
) -> CompactedDraft:
    removed, bytes_of, ended, unnoted = 0, dict[int, int](), list[int](), False
    for are_copies, stream in ((True, source.copies()), (False, source.dirty(horizon.last_offset + 1))):
        async with aclosing(_ahead(stream)) as chunks:
            async for entries in chunks:
                copies = await worker.copy(entries, are_copies=are_copies)
                removed += copies.removed
                ended += copies.ended
                unnoted = unnoted or copies.unnoted
                _tell(copies)
                _count(copies, bytes_of, writer.frame_bytes)
                if copies.entries:
                    await writer.append(copies.entries)
    ledger = await writer.seal()
    position = Position(horizon.ledger_id, horizon.entry_id)
    return CompactedDraft(writer, ledger, position, horizon.last_offset, removed, bytes_of, ended, unnoted)


def _tell(copies: Copies) -> None:
    for complaint in copies.complaints:
        _log.warning("%s", complaint)


def _count(copies: Copies, bytes_of: dict[int, int], frame_bytes: int) -> None:
    for entry, origin in zip(copies.entries, copies.origins, strict=True):
        bytes_of[origin] = bytes_of.get(origin, 0) + frame_bytes + len(entry.data)


async def _ahead(chunks: Chunks) -> Chunks:
    """Pass entries on, and meanwhile read the next ones."""

    async def following() -> Sequence[StoredEntry] | None:
        return await anext(chunks, None)

    reading = asyncio.ensure_future(following())
    try:
        while (entries := await reading) is not None:
            reading = asyncio.ensure_future(following())
            yield entries
    finally:
        reading.cancel()
        with suppress(asyncio.CancelledError, LedgerError):
            await reading
        await chunks.aclose()
