"""Blocks of offloaded ledgers that were read not long ago, or will be soon: one bounded cache for all logs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

Key = tuple[int, int]
"""Ledger id, and which block of it."""


class BlockCache:
    """The least recently used goes first."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.size = 0
        self._counts: list[Callable[[int], None]] = []
        self._limits: list[Callable[[], bool]] = []
        self._blocks: OrderedDict[Key, bytes] = OrderedDict()

    def count(self, held: Callable[[int], None], has_room: Callable[[], bool]) -> None:
        """Have ``held`` called with each change of the size, in bytes, and ask ``has_room`` before reading ahead."""
        self._counts.append(held)
        self._limits.append(has_room)

    def has_room(self) -> bool:
        """Return whether more than what a reader waits for may be read."""
        return all(has_room() for has_room in self._limits)

    def get(self, key: Key) -> bytes | None:
        """Return a block that is here."""
        found = self._blocks.get(key)
        if found is not None:
            self._blocks.move_to_end(key)
        return found

    def __contains__(self, key: Key) -> bool:
        return key in self._blocks

    def add(self, key: Key, block: bytes) -> None:
        """Keep one more; the last one stays, however large it is."""
        self._forget(key)
        self._blocks[key] = block
        self._count(len(block))
        while self.size > self.limit_bytes and len(self._blocks) > 1:
            self._forget(next(iter(self._blocks)))

    def forget(self, ledger_id: int) -> None:
        """Let go of what is kept of a ledger."""
        for key in [key for key in self._blocks if key[0] == ledger_id]:
            self._forget(key)

    def _forget(self, key: Key) -> None:
        gone = self._blocks.pop(key, None)
        if gone is not None:
            self._count(-len(gone))

    def _count(self, change: int) -> None:
        self.size += change
        for held in self._counts:
            held(change)
