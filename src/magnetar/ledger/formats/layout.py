"""A ledger's file: a header, then one frame per entry. All numbers big-endian.

    offset  size  field                          offset  size  field
         0     8  magic "MGLEDGR1"                    0     4  n, length of the entry
         8     8  ledger id                           4     4  CRC32C of ledger id, entry id, n and entry
        16     8  when it was created, ms             8     8  entry id: 0, 1, 2 ...
        24     4  zero                               16     n  the entry (``records/entry.py``)
        28     4  CRC32C of the 28 before

The CRC names ledger and entry too, so a frame that is whole but in the wrong place is found out.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from magnetar.ledger.errors import LedgerCorrupt
from magnetar.records.compression import Buffer
from magnetar.records.crc import crc32c, extended

HEADER_BYTES = 32
FRAME_BYTES = 16
MAGIC = b"MGLEDGR1"
FRAME = struct.Struct(">IIQ")
_HEADER = struct.Struct(">8sQQI")
_CRC = struct.Struct(">I")
_PLACE = struct.Struct(">QQI")


class LedgerFrame(NamedTuple):
    """One frame found in a file: where it begins and what it holds. ``entry`` is a view."""

    at: int
    entry_id: int
    entry: memoryview


def file_bytes(entries: int, entry_bytes: int) -> int:
    """Return how long the file of a ledger of so many entries is, which take ``entry_bytes`` themselves."""
    return HEADER_BYTES + entries * FRAME_BYTES + entry_bytes


def ledger_path(root: Path, ledger_id: int) -> Path:
    """Return where a ledger's file lies below the data directory."""
    return root / "ledgers" / f"{ledger_id >> 10:06x}" / f"{ledger_id:016x}.ledger"


def index_path(root: Path, ledger_id: int) -> Path:
    """Return where a ledger's index lies: beside its file."""
    return ledger_path(root, ledger_id).with_suffix(".index")


def encode_header(ledger_id: int, created_ms: int) -> bytes:
    """Return the first ``HEADER_BYTES`` of a ledger's file."""
    head = _HEADER.pack(MAGIC, ledger_id, created_ms, 0)
    return head + _CRC.pack(crc32c(head))


def check_header(data: bytes, ledger_id: int, path: Path) -> None:
    """Raise ``LedgerCorrupt`` unless ``data`` is the header of this ledger."""
    if len(data) < HEADER_BYTES or _CRC.unpack_from(data, 28)[0] != crc32c(data[:28]):
        raise LedgerCorrupt(f"{path}: the header (bytes 0-31) is damaged")
    magic, found, _, _ = _HEADER.unpack_from(data)
    if magic != MAGIC or found != ledger_id:
        raise LedgerCorrupt(f"{path}: the header belongs to ledger {found}, not {ledger_id}")


def is_header(data: bytes, ledger_id: int) -> bool:
    """Return whether ``data`` is the whole header of this ledger."""
    try:
        check_header(data, ledger_id, Path())
    except LedgerCorrupt:
        return False
    return True


def frame_head(
    ledger_id: int,
    entry_id: int,
    head: bytes,
    rest: Sequence[Buffer],
    length: int,
    tail_crc: int | None = None,
) -> bytes:
    """Return a frame's first 16 bytes and ``head``; the caller writes ``rest`` behind it.

    ``tail_crc`` is the CRC32C of the last part of ``rest``, where that is known.
    """
    crc = crc32c(_PLACE.pack(ledger_id, entry_id, length) + head)
    for part in rest if tail_crc is None else rest[:-1]:
        crc = crc32c(part, crc)
    if tail_crc is not None:
        crc = extended(crc, rest[-1], tail_crc)
    return FRAME.pack(length, crc, entry_id) + head


def frame_crc(ledger_id: int, entry_id: int, entry: Buffer) -> int:
    """Return the CRC that the frame of this entry must carry."""
    return int(crc32c(entry, crc32c(_PLACE.pack(ledger_id, entry_id, len(entry)))))


def read_frame(data: memoryview, at: int, ledger_id: int, entry_id: int) -> LedgerFrame | None:
    """Return the frame at ``at`` if it is all there and holds this entry, undamaged; otherwise None."""
    if len(data) - at < FRAME_BYTES:
        return None
    length, crc, found = FRAME.unpack_from(data, at)
    end = at + FRAME_BYTES + length
    if found != entry_id or end > len(data):
        return None
    entry = data[at + FRAME_BYTES : end]
    if crc32c(entry, crc32c(_PLACE.pack(ledger_id, entry_id, length))) != crc:
        return None
    return LedgerFrame(at, entry_id, entry)
