"""Producer ids: each is given once, ever. They are taken from the metadata store in blocks, as Kafka does."""

from __future__ import annotations

import asyncio

from magnetar.metadata import MetadataStore
from magnetar.metadata.numbers import take_numbers

_PATH = "/magnetar/producer-ids"
_BLOCK = 1000


class ProducerIds:
    """Gives producer ids; those of a block begun before a crash are skipped."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._next = self._limit = 0
        self._taking = asyncio.Lock()

    async def take(self) -> int:
        """Return an id that nobody had before; whoever comes while a block is taken waits for that."""
        while self._next == self._limit:
            async with self._taking:
                if self._next == self._limit:
                    self._next = await take_numbers(self._store, _PATH, _BLOCK)
                    self._limit = self._next + _BLOCK
        self._next += 1
        return self._next - 1
