"""Take a log over from its previous owner: its last ledger is fenced, its list read and claimed.

The list is Pulsar's ManagedLedgerInfo. If a Pulsar broker wrote it, ledgers do not say which offsets they have: the
first and the last entry of each are read then. The entries after the last *checkpoint* of a ledger that was left open
are read for their times.

A checkpoint is a node below ``/magnetar/checkpoints``: what was known of the open ledger, and the owner's snapshot.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple
from uuid import uuid4

from magnetar.ledger.bookkeeper.bookies import Bookies
from magnetar.ledger.bookkeeper.reading import BookieReader
from magnetar.ledger.bookkeeper.tail import Tail
from magnetar.ledger.epoch_starts import begun
from magnetar.ledger.errors import LedgerCorrupt, LedgerError, metadata_failed
from magnetar.ledger.formats.info import ROOT, ManagedLedgerInfo, decode_info, encode_info, path_of
from magnetar.ledger.ledger_list import EPOCH, NEXT, STARTS, check_epoch
from magnetar.ledger.port import LedgerSummary, Snapshot, StoredEntry
from magnetar.metadata import MUST_NOT_EXIST, BadVersion, MetadataError, MetadataStore, MetadataUncertain, Put
from magnetar.metadata.ops import Stored
from magnetar.metadata.parts import delete_value, get_value, is_head, is_whole, put_value
from magnetar.records.batch import UNKNOWN_TIME
from magnetar.records.entry import decode_entry, latest_timestamp

CHECKPOINTS = "/magnetar/checkpoints"
OWNER, FIRST, TRIMMED, DRAFT, INDEX = "boot", "first_offset", "compacted_from", "compacting", "index"
"""Properties of the list. ``index`` is Pulsar's: the last index of the ledgers before the open one."""
_TRIES = 5
_CHECKPOINT = struct.Struct(">4sqqqqq")
_MAGIC = b"MGC1"
_KEPT_BYTES = 1 << 20
"""For a log that is opened: how many bytes that were read in its last ledger to retain in memory."""


@dataclass(slots=True)
class LogCheckpoint:
    """The summary of a ledger's first entries, and a snapshot."""

    ledger_id: int
    entries: int
    max_timestamp: int
    min_timestamp: int
    snapshot: Snapshot

    def encode(self) -> bytes:
        """Return its stored form."""
        numbers = (self.ledger_id, self.entries, self.max_timestamp, self.min_timestamp, self.snapshot.offset)
        return _CHECKPOINT.pack(_MAGIC, *numbers) + self.snapshot.data

    @classmethod
    def decode(cls, data: bytes) -> LogCheckpoint | None:
        """Return the checkpoint that `encode` wrote, None for anything else."""
        if len(data) < _CHECKPOINT.size or not data.startswith(_MAGIC):
            return None
        _, ledger_id, entries, latest, earliest, offset = _CHECKPOINT.unpack_from(data)
        return cls(ledger_id, entries, latest, earliest, Snapshot(offset, data[_CHECKPOINT.size :]))


class CheckpointNode:
    """The checkpoint of one log, which only its owner writes."""

    def __init__(self, store: MetadataStore, name: str) -> None:
        self.path = CHECKPOINTS + path_of(name).removeprefix(ROOT)
        self._store = store
        self._version = MUST_NOT_EXIST
        self._is_whole = True
        """Whether the stored value of that version is known not to be split into parts."""
        self._one_at_a_time = asyncio.Lock()
        self._newest = -1

    async def load(self) -> LogCheckpoint | None:
        """Return the stored checkpoint."""
        try:
            stored = await get_value(self._store, self.path)
        except MetadataError as error:
            raise metadata_failed(error) from error
        self._version = MUST_NOT_EXIST if stored is None else stored.version
        self._is_whole = stored is None or is_whole(stored.value)
        return None if stored is None else LogCheckpoint.decode(stored.value)

    async def found(self, stored: Stored | None) -> LogCheckpoint | None:
        """Return the checkpoint in a node that was read already."""
        if stored is not None and is_head(stored.value):
            return await self.load()
        self._version = MUST_NOT_EXIST if stored is None else stored.version
        self._is_whole = True
        return None if stored is None else LogCheckpoint.decode(stored.value)

    async def keep(self, checkpoint: LogCheckpoint) -> None:
        """Store another one, unless there is a later one by now: its writer owns the log and knows more."""
        async with self._one_at_a_time:
            if checkpoint.snapshot.offset < self._newest:
                return
            value = checkpoint.encode()
            try:
                try:
                    await self._put(value)
                except BadVersion:  # a former owner was late, or there is another one by now
                    there = await self.load()
                    if there is not None and there.snapshot.offset >= checkpoint.snapshot.offset:
                        return
                    await self._put(value)
                self._newest = checkpoint.snapshot.offset
            except BadVersion:
                return
            except MetadataUncertain:
                await self.load()
            except MetadataError as error:
                raise metadata_failed(error) from error

    async def _put(self, value: bytes) -> None:
        over_parts = not self._is_whole
        self._version = await put_value(self._store, self.path, value, self._version, over_parts=over_parts)
        self._is_whole = is_whole(value)

    async def drop(self) -> None:
        """Delete it."""
        if await self.load() is not None or self._version >= 0:
            try:
                await delete_value(self._store, self.path, self._version)
            except BadVersion:
                return
            except MetadataError as error:
                raise metadata_failed(error) from error


@dataclass(slots=True)
class TakenLog:
    """A log as it was found, with its ledgers sealed; the opener owns it now."""

    info: ManagedLedgerInfo
    version: int
    owner: str
    checkpoints: CheckpointNode
    snapshot: Snapshot | None
    left: list[int]
    """Ledgers that nothing refers to any more."""
    starts: str | None
    """Where leader epochs began; None if the list does not have all of them."""


class SeenNodes(NamedTuple):
    """The nodes of a log's list and of its checkpoint, as they were read."""

    info: Stored | None
    checkpoint: Stored | None


async def seen(store: MetadataStore, names: Sequence[str]) -> list[SeenNodes]:
    """Read the nodes of logs, all with few requests; raise ``MetadataError``."""
    paths = [path for name in names for path in (path_of(name), CheckpointNode(store, name).path)]
    found = await store.get_many(paths)
    return [SeenNodes(*pair) for pair in zip(found[::2], found[1::2], strict=True)]


def end_of(info: ManagedLedgerInfo) -> int:
    """Return the offset after the last message of a list whose ledgers are all sealed."""
    last = info.ledgers[-1].last_offset + 1 if info.ledgers else 0
    return max(last, int(info.properties.get(NEXT, 0)))


async def taken_over(
    store: MetadataStore, bookies: Bookies, name: str, epoch: int, tail: Tail, before: SeenNodes | None = None
) -> TakenLog:
    """Take a log from its owner; raise ``LedgerError``, ``LedgerFenced`` where a later epoch has had it.

    ``before`` has its nodes as of a moment ago. Entries that are read from the last ledger go into ``tail``.
    """
    path, checkpoints = path_of(name), CheckpointNode(store, name)
    for tries_left in reversed(range(_TRIES)):
        try:
            nodes, before = before or (await seen(store, [name]))[0], None
            stored = nodes.info
            info = ManagedLedgerInfo() if stored is None else decode_info(stored.value, name=name)
            version = MUST_NOT_EXIST if stored is None else stored.version
            check_epoch(info, name, epoch)
            kept = await checkpoints.found(nodes.checkpoint)
            left = await _settle(info, bookies, kept, name, tail)
            owner, starts = uuid4().hex, None
            if epoch:
                last_epoch = int(info.properties.get(EPOCH, 0))
                starts = begun(info.properties.get(STARTS), last_epoch, epoch, end_of(info))
                if starts is not None:
                    info.properties[STARTS] = starts
            if stored is not None:
                info.properties[OWNER] = owner
                if epoch:
                    info.properties[EPOCH] = str(epoch)
                (version,) = await store.commit([Put(path, encode_info(info), version)])
        except (
            BadVersion,
            MetadataUncertain,
        ) as error:  # another owner takes it, too, or the outcome is unknown: look again
            if not tries_left:
                raise metadata_failed(error) from error
            continue
        except MetadataError as error:
            raise metadata_failed(error) from error
        snapshot = None if kept is None else kept.snapshot
        return TakenLog(info, version, owner, checkpoints, snapshot, left, starts)
    raise AssertionError


async def _settle(
    info: ManagedLedgerInfo, bookies: Bookies, kept: LogCheckpoint | None, name: str, tail: Tail
) -> list[int]:
    """Seal all ledgers of a list and find their offsets; return those that are of no use."""
    left = [int(draft)] if (draft := info.properties.pop(DRAFT, "")) else []
    next_offset = int(info.properties.get(INDEX, -1)) + 1
    settled: list[LedgerSummary] = []
    for at, ledger in enumerate(info.ledgers):
        if not ledger.sealed and ledger.offloaded:
            raise LedgerCorrupt(
                f"managed ledger {name}: ledger {ledger.ledger_id} was offloaded by a broker of Pulsar's, and lies"
                " there alone: it has no index of offsets, and is not read here"
            )
        if not ledger.sealed:
            try:
                ledger = await _sealed(ledger, bookies, kept, next_offset if at else -1, tail)
            except LedgerError as error:
                raise type(error)(f"managed ledger {name}: {error}") from error
        if ledger.entries or ledger.compacted:
            settled.append(ledger)
            next_offset = max(
                next_offset, ledger.last_offset + 1
            )  # a repair may have given up the last entries
        else:
            left.append(ledger.ledger_id)
            next_offset = max(next_offset, ledger.first_offset)
    if info.ledgers:
        info.properties["next_offset"] = str(next_offset)
        info.properties[INDEX] = str(next_offset - 1)
    info.ledgers = settled
    return left


async def _sealed(
    ledger: LedgerSummary, bookies: Bookies, kept: LogCheckpoint | None, next_offset: int, tail: Tail
) -> LedgerSummary:
    """Return the content of a ledger that its writer left open, or whose summary another kind of broker wrote."""
    found = await bookies.recover(ledger.ledger_id)
    sealed = replace(
        ledger, sealed=True, entries=found.last_entry + 1, size=found.size, min_timestamp=UNKNOWN_TIME
    )
    if not sealed.entries:
        sealed.first_offset = max(ledger.first_offset, next_offset)
        sealed.last_offset = sealed.first_offset - 1
        return sealed
    reader = reader_of(sealed, bookies, Tail(0))
    is_pulsars = ledger.first_offset < 0
    if is_pulsars:
        first = await reader.at(0)
        sealed.first_offset = decode_entry(first.data).base_offset
    if is_pulsars and ledger.entries:
        # Pulsar notes when it closed a ledger: nothing in it was published later.
        last = await reader.at(sealed.entries - 1)
        sealed.last_offset = last.last_offset
        sealed.max_timestamp = max(ledger.created_ms, latest_timestamp(last.data))
        return sealed
    begin = 0
    if kept is not None and kept.ledger_id == ledger.ledger_id:
        begin, sealed.max_timestamp = kept.entries, kept.max_timestamp
    # Entries after the checkpoint are read for their times, and then for the states of producers.
    some: list[StoredEntry] | None = []
    size = 0
    async for entry in reader.since(min(begin, sealed.entries - 1)):
        sealed.max_timestamp = max(sealed.max_timestamp, latest_timestamp(entry.data))
        sealed.last_offset = entry.last_offset
        size += len(entry.data)
        if some is not None and size <= _KEPT_BYTES:
            some.append(entry)
        else:
            some = None
    for entry in some or ():
        tail.add(entry)
    return sealed


def reader_of(ledger: LedgerSummary, bookies: Bookies, tail: Tail) -> BookieReader:
    """Return a reader of a closed ledger."""

    async def ask(first: int, last: int) -> list[bytes]:
        return await bookies.read(ledger.ledger_id, first, last)

    return BookieReader(ledger.ledger_id, ledger.first_offset, ask, tail, ledger.entries, ledger.size)
