"""Walking the frames of a ledger's file: to read entries, and to find out what a crash left behind."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

from magnetar.ledger.errors import LedgerCorrupt
from magnetar.ledger.files.disk import File
from magnetar.ledger.formats.layout import FRAME, FRAME_BYTES, read_frame
from magnetar.ledger.formats.sparse import SparseIndex
from magnetar.ledger.port import StoredEntry
from magnetar.records.crc import crc32c
from magnetar.records.entry import last_offset, latest_timestamp, read_head
from magnetar.records.errors import RecordsError
from magnetar.records.tuples import maker

SCAN_BYTES = 4 << 20
MAX_ENTRIES = 4096
"""The most entries of one walk: a megabyte may contain 15,000, and no other client is served meanwhile."""
_PLACE = struct.Struct(">QQI")
_stored_entry = maker(StoredEntry)
_NO_COPY = -1
_ENTRY_MAGIC = b"\x0e\x02\x00\x00"


class Walked(NamedTuple):
    """The result of a walk, and where it would continue; the next frame is ``short_by`` bytes longer than the data."""

    entries: list[StoredEntry]
    at: int
    entry_id: int
    short_by: int


def walk(
    data: memoryview,
    start: int,
    ledger_id: int,
    entry_id: int,
    *,
    offset: int,
    max_bytes: int,
    up_to: int,
    path: Path,
) -> Walked:
    """Return the entries in ``data`` (the file's bytes from ``start``) with ``offset`` and later ones, below ``up_to``.

    They take at most ``max_bytes``, or there is one; and they are at most `MAX_ENTRIES`. Raises ``LedgerCorrupt`` for
    a frame that is not what it must be.
    """
    entries: list[StoredEntry] = []
    at, size, room, left = 0, len(data), max_bytes, MAX_ENTRIES
    place, unpack, append, stored_entry = _PLACE.pack, FRAME.unpack_from, entries.append, _stored_entry
    while at + FRAME_BYTES <= size:
        length, crc, found = unpack(data, at)
        begin = at + FRAME_BYTES
        end = begin + length
        if found != entry_id:
            raise _damaged(path, start + at, entry_id)
        if end > size:
            return Walked(entries, start + at, entry_id, end - size)
        entry = data[begin:end]
        if crc32c(entry, crc32c(place(ledger_id, entry_id, length))) != crc:
            raise _damaged(path, start + at, entry_id)
        last, kafka_at = read_head(entry)
        if last >= up_to:
            break
        if last >= offset:
            if not left or (entries and length > room):
                break
            room -= length
            left -= 1
            append(stored_entry((ledger_id, entry_id, last, entry, begin, kafka_at, _NO_COPY)))
        at = end
        entry_id += 1
    return Walked(entries, start + at, entry_id, 0)


def scan(file: File, index: SparseIndex, path: Path, *, whole_until: int, may_have_holes: bool) -> int:
    """Read on from where ``index`` ends, add every whole entry to it, and return where the last one ends.

    What follows is the torn tail of an append that nobody was told of. Damage is refused with ``LedgerCorrupt``:
    before ``whole_until`` (known to have been whole), or where whole frames follow it, unless the machine lost its
    power (``may_have_holes``): then pages that were never flushed may be missing before ones that were.
    """
    size = file.size()
    if size < whole_until:
        raise LedgerCorrupt(f"{path}: {size} bytes are left of the {whole_until} that were once durable")
    want = SCAN_BYTES
    while index.end < size:
        data = memoryview(file.read(min(want, size - index.end), index.end))
        used = _add_frames(data, index)
        want = SCAN_BYTES
        if used == 0:
            need = _claimed(data)
            if need > len(data) and index.end + need <= size:
                want = need
                continue
            break
    if index.end < whole_until:
        raise _damaged(path, index.end, index.entries)
    if index.end < size and not may_have_holes:
        later = _whole_frame_after(file, index, size)
        if later is not None:
            raise LedgerCorrupt(
                f"{path}: entry {index.entries} at byte {index.end} is damaged, and entry {later} behind it is whole"
            )
    return index.end


def _add_frames(data: memoryview, index: SparseIndex) -> int:
    at = 0
    while (frame := read_frame(data, at, index.ledger_id, index.entries)) is not None:
        try:
            last, latest = last_offset(frame.entry), latest_timestamp(frame.entry)
        except RecordsError:
            if (
                frame.entry[:2] != _ENTRY_MAGIC[:2]
            ):  # whole, and not ours to cut: see `magnetar.ledger.formats.packed`
                raise LedgerCorrupt(
                    f"ledger {index.ledger_id}: entry {frame.entry_id} has no index; entries of KoP before 2.8 "
                    "get one by 'magnetar migrate packed-offsets'"
                ) from None
            break
        frame_bytes = FRAME_BYTES + len(frame.entry)
        index.add(frame_bytes, last + 1 - index.next_offset, latest)
        at += frame_bytes
    return at


def _claimed(data: memoryview) -> int:
    return FRAME_BYTES + int(FRAME.unpack_from(data)[0]) if len(data) >= FRAME_BYTES else FRAME_BYTES


def _whole_frame_after(file: File, index: SparseIndex, size: int) -> int | None:
    """Return the id of a whole entry after the place where the walk ended, if there is one."""
    start = index.end + 1
    while start < size:
        data = file.read(min(SCAN_BYTES, size - start), start)
        found = data.find(_ENTRY_MAGIC)
        while found >= 0:
            entry_id = _whole_at(file, start + found - FRAME_BYTES, index, size)
            if entry_id is not None:
                return entry_id
            found = data.find(_ENTRY_MAGIC, found + 1)
        start += max(len(data) - len(_ENTRY_MAGIC) + 1, 1)
    return None


def _whole_at(file: File, at: int, index: SparseIndex, size: int) -> int | None:
    if at <= index.end:
        return None
    head = file.read(FRAME_BYTES, at)
    if len(head) < FRAME_BYTES:
        return None
    length, _, entry_id = FRAME.unpack(head)
    if entry_id < index.entries or at + FRAME_BYTES + length > size:
        return None
    data = memoryview(file.read(FRAME_BYTES + length, at))
    return entry_id if read_frame(data, 0, index.ledger_id, entry_id) is not None else None


def _damaged(path: Path, at: int, entry_id: int) -> LedgerCorrupt:
    return LedgerCorrupt(f"{path}: entry {entry_id} at byte {at} is damaged; see 'magnetar ledger verify'")
