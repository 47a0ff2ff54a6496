"""Reading a ledger that lies in tiered storage: its blocks, turned into what its file held at the same places.

The sparse index finds the place, and each frame's checksum is the one that was written first. A ledger that had no file
is read as if it had had one.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path

from magnetar.ledger.errors import LedgerCorrupt, LedgerNotFound, TierObjectMissing
from magnetar.ledger.formats.layout import FRAME, FRAME_BYTES
from magnetar.ledger.formats.sparse import SparseIndex
from magnetar.ledger.tiers.blocks import (
    BLOCK_HEADER_BYTES,
    ENTRY_HEAD,
    PADDING,
    DataBlock,
    check_block,
    decode_index,
)
from magnetar.ledger.tiers.objects import ObjectStore, data_key, index_key
from magnetar.ledger.tiers.place import place_of
from magnetar.ledger.tiers.tiers import Tiers
from magnetar.ledger.values import LedgerSummary

_BLOCKS_AT_ONCE = 8  # so many are asked for together, whoever wants how much


class OffloadedObjects:
    """The two objects of one ledger. Everything here blocks, and is called in threads."""

    def __init__(self, store: ObjectStore, uuid: str, summary: LedgerSummary) -> None:
        """Raise ``LedgerCorrupt`` for damage, ``LedgerNotFound`` for what is not there, and ``TierFailed``."""
        self.ledger_id = summary.ledger_id
        self.key = data_key(uuid, summary.ledger_id)
        self.where = f"{store.where}/{self.key}"
        self._store = store
        named = index_key(uuid, summary.ledger_id)
        self.found = decode_index(store.whole(named), summary.ledger_id, f"{store.where}/{named}")
        self.index, _ = SparseIndex.decode(self.found.own, Path(named))
        due = (summary.ledger_id, summary.entries, summary.last_offset + 1, summary.size)
        if (self.index.ledger_id, self.index.entries, self.index.next_offset, self.index.end) != due:
            raise LedgerCorrupt(f"{store.where}/{named}: it is not the index of what the metadata knows")

    def frames(self, first: int, last: int) -> list[bytes]:
        """Return blocks ``first`` to ``last`` as the ledger's own file held them, with one request."""
        blocks = self.found.blocks[first : last + 1]
        try:
            data = memoryview(self._store.read(self.key, blocks[0].start, blocks[-1].end - blocks[0].start))
        except LedgerNotFound as error:
            raise TierObjectMissing(
                f"ledger {self.ledger_id} is not where the metadata says: {error}"
            ) from error
        begin = blocks[0].start
        return [
            frames_of(data[block.start - begin : block.end - begin], block, self.where) for block in blocks
        ]

    def covering(self, size: int, at: int) -> tuple[int, int]:
        """Return the first and the last block of those that hold so many bytes of the ledger's own file."""
        blocks = self.found.blocks
        first = bisect_right(blocks, at, key=lambda block: block.own_start) - 1
        last = bisect_right(blocks, at + max(size, 1) - 1, key=lambda block: block.own_start) - 1
        return max(first, 0), last

    def cut(self, pieces: Iterable[bytes], first: int, size: int, at: int) -> bytes:
        """Return ``size`` bytes from ``at`` of the ledger's own file, of blocks from ``first`` on."""
        begin = at - self.found.blocks[first].own_start
        some = list(pieces)
        whole = some[0] if len(some) == 1 else b"".join(some)
        return whole[begin : begin + size]


def frames_of(data: memoryview, block: DataBlock, where: str) -> bytes:
    """Return a block's entries as the ledger's own file held them; raise ``LedgerCorrupt``.

    Whether they are what was written is for whoever walks them: each carries its checksum.
    """
    check_block(data, block, where)
    made = bytearray(block.own_end - block.own_start)
    at, to, due = BLOCK_HEADER_BYTES, 0, block.first_entry
    heads: list[tuple[int, int, int]] = []
    end, unpack, size = len(data) - len(PADDING), ENTRY_HEAD.unpack_from, ENTRY_HEAD.size
    while to < len(made):
        if at + size > end:
            raise _damaged(where, block, at)
        length, entry_id = unpack(data, at)
        after = at + size + length
        if length < 0 or entry_id != due or after > end or to + FRAME_BYTES + length > len(made):
            raise _damaged(where, block, at)
        heads.append((to, length, entry_id))
        made[to + FRAME_BYTES : to + FRAME_BYTES + length] = data[at + size : after]
        at, to, due = after, to + FRAME_BYTES + length, due + 1
    if data[at : at + len(PADDING)] != PADDING or len(data) != at + len(PADDING) + 4 * len(heads):
        raise _damaged(where, block, at)
    checksums = data[at + len(PADDING) :]
    for number, (place, length, entry_id) in enumerate(heads):
        crc = int.from_bytes(checksums[4 * number : 4 * number + 4], "big")
        FRAME.pack_into(made, place, length, crc, entry_id)
    return bytes(made)


def _damaged(where: str, block: DataBlock, at: int) -> LedgerCorrupt:
    return LedgerCorrupt(
        f"{where}: the block at byte {block.start} is damaged at byte {block.start + at}", at=block.start + at
    )


class OffloadedBlocks:
    """Blocks of one ledger for the event loop: from the cache or in threads, ahead of who reads on."""

    __slots__ = ("_loading", "_tiers", "ledger_id", "objects")

    def __init__(self, tiers: Tiers, objects: OffloadedObjects) -> None:
        self.ledger_id = objects.ledger_id
        self.objects = objects
        self._tiers = tiers
        self._loading: dict[int, asyncio.Future[list[bytes]]] = {}

    async def some(self, first: int, last: int) -> list[bytes]:
        """Return blocks ``first`` to ``last`` as the ledger's own file held them; raise ``LedgerError``."""
        cache = self._tiers.cache
        reads_on = first > 0 and (self.ledger_id, first - 1) in cache
        pieces = [await self._block(number, last, reads_on) for number in range(first, last + 1)]
        if (reads_on or first == 0) and self._tiers.settings.ahead and cache.has_room():
            following = last + 1
            if following < len(self.objects.found.blocks) and not self._is_coming(following):
                self._begin(following, following + self._tiers.settings.ahead - 1)
        return pieces

    def _is_coming(self, number: int) -> bool:
        return number in self._loading or (self.ledger_id, number) in self._tiers.cache

    async def _block(self, number: int, last: int, reads_on: bool) -> bytes:
        """Return one block; with it come those up to ``last`` and, for who reads on, some behind it."""
        found = self._tiers.cache.get((self.ledger_id, number))
        if found is not None:
            return found
        if number not in self._loading:
            ahead = self._tiers.settings.ahead if reads_on and self._tiers.cache.has_room() else 0
            self._begin(number, last + ahead)
        coming = self._loading[number]
        first = min(each for each, future in self._loading.items() if future is coming)
        return (await asyncio.shield(coming))[number - first]

    def _begin(self, first: int, last: int) -> None:
        """Have blocks from ``first`` on be brought, up to ``last`` or to the next one that is here or on its way."""
        last = min(last, first + _BLOCKS_AT_ONCE - 1, len(self.objects.found.blocks) - 1)
        end = first + 1
        while end <= last and not self._is_coming(end):
            end += 1
        coming = self._tiers.reading(lambda: self.objects.frames(first, end - 1))
        for number in range(first, end):
            self._loading[number] = coming
        coming.add_done_callback(lambda done: self._came(first, end, done))

    def _came(self, first: int, end: int, done: asyncio.Future[list[bytes]]) -> None:
        for number in range(first, end):
            self._loading.pop(number, None)
        if done.cancelled() or done.exception() is not None:  # whoever waits for it is told
            return
        for number, block in enumerate(done.result(), first):
            self._tiers.cache.add((self.ledger_id, number), block)
            self._tiers.bytes_read += len(block)


async def open_blocks(tiers: Tiers, summary: LedgerSummary) -> OffloadedBlocks:
    """Return the blocks of a ledger that is in tiered storage; raise ``LedgerError``.

    ``summary.size`` is that of the ledger's file, whether it has one or not.
    """
    offload = summary.offload
    assert offload is not None
    place = place_of(offload)

    def objects() -> OffloadedObjects:
        try:
            return OffloadedObjects(tiers.store(place), offload.uuid, summary)
        except LedgerNotFound as error:
            raise TierObjectMissing(
                f"ledger {summary.ledger_id} is not where the metadata says: {error}"
            ) from error

    return OffloadedBlocks(tiers, await tiers.reading(objects))
