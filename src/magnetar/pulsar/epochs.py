"""The epoch that fences exclusive producers off: kept before whoever has it may send, and never given twice."""

from __future__ import annotations

import asyncio

from magnetar.metadata import MUST_NOT_EXIST, BadVersion, MetadataCorrupt, MetadataStore, Put
from magnetar.pulsar.errors import ProducerFenced

_ROOT = "/pulsar/topic-epochs"


class TopicEpoch:
    """The last epoch of one partition's exclusive producers, as the metadata store has it. ``load`` before use."""

    def __init__(self, store: MetadataStore, ledger_name: str) -> None:
        self._store = store
        self._path = f"{_ROOT}/{ledger_name}"
        self._version = MUST_NOT_EXIST
        self._keeping = asyncio.Lock()
        self.kept: int | None = None
        """None if the topic never had an exclusive producer."""

    async def load(self) -> int | None:
        """Read it, and return it."""
        stored = await self._store.get(self._path)
        if stored is None:
            self.kept, self._version = None, MUST_NOT_EXIST
            return None
        try:
            self.kept, self._version = int(stored.value), stored.version
        except ValueError:
            raise MetadataCorrupt(self._path, "not an epoch") from None
        return self.kept

    async def keep(self, epoch: int) -> None:
        """Have ``epoch`` durable; raise ``ProducerFenced`` if another broker has given it, or a later one."""
        async with self._keeping:
            while self.kept is None or self.kept < epoch:
                try:
                    (self._version,) = await self._store.commit(
                        [Put(self._path, b"%d" % epoch, self._version)]
                    )
                except BadVersion:
                    if (found := await self.load()) is not None and found >= epoch:
                        raise ProducerFenced(
                            f"Producer was fenced: another broker has begun epoch {found} of the topic"
                        ) from None
                else:
                    self.kept = epoch
