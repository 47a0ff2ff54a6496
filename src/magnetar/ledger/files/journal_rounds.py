"""A round of the journal: what one synchronous write of whole blocks makes durable.

    offset  size  field
         0     4  magic "MGJR"
         4     8  use: counts each time a segment is taken into use, so an old round is told from a new one
        12     8  round within this use: 0, 1, 2 ...
        20     4  n, bytes of records
        24     4  CRC32C of the 24 before, then the records
        28     n  records: ledger id (8), position in its file (8), length (4), frames as in its file
                  zeros up to the next multiple of 4096

Each use begins with an empty round of one block.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from magnetar.ledger.errors import LedgerCorrupt
from magnetar.ledger.files.disk import BLOCK_BYTES
from magnetar.ledger.port import Done
from magnetar.records.compression import Buffer
from magnetar.records.crc import crc32c

_ROUND = struct.Struct(">4sQQII")
_RECORD = struct.Struct(">QQI")
_MAGIC = b"MGJR"
HEADER_BYTES = _ROUND.size
RECORD_BYTES = _RECORD.size
"""What a frame takes in a round besides its own bytes."""


class Journaled(NamedTuple):
    """A piece of a ledger in the journal, and its place in the ledger's file: one frame or some."""

    ledger_id: int
    at: int
    frames: memoryview


class Round:
    """Bytes that become durable together, in a block-aligned buffer, and the callers to notify."""

    def __init__(self, buffer: memoryview, loop: asyncio.AbstractEventLoop) -> None:
        self.buffer = buffer
        self.used = _ROUND.size
        self.ledgers: set[int] = set()
        self.done = Done(loop=loop)
        self.told: list[Done] = []
        """Further callers to notify."""
        self.marks: dict[Callable[[int], None], int] = {}

    def add(self, ledger_id: int, at: int, length: int, parts: Sequence[Buffer]) -> None:
        """Copy in one frame, or some consecutive ones."""
        end = self.used + _RECORD.size
        _RECORD.pack_into(self.buffer, self.used, ledger_id, at, length)
        for part in parts:
            start, end = end, end + len(part)
            self.buffer[start:end] = part
        self.used = end
        self.ledgers.add(ledger_id)

    def settle(self, error: BaseException | None = None) -> None:
        """Notify all callers of the outcome."""
        for each in (self.done, *self.told):
            each.settle(error)

    def seal(self, use: int, number: int) -> memoryview:
        """Write the round's header, zero the rest of its last block, and return the blocks to write."""
        records = self.buffer[_ROUND.size : self.used]
        head = _ROUND.pack(_MAGIC, use, number, len(records), 0)[:-4]
        self.buffer[: len(head)] = head
        struct.pack_into(">I", self.buffer, len(head), crc32c(records, crc32c(head)))
        blocks = whole_blocks(self.used)
        self.buffer[self.used : blocks] = bytes(blocks - self.used)
        return self.buffer[:blocks]


def journaled(data: memoryview, path: Path, *, clean_use: int) -> tuple[int, list[memoryview]]:
    """Return a segment's use and the records of its rounds, in order.

    A torn last round is omitted: no client was told that it is durable. A round that is damaged although a later one is
    whole raises ``LedgerCorrupt``, unless it belongs to a use up to ``clean_use``, which is not needed any more.
    """
    use, at = -1, 0
    rounds: list[memoryview] = []
    while (found := _round_at(data, at)) is not None:
        found_use, number, records, size = found
        if use not in (-1, found_use) or number != len(rounds):
            break
        use = found_use
        rounds.append(records)
        at += size
    later = _later_round(data, at, use, len(rounds), clean_use)
    if later is not None:
        raise LedgerCorrupt(
            f"{path}: round {len(rounds)} at byte {at} is damaged, and a later one at {later} is whole", at=at
        )
    return use, rounds


def records_of(rounds: Sequence[memoryview], path: Path) -> Iterator[Journaled]:
    """Yield the records of ``rounds``, in the order in which they were appended."""
    for records in rounds:
        at = 0
        while at < len(records):
            ledger_id, position, length = _RECORD.unpack_from(records, at)
            at += _RECORD.size
            if at + length > len(records):
                raise LedgerCorrupt(f"{path}: a record of ledger {ledger_id} runs past its round")
            yield Journaled(ledger_id, position, records[at : at + length])
            at += length


def _round_at(data: memoryview, at: int) -> tuple[int, int, memoryview, int] | None:
    if at + _ROUND.size > len(data):
        return None
    magic, use, number, size, crc = _ROUND.unpack_from(data, at)
    if magic != _MAGIC or at + _ROUND.size + size > len(data):
        return None
    records = data[at + _ROUND.size : at + _ROUND.size + size]
    if crc32c(records, crc32c(data[at : at + _ROUND.size - 4])) != crc:
        return None
    return use, number, records, whole_blocks(_ROUND.size + size)


def _later_round(data: memoryview, at: int, use: int, number: int, clean_use: int) -> int | None:
    """Return where a whole round that should have followed begins after ``at``, if there is one."""
    for place in range(whole_blocks(at), len(data) - _ROUND.size, BLOCK_BYTES):
        if data[place : place + 4] != _MAGIC:
            continue
        found = _round_at(data, place)
        if found is None or found[0] <= clean_use:
            continue
        if found[1] >= number and (found[0] == use or use == -1):
            return place
    return None


def whole_blocks(size: int) -> int:
    """Return how many bytes ``size`` takes in whole blocks."""
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES
