"""Compaction of one log, away from the event loop: two passes over its entries give a new compacted ledger.

The first pass reads what was not compacted yet (the *dirty* part) and notes the last offset of every key, as many as
the map's memory holds; the last entry that fits is the *horizon*. The second one copies, from the compacted ledger
there is and from the dirty part up to the horizon, what no later message supersedes (Kafka's and PIP-14's rules; see
`magnetar.records.compaction`). The copies keep offsets and, in their heads, positions.

Nothing that exists is changed here, so whenever it ends early, all is as it was.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from magnetar.ledger.disk import Disk, File
from magnetar.ledger.errors import LedgerClosed, LedgerCorrupt, LedgerError
from magnetar.ledger.files.layout import FRAME_BYTES, encode_header, frame_head
from magnetar.ledger.files.sparse import SparseIndex
from magnetar.ledger.files.walk import walk
from magnetar.ledger.port import CompactionRules, Position, StoredEntry
from magnetar.records.compaction import (
    Copied,
    Keeping,
    KeyMap,
    Opened,
    behind_broker_head,
    bits_of,
    copied_from,
    copied_head,
    count_of,
    kept_rows,
    open_entry,
    rewritten,
    there_were,
)
from magnetar.records.compression import Buffer
from magnetar.records.entry import index_of, latest_timestamp
from magnetar.records.errors import RecordsError

CHUNK_BYTES = 4 << 20
WRITE_BYTES = 1 << 20
_NO_END = 1 << 62
_log = logging.getLogger("magnetar.ledger")


class KeysDoNotFit(LedgerError):
    """One entry has more keys than the map of a compaction may hold."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes of a ledger's file to read entries from: those from ``offset`` on."""

    path: Path
    ledger_id: int
    at: int
    entry_id: int
    end: int
    offset: int = -1


@dataclass(slots=True)
class Plan:
    """What to compact. ``clean`` is the compacted ledger there is; ``up_to`` where the dirty part ends."""

    rules: CompactionRules
    clean: Stretch | None
    dirty: Sequence[Stretch]
    first_offset: int
    """Copies of messages before it are let go."""
    up_to: int
    messages: int
    """How many the dirty part holds at most."""
    path: Path
    ledger_id: int
    begins: int
    """The offset with which the new ledger begins."""
    now_ms: int
    may_go_on: Callable[[], bool]


@dataclass(slots=True)
class Draft:
    """A compacted ledger that is whole and durable, and does not count yet."""

    index: SparseIndex
    horizon: Position
    horizon_offset: int
    removed: int = 0
    bytes_of: dict[int, int] = field(default_factory=dict)
    """How many bytes came of each ledger."""


def run(plan: Plan, disk: Disk) -> Draft | None:
    """Write the new compacted ledger; None if there was nothing to compact. Raises ``LedgerError`` or ``OSError``."""
    keys = KeyMap(plan.messages, plan.rules.buffer_bytes)
    horizon = _note_keys(plan, disk, keys)
    if horizon is None:
        return None
    draft = Draft(
        SparseIndex(plan.ledger_id, plan.begins),
        Position(horizon.ledger_id, horizon.entry_id),
        horizon.last_offset,
    )
    file = disk.open(plan.path, create=True)
    try:
        writer = _Writer(file, draft, plan.now_ms)
        for entry, copied in _all(plan, disk, horizon.last_offset):
            if not plan.may_go_on():
                raise LedgerClosed("the log was closed while it was being compacted")
            _copy(plan, keys, writer, entry, copied)
        writer.finish()
    finally:
        file.close()
    disk.sync([plan.path])
    return draft


def _note_keys(plan: Plan, disk: Disk, keys: KeyMap) -> StoredEntry | None:
    """Give the last entry whose keys are all noted, or None if there is no entry."""
    last = None
    for stretch in plan.dirty:
        for entry in entries_of(disk, stretch, plan.up_to):
            if not plan.may_go_on():
                raise LedgerClosed("the log was closed while it was being compacted")
            opened = _opened(entry, keys)
            if opened is not None and not keys.note(opened):
                if last is None:
                    raise KeysDoNotFit(
                        f"entry {entry.ledger_id}:{entry.entry_id} has more keys than log.cleaner.dedupe.buffer.size "
                        f"({plan.rules.buffer_bytes} bytes) holds"
                    )
                return last
            last = entry
    return last


def _all(plan: Plan, disk: Disk, horizon_offset: int) -> Iterator[tuple[StoredEntry, Copied]]:
    """Give the copies there are and the dirty entries, each with whence it comes."""
    if plan.clean is not None:
        for entry in entries_of(disk, plan.clean, _NO_END):
            came = copied_from(entry.data)
            yield entry._replace(ledger_id=came.ledger_id, entry_id=came.entry_id), came
    for stretch in plan.dirty:
        for entry in entries_of(disk, stretch, min(plan.up_to, horizon_offset + 1)):
            yield entry, Copied(entry.ledger_id, entry.entry_id, plan.now_ms)


def _copy(plan: Plan, keys: KeyMap, writer: _Writer, entry: StoredEntry, copied: Copied) -> None:
    if entry.last_offset < plan.first_offset:
        return
    opened = _opened(entry, keys)
    if opened is None:
        writer.add(entry, copied, [behind_broker_head(entry.data)])
        return
    rules = plan.rules
    tombstones = rules.tombstones_ms >= 0 and plan.now_ms < copied.since_ms + max(rules.tombstones_ms, 1)
    keeping = Keeping(rules.null_keys, tombstones, empty_deletes=rules.tombstones_ms < 0)
    keeps = [kept_rows(part, keys, keeping) for part in opened.parts]
    stay = sum(count_of(keep, keys.machine) for keep in keeps)
    there = sum(there_were(part, keys.machine) for part in opened.parts)
    writer.draft.removed += there - stay
    if stay == there and stay:
        writer.add(entry, copied, [behind_broker_head(entry.data)])
    elif stay:
        copied = copied._replace(there=bits_of(opened, keeps, keys.machine))
        writer.add(entry, copied, rewritten(entry.data, opened, keeps, keys.machine))


def _opened(entry: StoredEntry, keys: KeyMap) -> Opened | None:
    try:
        return open_entry(entry.data, keys.machine)
    except RecordsError as error:
        _log.warning("entry %d:%d is kept as it is: %s", entry.ledger_id, entry.entry_id, error)
        return None


class _Writer:
    """Appends entries to the new ledger, in large writes."""

    def __init__(self, file: File, draft: Draft, now_ms: int) -> None:
        self.draft = draft
        self._file = file
        self._parts: list[Buffer] = [encode_header(draft.index.ledger_id, now_ms)]
        self._size, self._at = len(self._parts[0]), 0

    def add(self, entry: StoredEntry, copied: Copied, message: list[Buffer]) -> None:
        """Write one copy."""
        index = self.draft.index
        broker = index_of(entry.data)
        head = copied_head(broker.broker_timestamp, broker.index, copied)
        length = len(head) + sum(map(len, message))
        latest = latest_timestamp(memoryview(b"".join((head, *message))))
        self._put(frame_head(index.ledger_id, index.entries, head, message, length), *message)
        index.add(FRAME_BYTES + length, entry.last_offset + 1 - index.next_offset, latest)
        came = self.draft.bytes_of
        came[copied.ledger_id] = came.get(copied.ledger_id, 0) + FRAME_BYTES + length

    def _put(self, *parts: Buffer) -> None:
        self._parts.extend(parts)
        self._size += sum(map(len, parts))
        if self._size >= WRITE_BYTES:
            self.finish()

    def finish(self) -> None:
        """Write what has not been written yet."""
        if self._parts:
            self._file.write(self._parts, self._at)
        self._at += self._size
        self._parts, self._size = [], 0


def entries_of(disk: Disk, stretch: Stretch, up_to: int) -> Iterator[StoredEntry]:
    """Give the entries of a stretch with offsets below ``up_to``; raise ``LedgerCorrupt`` for damage."""
    file = disk.open(stretch.path)
    try:
        at, entry_id, want = stretch.at, stretch.entry_id, CHUNK_BYTES
        while at < stretch.end:
            size = min(want, stretch.end - at)
            data = memoryview(file.read(size, at))
            if len(data) < size:
                raise LedgerCorrupt(f"{stretch.path}: ends at byte {at + len(data)}, not at {stretch.end}")
            walked = walk(
                data, at, stretch.ledger_id, entry_id,
                offset=stretch.offset, max_bytes=_NO_END, up_to=up_to, path=stretch.path,
            )  # fmt: skip
            yield from walked.entries
            if walked.at == at:
                if not walked.short_by:
                    return
                if at + size == stretch.end:
                    raise LedgerCorrupt(f"{stretch.path}: entry {entry_id} at byte {at} runs past the end")
                want = size + walked.short_by
                continue
            at, entry_id, want = walked.at, walked.entry_id, CHUNK_BYTES
    finally:
        file.close()
