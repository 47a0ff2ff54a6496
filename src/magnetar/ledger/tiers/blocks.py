"""What an offloaded ledger is: a data object and an index object, as Pulsar's brokers write and read them.

Data, one block after the other, each to be read by itself:

    offset  size  field                                   an entry:
         0     4  magic 0xFBDBABCB                           0     4  n, length of the entry
         4     8  length of this header, 128                 4     8  entry id
        12     8  length of the block                       12     n  the entry
        20     8  id of the first entry
        28   100  zero
       128        entries, then padding (0xFEDCDEAD), then ours: a checksum of each entry, 4 bytes

Pulsar fills the end of a block with its padding word again and again; its reader goes to the next block at the first
one, so what lies behind it is free. The checksums are those that the ledger's own file has of each entry: CRC32C over
ledger id, entry id, length and bytes (`magnetar.ledger.formats.layout`). An entry that comes back is checked against
what was computed when it was first written.

Index:

         0     4  magic 0xDE47DE47                        4     4  length of Pulsar's part of it
         8     8  length of the data object              16     8  length of a block's header, 128
        24     4  k, number of blocks                    28     4  m, length of the ledger's metadata
        32     m  BookKeeper's LedgerMetadataFormat
      32+m  20 k  of each block: id of its first entry (8), its number from 1 (4), where it begins (8)
    32+m+20k      ours: "MGTIER01", ledger id (8), length of the next (4), the ledger's index as its engine has it,
                  of each block the place of its first entry in the ledger's own file (8), CRC32C of all before (4)

Pulsar's reader stops behind its part. Without ours, offsets and times could only be found by reading everything.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from magnetar.ledger.errors import LedgerCorrupt
from magnetar.ledger.formats.protobuf import message, number
from magnetar.records.compression import Buffer
from magnetar.records.crc import crc32c

BLOCK_HEADER_BYTES = 128
ENTRY_HEAD = struct.Struct(">iQ")
PADDING = struct.pack(">I", 0xFEDCDEAD)
_BLOCK_MAGIC, _INDEX_MAGIC = 0xFBDBABCB, 0xDE47DE47
_BLOCK_HEAD = struct.Struct(">IQQQ")
_INDEX_HEAD = struct.Struct(">IIQQII")
_INDEX_ENTRY = struct.Struct(">QIQ")
_OURS = struct.Struct(">8sQI")
_OUR_MAGIC = b"MGTIER01"
_CRC = struct.Struct(">I")
_CLOSED, _CRC32C = 3, 3


class DataBlock(NamedTuple):
    """Where one block lies: in the data object, and what it holds of the ledger's own file."""

    first_entry: int
    start: int
    end: int
    own_start: int
    own_end: int


@dataclass(slots=True)
class OffloadedIndex:
    """The index object, decoded. ``own`` is the index that the ledger's engine has, as it wrote it."""

    ledger_id: int
    data_bytes: int = 0
    blocks: list[DataBlock] = field(default_factory=list)
    own: bytes = b""


def block_parts(first_entry: int, entries: Sequence[Buffer], checksums: Sequence[int]) -> list[Buffer]:
    """Return the parts of one block."""
    rest = PADDING + struct.pack(f">{len(checksums)}I", *checksums)
    length = BLOCK_HEADER_BYTES + ENTRY_HEAD.size * len(entries) + sum(map(len, entries)) + len(rest)
    head = _BLOCK_HEAD.pack(_BLOCK_MAGIC, BLOCK_HEADER_BYTES, length, first_entry)
    parts: list[Buffer] = [head.ljust(BLOCK_HEADER_BYTES, b"\0")]
    for entry_id, entry in enumerate(entries, first_entry):
        parts += (ENTRY_HEAD.pack(len(entry), entry_id), entry)
    parts.append(rest)
    return parts


def check_block(data: memoryview, block: DataBlock, where: str) -> None:
    """Raise ``LedgerCorrupt`` unless ``data`` begins as this block must."""
    head = _BLOCK_HEAD.unpack_from(data) if len(data) >= BLOCK_HEADER_BYTES else ()
    due = (_BLOCK_MAGIC, BLOCK_HEADER_BYTES, block.end - block.start, block.first_entry)
    if head != due or len(data) != block.end - block.start:
        raise LedgerCorrupt(f"{where}: the block at byte {block.start} is damaged", at=block.start)


def encode_index(index: OffloadedIndex, *, entries: int, length: int, created_ms: int) -> bytes:
    """Return the bytes of the index object of a ledger of so many entries, which take ``length`` bytes."""
    metadata = _ledger_metadata(entries, length, created_ms)
    places = b"".join(
        _INDEX_ENTRY.pack(block.first_entry, part, block.start) for part, block in enumerate(index.blocks, 1)
    )
    size = _INDEX_HEAD.size + len(metadata) + len(places)
    head = _INDEX_HEAD.pack(
        _INDEX_MAGIC, size, index.data_bytes, BLOCK_HEADER_BYTES, len(index.blocks), len(metadata)
    )
    own_starts = struct.pack(f">{len(index.blocks) + 1}Q", *_edges(index.blocks))
    ours = _OURS.pack(_OUR_MAGIC, index.ledger_id, len(index.own)) + index.own + own_starts
    body = head + metadata + places + ours
    return body + _CRC.pack(crc32c(body))


def _edges(blocks: Sequence[DataBlock]) -> list[int]:
    return [block.own_start for block in blocks] + [blocks[-1].own_end if blocks else 0]


def decode_index(data: bytes, ledger_id: int, where: str) -> OffloadedIndex:
    """Return what ``encode_index`` was given; raise ``LedgerCorrupt`` for what is damaged, or was not written here."""
    if len(data) < _INDEX_HEAD.size or _INDEX_HEAD.unpack_from(data)[0] != _INDEX_MAGIC:
        raise LedgerCorrupt(f"{where}: this is no index of an offloaded ledger", at=0)
    _, size, data_bytes, _, count, metadata = _INDEX_HEAD.unpack_from(data)
    if data[size : size + len(_OUR_MAGIC)] != _OUR_MAGIC:
        raise LedgerCorrupt(
            f"{where}: it has no index of offsets: a Pulsar broker may have written it", at=size
        )
    if _CRC.unpack(data[-4:])[0] != crc32c(memoryview(data)[:-4]):
        raise LedgerCorrupt(f"{where}: the index is damaged", at=0)
    _, found, own_size = _OURS.unpack_from(data, size)
    if found != ledger_id:
        raise LedgerCorrupt(f"{where}: the index belongs to ledger {found}, not {ledger_id}", at=size)
    own_at = size + _OURS.size
    edges = array("Q", struct.unpack_from(f">{count + 1}Q", data, own_at + own_size))
    rows = [
        _INDEX_ENTRY.unpack_from(data, _INDEX_HEAD.size + metadata + _INDEX_ENTRY.size * each)
        for each in range(count)
    ]
    ends = [start for _, _, start in rows[1:]] + [data_bytes]
    blocks = [
        DataBlock(first, start, end, edges[at], edges[at + 1])
        for at, ((first, _, start), end) in enumerate(zip(rows, ends, strict=True))
    ]
    return OffloadedIndex(ledger_id, data_bytes, blocks, data[own_at : own_at + own_size])


def _ledger_metadata(entries: int, length: int, created_ms: int) -> bytes:
    """Return what BookKeeper knows of a ledger that is closed: the bookie in it is named, and never asked."""
    segment = message(1, b"127.0.0.1:3181") + number(2, 0)
    return b"".join((
        number(1, 1), number(2, 1), number(3, length), number(4, entries - 1), number(5, _CLOSED),
        message(6, segment), number(7, _CRC32C), number(9, 1), number(10, created_ms),
    ))  # fmt: skip
