"""Blocks of offloaded ledgers that were read not long ago, or will be soon: one bounded cache for all logs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

Key = tuple[int, int]
"""Ledger id, and which block of it."""


class BlockCache:
    """The least recently used goes first. ``held`` is told of each change, in bytes: what is kept here is counted."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.size = 0
        self.held: Callable[[int], None] = lambda change: None
        self.has_room: Callable[[], bool] = lambda: True
        """Whether more than what somebody waits for may be read."""
        self._blocks: OrderedDict[Key, bytes] = OrderedDict()

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
        self.held(change)
