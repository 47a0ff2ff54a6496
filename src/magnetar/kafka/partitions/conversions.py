"""What a Kafka consumer gets of entries of any format: record batches, many entries converted at once.

A batch in format ``kafka`` is neither copied nor looked at here. Pulsar's entries that follow each other share a record
batch (`magnetar.records.joined`). Large conversions run away from the event loop, and what was converted for one
consumer is kept for the next, up to a bound.

What is large goes by what entries unpack to, and by their messages: a batch of a few KB may hold 64 MB. Those that
unpack to very much are converted one at a time, so that they take the memory of one, and leave threads to the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, Protocol

from magnetar.kafka.partitions.formats import Batch
from magnetar.ledger.port import StoredEntry
from magnetar.records.check import TakesLong
from magnetar.records.chunks import Chunk, nothing, piece_in
from magnetar.records.compression import MAX_DECOMPRESSED_BYTES
from magnetar.records.entry import kafka_payload_at
from magnetar.records.errors import CorruptBatch, RecordsError
from magnetar.records.pulsar_plain import UnreadableBatch, unpacked_bytes

if TYPE_CHECKING:
    from magnetar.records.schema_ids import SchemaPrefix

_log = logging.getLogger("magnetar.kafka")

CACHED_BYTES = 16 << 20
_INLINE_BYTES = 64 << 10  # more than this is converted in a thread, while the event loop goes on
_VERY_LARGE_BYTES = 4 << 20  # beyond what a fetch asks for: few entries that unpack to very much
_COPIED_INLINE_BYTES = 2 << 20  # unless it is little more than a copy: that takes well under a millisecond
_MAX_TOLD = 1000
_NO_BOUND = 1 << 62


class FrameOf(Protocol):
    """What is to stand before the keys and values of an entry's records."""

    async def __call__(self, entry: StoredEntry, *, whole: bool = False) -> SchemaPrefix | None:
        """Tell it of one entry; a piece of a message has none unless it stands for the ``whole``."""
        ...


class ConvertedPart(NamedTuple):
    """The record batches of the next ``entries`` entries, which are ``stored`` bytes.

    A ``piece`` of a larger message has a batch without records, as long as nobody knows better
    (`magnetar.kafka.partitions.chunked`).
    """

    batch: Batch
    entries: int
    stored: int
    piece: Chunk | None = None


class _Run(NamedTuple):
    """What was converted at once lies in one piece of memory, and is let go at once."""

    keys: list[tuple[int, int, int]]
    bytes: int


class BatchConversions:
    """Record batches of entries in other formats than ``kafka``; the newest stay at hand, by ledger and entry id."""

    def __init__(
        self,
        most_bytes: int = CACHED_BYTES,
        *,
        chunked_bytes: int = 0,
        charge: Callable[[int], None] = lambda nbytes: None,
    ) -> None:
        self._charge = (
            charge  # is told what conversions under way take, where that is much; negative: no longer
        )
        self._most_bytes = most_bytes
        self.chunked_bytes = chunked_bytes
        """How large a message may be whose pieces are to be told as such."""
        self._kept: dict[tuple[int, int, int], tuple[ConvertedPart, int]] = {}
        self._runs: OrderedDict[int, _Run] = OrderedDict()
        self._next_run = 0
        self._told: set[tuple[int, int]] = set()
        self._very_large = asyncio.Lock()
        self.bytes = 0

    async def batches_of(
        self, entries: Sequence[StoredEntry], max_bytes: int = 1 << 62, frame_of: FrameOf | None = None
    ) -> list[Batch]:
        """Return the batches of `parts_of`."""
        return [part.batch for part in await self.parts_of(entries, max_bytes, frame_of)]

    async def parts_of(
        self, entries: Sequence[StoredEntry], max_bytes: int = 1 << 62, frame_of: FrameOf | None = None
    ) -> list[ConvertedPart]:
        """Return the entries' record batches, up to ``max_bytes`` but one at least, or up to one that cannot be read.

        ``frame_of`` is asked for each entry that has to be converted. Raises ``RecordsError`` if it is the first that
        cannot be read.
        """
        parts: dict[int, ConvertedPart | RecordsError] = {}
        missing: list[int] = []
        number = 0
        while number < len(entries):
            entry = entries[number]
            at = kafka_payload_at(entry.data)
            part = ConvertedPart(entry.data[at:], 1, len(entry.data)) if at >= 0 else self._take(entry)
            if part is None:
                missing.append(number)
                number += 1
            else:
                parts[number] = part
                number += part.entries
        if missing:
            at = 0
            wanted = [entries[number] for number in missing]
            frames = [None if frame_of is None else await frame_of(entry) for entry in wanted]
            for made in await self._made(wanted, frames, max_bytes):
                parts[missing[at]] = made
                at += 1 if isinstance(made, RecordsError) else made.entries
        return _in_order(parts, max_bytes)

    async def _made(
        self, entries: list[StoredEntry], frames: list[SchemaPrefix | None], max_bytes: int
    ) -> list[ConvertedPart | RecordsError]:
        work = partial(convert, entries, frames, max_bytes, self.chunked_bytes)
        try:
            made = work(hurried=True, max_unpacked=_INLINE_BYTES)
        except TakesLong:
            made = await self._made_apart(entries, work)
        self._keep(entries, made)
        return made

    async def _made_apart(
        self, entries: list[StoredEntry], work: Callable[..., list[ConvertedPart | RecordsError]]
    ) -> list[ConvertedPart | RecordsError]:
        in_thread = partial(asyncio.get_running_loop().run_in_executor, None)
        try:
            return await in_thread(partial(work, max_unpacked=_VERY_LARGE_BYTES))
        except TakesLong as error:
            (unpacked,) = error.args
            async with self._very_large:
                found = self._take(entries[0])  # another consumer may have asked for the same meanwhile
                if found is not None:
                    return [found]
                self._charge(2 * unpacked)  # what was unpacked, and what is made of it
                try:
                    return await in_thread(work)
                finally:
                    self._charge(-2 * unpacked)

    def _tell(self, entry: StoredEntry, what: str, why: object) -> None:
        """Log an entry that cannot be read, once: consumers ask for it again and again."""
        key = entry.ledger_id, entry.entry_id
        if key not in self._told and len(self._told) < _MAX_TOLD:
            self._told.add(key)
            _log.warning("offsets up to %d %s: %s", entry.last_offset, what, why)

    def _take(self, entry: StoredEntry) -> ConvertedPart | None:
        kept = self._kept.get((entry.ledger_id, entry.entry_id, entry.copy))
        if kept is None:
            return None
        self._runs.move_to_end(kept[1])
        return kept[0]

    def _keep(self, entries: Sequence[StoredEntry], made: Sequence[ConvertedPart | RecordsError]) -> None:
        run = _Run([], sum(len(part.batch) for part in made if isinstance(part, ConvertedPart)))
        at = 0
        for part in made:
            entry = entries[at]
            if isinstance(part, RecordsError):
                self._tell(entry, "cannot be given to consumers", part)
                break
            key = entry.ledger_id, entry.entry_id, entry.copy
            if isinstance(part.batch, UnreadableBatch):
                why = f"entry {key[0]}:{key[1]} cannot be read: {part.batch.why}"
                self._tell(entry, "come to Kafka's consumers as one record, marked pulsar.unreadable", why)
            if run.bytes <= self._most_bytes and key not in self._kept:
                self._kept[key] = part, self._next_run
                run.keys.append(key)
            at += part.entries
        if run.keys:
            self._runs[self._next_run] = run
            self._next_run += 1
            self.bytes += run.bytes
        while self.bytes > self._most_bytes:
            _, oldest = self._runs.popitem(last=False)
            self.bytes -= oldest.bytes
            for key in oldest.keys:
                del self._kept[key]


def as_stored(entries: Sequence[StoredEntry]) -> list[Batch] | None:
    """Return the batches of entries that are all in format ``kafka``, where they lie; None if one is not."""
    out: list[Batch] = []
    for entry in entries:
        at = entry.kafka_at
        if at < 0 and (at := kafka_payload_at(entry.data)) < 0:
            return None
        out.append(entry.data[at:])
    return out


def _in_order(parts: dict[int, ConvertedPart | RecordsError], max_bytes: int) -> list[ConvertedPart]:
    """Return the parts from the first entry on, as far as they are there and no more than wanted."""
    out: list[ConvertedPart] = []
    size = number = 0
    while (part := parts.get(number)) is not None:
        if isinstance(part, RecordsError):
            if not out:
                raise part
            break
        if out and size + len(part.batch) > max_bytes:
            break
        out.append(part)
        size += len(part.batch)
        number += part.entries
    return out


def convert(
    entries: Sequence[StoredEntry],
    frames: Sequence[SchemaPrefix | None],
    max_bytes: int,
    chunked_bytes: int = 0,
    *,
    hurried: bool = False,
    max_unpacked: int = _NO_BOUND,
) -> list[ConvertedPart | RecordsError]:
    """Return the entries' record batches, or why there are none, until there are ``max_bytes`` of them.

    ``frames`` tells what is to stand before each entry's keys and values. Pieces of messages up to ``chunked_bytes``
    are told as such. The words of an error name ledger and entry. ``hurried`` raises ``TakesLong`` rather than do
    more than a copy of many bytes; so is raised where entries unpack to more than ``max_unpacked`` bytes.
    """
    size = sum(len(entry.data) for entry in entries)
    hurried = hurried and size > _INLINE_BYTES
    if hurried and (size > _COPIED_INLINE_BYTES or any(frames)):
        raise TakesLong
    results: list[ConvertedPart | RecordsError] = []
    for frame, group in groupby(zip(entries, frames, strict=True), key=lambda pair: pair[1]):
        some = [entry for entry, _ in group]
        bounds = _Bounds(max_bytes, chunked_bytes, hurried, max_unpacked)
        for part in _converted(some, frame, bounds):
            results.append(part)
            if isinstance(part, RecordsError):
                return results
            max_bytes -= len(part.batch)
        if max_bytes <= 0:
            break
    return results


class _Bounds(NamedTuple):
    max_bytes: int
    chunked_bytes: int
    hurried: bool
    max_unpacked: int


def _converted(
    entries: Sequence[StoredEntry], frame: SchemaPrefix | None, bounds: _Bounds
) -> list[ConvertedPart | RecordsError]:
    from magnetar.records.joined import joined_batches  # most brokers never convert anything

    max_bytes, chunked_bytes, hurried, max_unpacked = bounds

    whole = entries[0].data.obj
    together = all(entry.data.obj is whole and entry.at >= 0 for entry in entries)
    places = [entry.at for entry in entries] if together else []
    datas = [entry.data for entry in entries]
    joined = joined_batches(datas, max_bytes, places=places, hurried=hurried, max_unpacked=max_unpacked)
    if joined is None and hurried:
        raise TakesLong
    results: list[ConvertedPart | RecordsError] = []
    at = 0
    for batch, held in joined or ((None, 1) for _ in entries):
        if batch is None:
            unpacked = min(_unpacked(entries[at]), MAX_DECOMPRESSED_BYTES)
            if unpacked > max_unpacked:
                raise TakesLong(unpacked)
            max_unpacked -= unpacked
            result = _plain(entries[at], chunked_bytes)
        else:
            result = ConvertedPart(batch, held, sum(len(entry.data) for entry in entries[at : at + held]))
        if (
            frame is not None
            and isinstance(result, ConvertedPart)
            and not isinstance(result.batch, UnreadableBatch)
        ):
            result = _framed(result, frame)
        results.append(result)
        if isinstance(result, RecordsError):
            break
        at += held
        max_bytes -= len(result.batch)
        if max_bytes <= 0:
            break
    return results


def _unpacked(entry: StoredEntry) -> int:
    try:
        return unpacked_bytes(entry.data)
    except RecordsError:
        return len(entry.data)  # what is wrong with it, converting it will tell


def _plain(entry: StoredEntry, chunked_bytes: int) -> ConvertedPart | RecordsError:
    from magnetar.records.conversion import kafka_batch

    size = len(entry.data)
    piece = piece_in(entry.data, chunked_bytes) if chunked_bytes else None
    try:
        if piece is not None:
            return ConvertedPart(nothing(entry.data), 1, size, piece)
        return ConvertedPart(kafka_batch(entry.data), 1, size)
    except RecordsError as error:
        return CorruptBatch(f"entry {entry.ledger_id}:{entry.entry_id} cannot be read: {error}")


def _framed(part: ConvertedPart, frame: SchemaPrefix) -> ConvertedPart:
    from magnetar.records.schema_ids import framed

    return part._replace(batch=framed(part.batch, frame))


def batch_of(entry: StoredEntry) -> Batch:
    """Return the record batches of one entry; raise ``RecordsError``."""
    at = kafka_payload_at(entry.data)
    if at >= 0:
        return entry.data[at:]
    (result,) = convert([entry], [None], 1)
    if isinstance(result, RecordsError):
        raise result
    return result.batch
