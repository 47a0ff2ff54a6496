"""Entries found in ledger files, beside a broker or without one; nothing is ever written."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

from magnetar.admin.explain import FilePlace
from magnetar.ledger.errors import LedgerCorrupt, LedgerNotFound, OffsetOutOfRange
from magnetar.ledger.formats.layout import FRAME, FRAME_BYTES, frame_crc, index_path, ledger_path
from magnetar.ledger.formats.sparse import SparseIndex
from magnetar.ledger.port import LedgerSummary, StoredEntry
from magnetar.records.entry import last_offset

_READ_BYTES = 1 << 20


def place_of(root: Path, ledger_id: int, entry_id: int) -> FilePlace | None:
    """Return where an entry lies, or None if the ledger has no file (any more) or is shorter. Reads frame heads
    only.
    """
    path = ledger_path(root, ledger_id)
    at, found = kept_index(root, ledger_id).before_entry(entry_id)
    try:
        file = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        while len(head := os.pread(file, FRAME_BYTES, at)) == FRAME_BYTES:
            length, _, found = FRAME.unpack(head)
            if found == entry_id:
                return FilePlace(str(path), at, FRAME_BYTES + length)
            if found > entry_id or not length:
                return None
            at += FRAME_BYTES + length
    finally:
        os.close(file)
    return None


def entry_at(root: Path, ledgers: list[LedgerSummary], offset: int) -> tuple[StoredEntry, FilePlace]:
    """Return the entry that holds ``offset`` from the files alone.

    Raises ``OffsetOutOfRange``, ``LedgerNotFound`` or ``LedgerCorrupt``.
    """
    which = bisect_right(ledgers, offset, key=lambda ledger: ledger.first_offset) - 1
    if which >= 0:
        ledger = ledgers[which]
        at, entry_id = kept_index(root, ledger.ledger_id).before_offset(offset)
        for entry, place in entries(root, ledger.ledger_id, at, entry_id):
            if entry.last_offset >= offset:
                return entry, place
    raise OffsetOutOfRange(f"offset {offset} is not kept")


def entries(root: Path, ledger_id: int, at: int, entry_id: int) -> Iterator[tuple[StoredEntry, FilePlace]]:
    """Walk a ledger's file from one of its frames to the end; a torn tail ends the walk, damage raises."""
    path = ledger_path(root, ledger_id)
    try:
        file = path.open("rb", buffering=_READ_BYTES)
    except FileNotFoundError:
        raise LedgerNotFound(f"{path}: the ledger's file is gone") from None
    with file:
        file.seek(at)
        while len(head := file.read(FRAME_BYTES)) == FRAME_BYTES:
            length, crc, found = FRAME.unpack(head)
            data = file.read(length)
            if found != entry_id or len(data) < length or not length:
                return
            if frame_crc(ledger_id, entry_id, data) != crc:
                raise LedgerCorrupt(f"{path}: entry {entry_id} at byte {at} is damaged")
            stored = StoredEntry(ledger_id, entry_id, last_offset(data), memoryview(data))
            yield stored, FilePlace(str(path), at, FRAME_BYTES + length)
            at, entry_id = at + FRAME_BYTES + length, entry_id + 1


def kept_index(root: Path, ledger_id: int) -> SparseIndex:
    """Return the index beside a ledger's file, or an empty one: a walk is longer without, and as right."""
    path = index_path(root, ledger_id)
    try:
        return SparseIndex.decode(path.read_bytes(), path)[0]
    except (FileNotFoundError, LedgerCorrupt):
        return SparseIndex(ledger_id, 0)
